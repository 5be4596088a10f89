"""Why a prompt would be served as it would: which of its tokens are where, and where it parts from
what is stored."""

from __future__ import annotations

from dataclasses import dataclass

from radix_engine.cache.mode import CacheMode
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.parting import Parting, Segment, parting, segments
from radix_engine.cache.prefix_cache import PrefixCache
from radix_engine.cache.reason import MatchEnd, Reason
from radix_engine.cache.token_run import TOKEN_BYTES

_PARTS = (Reason.DIVERGED, Reason.SHORT)  # ends at which a stored branch goes on otherwise


@dataclass(frozen=True, slots=True)
class Explanation:
    """``cached_tokens``: what a request for this prompt would be served now, and ``end`` why no
    more. ``segments``: the whole prompt in order. ``parting``: where it leaves the nearest stored
    branch of its own namespace; None where it leaves none."""

    prompt_tokens: int
    cached_tokens: int
    end: MatchEnd
    segments: list[Segment]
    parting: Parting | None


def explain_prompt(
    cache: PrefixCache,
    run: bytes,
    namespace: Namespace,
    mode: CacheMode = CacheMode.DEFAULT,
    *,
    was: MatchEnd | None = None,
    around: int = 24,
) -> Explanation:
    """Look at a prompt as a request for it would; changes and counts nothing.

    ``was``: how a request for it ended its match when it started; its parting is told then, as far
    as the branch is still there, although the prompt may be stored itself by now. ``around``:
    tokens to tell of each side of the parting. Nothing is told of any other namespace. Cost: that
    of a match, and a look at a node's children.
    """
    match = cache.match(run, namespace, mode)
    end = cache.explain(match, run)
    looked_at = end if was is None else was
    parts = None
    if mode.reads and looked_at.reason in _PARTS and looked_at.position < len(run) // TOKEN_BYTES:
        public = cache.public.covered_bytes(run, namespace) if cache.public else 0
        parts = parting(cache._tree, run, namespace, public, looked_at.position, around)
    shown = segments(cache._tree, match)
    return Explanation(len(run) // TOKEN_BYTES, match.num_tokens, end, shown, parts)
