"""What a simulation serves: requests with their prompts and replies, and when they come."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from radix_engine.cache import token_array

TOKEN_BYTES = 4


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """A request, and the reply that will be sampled for it, both as token ids.

    It comes ``delay_s`` seconds after its session's request before has ended; a session's first one
    that many seconds after the start. ``calls_tool``: the reply ends with a tool call.
    """

    prompt: array[int]
    reply: array[int]
    delay_s: float = 0.0
    calls_tool: bool = False

    @property
    def num_stored(self) -> int:
        """Tokens whose K and V are in memory when it ends: all but the last of the reply."""
        return len(self.prompt) + len(self.reply) - 1


@dataclass(frozen=True, slots=True)
class Load:
    """Sessions of requests that follow one another, at most ``concurrency`` of them in flight.

    ``id_tokens``: tokens that each token id of the load stands for; more than one in a trace of
    block ids, where the cache has blocks of one id.
    """

    sessions: tuple[tuple[LoadRequest, ...], ...]
    concurrency: int | None = None
    id_tokens: int = 1

    @property
    def num_requests(self) -> int:
        """Requests of all sessions."""
        return sum(map(len, self.sessions))

    def requests(self) -> Iterable[LoadRequest]:
        """All of them, session by session."""
        return (request for session in self.sessions for request in session)

    def at_rate(self, rate: float) -> Load:
        """The same load, ``rate`` times as fast: all delays are divided by it."""
        return self._with_delays(1 / rate)

    def at_once(self) -> Load:
        """The same load without any delay: the first request of every session is there at the
        start."""
        return self._with_delays(0.0)

    def _with_delays(self, factor: float) -> Load:
        return replace(
            self,
            sessions=tuple(
                tuple(replace(request, delay_s=request.delay_s * factor) for request in session)
                for session in self.sessions
            ),
        )


def made_up_tokens(seed: int, what: str, count: int) -> array[int]:
    """``count`` token ids that depend on nothing but the seed and a name, the same in every process
    and numpy.

    Ids lie anywhere in 0 to 2**31 - 1: two names share not even their first one, but for a chance
    of one in two billion.
    """
    digest = hashlib.blake2b(f"{seed} {what}".encode(), digest_size=8).digest()
    # The finaliser of SplitMix64 over a counter; uint64 wraps around.
    x = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x += np.uint64(int.from_bytes(digest, "little"))
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    ids = token_array()
    ids.frombytes((x >> np.uint64(33)).astype(np.int32).tobytes())
    return ids


def distinct_tokens(load: Load) -> int:
    """Tokens of all prompts and replies, each prefix counted once: what an unlimited cache would
    come to hold. Cost: sorting them."""
    runs = sorted((request.prompt + request.reply).tobytes() for request in load.requests())
    before, total = b"", 0
    for run in runs:
        # Of all runs before, the one next to it in order shares most with it.
        total += len(run) // TOKEN_BYTES - _common_tokens(before, run)
        before = run
    return total


def _common_tokens(left: bytes, right: bytes) -> int:
    count = min(len(left), len(right)) // TOKEN_BYTES
    differ = np.frombuffer(left, np.int32, count) != np.frombuffer(right, np.int32, count)
    return int(differ.argmax()) if differ.any() else count


def blocks_for_share(load: Load, share: float, block_size: int) -> int:
    """Blocks of a pool that holds this share of the load's distinct tokens, whole blocks at least.

    Raises ValueError, with the least share that will do, where not even the longest request fits.
    """
    distinct = distinct_tokens(load)
    blocks = int(distinct * share) // block_size
    longest = max(request.num_stored for request in load.requests())
    needed = -(-longest // block_size)
    if blocks < needed:
        least = needed * block_size / distinct
        raise ValueError(
            f"{share:g} of {distinct:,} distinct tokens are {blocks:,} blocks of {block_size} "
            f"tokens, and the longest request ({longest:,} tokens) needs {needed:,}: "
            f"use at least {least:.2g}"
        )
    return blocks
