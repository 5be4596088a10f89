"""The values of tokens that requests ask for, such as their log-probabilities, and the cache keeps.

::

    |  values known            |  nothing known                    |
    0                    num_valued_tokens                     num_prompt_tokens
    |  served from the cache, at most  |  computed                |
    0                          num_valued_tokens - 1

A token's value comes of what is computed for the token before it. So a request that wants all of
them may be served a token only where the value of the one after it is known, too.
"""

from __future__ import annotations

from typing import Any

from radix_engine.cache import (
    MISSING_PAYLOAD,
    TOKEN_BYTES,
    MatchView,
    PrefixIndex,
    first_known,
)
from scheduler.request import Request

Cache = PrefixIndex[Any, Any]


def valued(match: MatchView, request: Request, cache: Cache) -> MatchView:
    """The match of a request, cut off where the values that it wants are not known; unchanged where
    it wants none. Cost: O(tokens matched), and a second match where it is cut."""
    if request.payload is None or not match.num_tokens:
        return match
    known = request.num_valued_tokens + len(_more(match, request, cache)) // TOKEN_BYTES
    if known >= min(match.num_tokens + 1, request.num_prompt_tokens):
        return match
    cut: MatchView = cache.match(
        request.whole_run,
        request.namespace,
        request.mode,
        near=match,
        shared_tokens=len(request.tokens),
        most_tokens=known - 1,
    )
    return cut


def take_over(match: MatchView, request: Request, cache: Cache) -> None:
    """Before a request's match is leased: the values that the cache knows are known to it."""
    if request.payload is not None:
        request.payload += _more(match, request, cache)


def payload_of(request: Request, start: int, end: int) -> bytes:
    """What the cache is to keep with the request's tokens from ``start`` to ``end``: 4 bytes each,
    or nothing where no value is known."""
    if request.num_valued_tokens <= max(start, 1):
        return b""
    assert request.payload is not None
    known = bytes(request.payload[start * TOKEN_BYTES : end * TOKEN_BYTES])
    return known + MISSING_PAYLOAD * (end - start - len(known) // TOKEN_BYTES)


def _more(match: MatchView, request: Request, cache: Cache) -> bytes:
    """The values of the prompt's next tokens after those that are known to it."""
    start = request.num_valued_tokens * TOKEN_BYTES
    if start >= len(request.run):
        return b""
    stored = cache.payload(match, request.run)[start : len(request.run)]
    return stored[: first_known(stored) * TOKEN_BYTES]
