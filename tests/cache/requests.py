"""Whole requests of a namespace, as the tests of the cache send them: one at a time."""

from __future__ import annotations

from collections.abc import Sequence

from radix_engine.cache import DEFAULT, Lease, MatchEnd, Namespace, PrefixCache, pack
from tests.cache.trees import assert_sound, publish


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def begin(
    cache: PrefixCache, tokens: Sequence[int], namespace: Namespace = DEFAULT, priority: int = 0
) -> Lease:
    """Match, count and lease a prompt, compute it, and store its full blocks."""
    match = cache.match(pack(tokens), namespace)
    cache.account(match, pack(tokens))
    lease = cache.lease(match, priority)
    publish(cache, lease, tokens)
    return lease


def serve(
    cache: PrefixCache, tokens: Sequence[int], namespace: Namespace = DEFAULT, priority: int = 0
) -> None:
    """A whole request, when no other runs."""
    cache.release(begin(cache, tokens, namespace, priority))
    assert_sound(cache)


def reach(cache: PrefixCache, tokens: Sequence[int], namespace: Namespace = DEFAULT) -> int:
    """How many of these tokens a longer prompt would be served."""
    return cache.match(pack([*tokens, 0]), namespace).num_tokens


def why(cache: PrefixCache, tokens: Sequence[int], namespace: Namespace = DEFAULT) -> MatchEnd:
    """Why a prompt's match ends where it does, without counting it."""
    return cache.explain(cache.match(pack(tokens), namespace), pack(tokens))
