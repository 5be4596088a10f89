"""Recorded traces as a load: sessions whose next turn comes a thinking time after the reply."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np

from radix_engine.cache import token_array
from workloads.simulation.load import TOKEN_BYTES, Load, LoadRequest, made_up_tokens
from workloads.traces.arrival import Arrival, with_times
from workloads.traces.reading import select_sessions
from workloads.traces.session import Call, Session

_ASSISTANT = "assistant"


def trace_load(
    paths: Sequence[Path],
    *,
    sessions: int,
    max_turns: int,
    concurrency: int,
    think_time_s: float,
    reply_tokens: int,
    seed: int,
) -> tuple[Load, int]:
    """The first sessions of each trace as a load, and how many calls were left out. Those of
    several traces come in an order by seed.

    No tokenizer is asked: every 4 bytes of a message are a token, about as many as tokenizers make
    of English, and a message begins with one for its role. So equal heads of messages are equal
    tokens. A reply is the recorded one; where none was, ``reply_tokens`` made-up ones. Raises
    TraceError.
    """
    selections = [select_sessions(path, sessions, max_turns) for path in paths]
    chosen = [session for each in selections for session in each.sessions]
    if len(paths) > 1:
        Random(f"mix {seed}").shuffle(chosen)
    timed = with_times(chosen, Arrival(), think_time_s, seed)
    load = tuple(_requests(session, reply_tokens, seed) for session in timed)
    return Load(load, concurrency), sum(each.left_out_calls for each in selections)


def _requests(session: Session, reply_tokens: int, seed: int) -> tuple[LoadRequest, ...]:
    history = token_array()
    requests = []
    for turn, call in enumerate(session.calls):
        prompt = (token_array() if call.reset else history) + _new_tokens(call)
        if call.reply:
            reply = text_tokens(call.reply)
        else:
            reply = made_up_tokens(seed, f"reply {session.id} {turn}", reply_tokens)
        delay_s = call.think_s if turn else session.arrival_s
        requests.append(LoadRequest(prompt, reply, delay_s))
        history = prompt + reply
    return tuple(requests)


def _new_tokens(call: Call) -> array[int]:
    """What a call appends to the history, with the mark that the reply begins behind."""
    ids = token_array()
    for message in call.messages:
        if not call.raw:
            ids.append(role_token(message.role))
        ids.extend(text_tokens(message.content))
    if not call.raw or not ids:
        ids.append(role_token(_ASSISTANT))
    return ids


def role_token(role: str) -> int:
    """The token that a message of this role begins with: no text has it."""
    digest = hashlib.blake2b(role.encode(), digest_size=4).digest()
    return -1 - int.from_bytes(digest, "little") // 2


def text_tokens(text: str) -> array[int]:
    """A text's UTF-8 bytes, four to a token (without the sign bit), the last filled up with
    zeros."""
    raw = text.encode("utf-8", "surrogatepass")
    whole = np.frombuffer(raw + bytes(-len(raw) % TOKEN_BYTES), np.int32)
    ids = token_array()
    ids.frombytes((whole & 0x7FFFFFFF).tobytes())
    return ids
