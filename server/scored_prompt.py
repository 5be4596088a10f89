"""A prompt's log-probabilities on their way to whoever asked, who makes entries of them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import repeat
from struct import unpack
from typing import overload

from radix_engine.model.token_logprob import TokenLogprob

Likeliest = tuple[tuple[int, float], ...]
Entry = TokenLogprob | None


class ScoredPrompt(Sequence[Entry]):
    """One entry a token, None for the first. ``values``: float32, 4 bytes each, of which the first
    tells nothing. ``likeliest``: those that go with each token; None: no token has any.

    The entries are made when somebody looks: for a long prompt that takes tens of milliseconds, in
    which the engine's thread, where this comes from, would stop everybody's answers.
    """

    def __init__(
        self, tokens: array[int], values: bytes, likeliest: Sequence[Likeliest] | None
    ) -> None:
        self._tokens = tokens
        self._values = values
        self._likeliest = likeliest

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """All of them. Cost: O(tokens), the first time."""
        count = len(self._tokens)
        values = unpack(f"{count}f", self._values)
        likeliest = repeat((), count) if self._likeliest is None else self._likeliest
        known = map(TokenLogprob._make, zip(self._tokens, values, likeliest, strict=True))
        next(known)
        return (None, *known)

    def __len__(self) -> int:
        return len(self._tokens)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    @overload
    def __getitem__(self, place: int) -> Entry: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Entry, ...]: ...
    def __getitem__(self, place: int | slice) -> Entry | tuple[Entry, ...]:
        return self.entries[place]
