"""A trace of block ids as a load: an id is one token of a tree whose blocks are of one token.

The tokens behind a prompt's last full block, and the blocks of its reply, have ids that nothing
else has: the trace does not say which blocks of the next prompt hold them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from radix_engine.cache import token_array
from workloads.simulation.load import Load, LoadRequest
from workloads.traces.block_trace import BlockCall, BlockTrace

_TOOL = "tool_use"


@dataclass(frozen=True, slots=True)
class BlockLoad:
    """The load, and the calls that were left out of it."""

    load: Load
    left_out_calls: int


def block_load(
    trace: BlockTrace,
    *,
    sessions: int | None,
    max_turns: int | None,
    concurrency: int | None,
    reply_tokens: int,
) -> BlockLoad:
    """The first sessions of a trace, each up to ``max_turns`` calls (None: all).

    A session begins when it did, or when another has ended where ``concurrency`` of them are in
    flight; its next call comes as long after a reply as it did. A call without a session is one by
    itself. ``reply_tokens``: of a reply whose length was not recorded.
    """
    numbers = count(-1, -1)  # what no other prompt has; those of the trace are 0 and above
    kept: dict[str | int, list[BlockCall]] = {}
    for place, call in enumerate(trace.calls):
        name = place if call.session is None else call.session
        if name in kept or sessions is None or len(kept) < sessions:
            kept.setdefault(name, []).append(call)
    kept = {name: calls[:max_turns] for name, calls in kept.items()}
    left_out = len(trace.calls) - sum(map(len, kept.values()))
    size = trace.block_tokens

    def request(calls: Sequence[BlockCall], turn: int) -> LoadRequest:
        call = calls[turn]
        tokens = reply_tokens if call.reply_tokens is None else call.reply_tokens
        # The first is sampled with the prompt's last step; each further one takes steps of its own.
        blocks = 1 + round(tokens / size)
        prompt = token_array()
        prompt.frombytes(call.ids.tobytes())
        if call.prompt_tokens > len(prompt) * size or not prompt:
            prompt.append(next(numbers))
        reply = token_array(next(numbers) for _ in range(blocks))
        return LoadRequest(prompt, reply, _delay(calls, turn), call.stop == _TOOL)

    load = tuple(
        tuple(request(calls, turn) for turn in range(len(calls))) for calls in kept.values()
    )
    return BlockLoad(Load(load, concurrency, size), left_out)


def _delay(calls: Sequence[BlockCall], turn: int) -> float:
    call = calls[turn]
    if not turn:
        return call.arrival_s
    before = calls[turn - 1]
    return max(0.0, call.arrival_s - before.arrival_s - (before.reply_s or 0.0))
