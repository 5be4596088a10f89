"""Planned sessions as token ids, for the simulator: no text, no tokenizer, any ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from radix_engine.cache import token_array
from workloads.generators.plan import PlannedSession, prompts
from workloads.simulation.load import LoadRequest, made_up_tokens


def token_sessions(
    sessions: Iterable[PlannedSession], seed: int
) -> Iterator[tuple[LoadRequest, ...]]:
    """The requests of each session. Different parts share not even their first token. Cost: O(their
    tokens), in numpy."""
    for session in sessions:
        requests = []
        for at, (call, prompt) in enumerate(zip(session.calls, prompts(session), strict=True)):
            ids = token_array()
            for part in prompt:
                ids += made_up_tokens(seed, part.name, part.tokens)
            reply = made_up_tokens(seed, call.reply.name, call.reply.tokens)
            delay_s = call.think_s if at else session.arrival_s
            requests.append(LoadRequest(ids, reply, delay_s))
        yield tuple(requests)
