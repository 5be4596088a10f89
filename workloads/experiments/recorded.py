"""A recorded trace as calls of the cache alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from workloads.experiments.made import BlockNumbers
from workloads.simulation.mixing import mixed
from workloads.simulation.serial_calls import SerialCall, calls_of
from workloads.simulation.text_calls import TextCall
from workloads.simulation.trace import role_token, text_tokens
from workloads.traces.block_trace import is_block_trace, read_block_trace
from workloads.traces.reading import select_sessions
from workloads.traces.session import Message, Session, after_reply, prompt_of

SESSIONS, IN_FLIGHT = 40, 16


def recorded_calls(path: Path, block_size: int, seed: int) -> tuple[list[SerialCall], int, int]:
    """The calls, how many different blocks they have, and the tokens of a block: those of a trace
    of block ids, in its order; or those of a trace's first 40 sessions, 16 in flight, in blocks of
    ``block_size`` tokens, where 4 bytes are taken for a token. Raises TraceError."""
    if is_block_trace(path):
        trace = read_block_trace(path)
        calls = calls_of(trace, pinned=False)
        return calls, len({int(block) for call in calls for block in call.path}), trace.block_tokens
    numbers = BlockNumbers(block_size)
    sessions = [_session(session, numbers) for session in select_sessions(path, SESSIONS).sessions]
    calls = mixed(
        sessions,
        IN_FLIGHT,
        seed,
        block_tokens=block_size,
        shuffle_rounds=False,
        seconds_a_call=1.0,
    )
    return calls, len(numbers), block_size


def _session(session: Session, numbers: BlockNumbers) -> list[TextCall]:
    history: tuple[Message, ...] = ()
    calls = []
    for call in session.calls:
        prompt = prompt_of(history, call)
        run = b"".join(map(_message_run, prompt))
        path = numbers.path(run + _message_run(Message("assistant", call.reply or "")))
        calls.append(TextCall(np.array(path, np.int64), len(run) // 4))
        history = after_reply(prompt, call, "")
    return calls


def _message_run(message: Message) -> bytes:
    ids = text_tokens(message.content)
    return role_token(message.role).to_bytes(4, "little", signed=True) + ids.tobytes()
