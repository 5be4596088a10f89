"""Beam search: which continuations are followed, which answers are kept, and when it is over.

Numbers only; the way it is usually done, so that its answers are those of other engines. Each step
ranks the continuations of all beams by the sum of their log-probabilities. Of the best ``width``,
those that end are kept as answers. The best ``width`` that do not end are the next beams.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from typing import Literal, NamedTuple


@dataclass(frozen=True, slots=True)
class BeamRules:
    """How to search: see `server.generation_params.GenerationParams`. ``width``: beams, and answers
    kept; ``end_tokens`` end an answer, which has at most ``max_tokens`` tokens."""

    width: int
    max_tokens: int
    end_tokens: frozenset[int]
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False

    @property
    def continuations(self) -> int:
        """How many of each beam's likeliest next tokens a step must be given: with so many, as many
        as there are beams go on even if all others end."""
        return self.width * (1 + max(1, len(self.end_tokens)))

    def score(self, log_prob: float, length: int) -> float:
        """What answers of different lengths are compared by."""
        return log_prob / math.pow(length, self.length_penalty)


@dataclass(frozen=True, slots=True)
class Beam:
    """An answer so far: one token more than ``before``, ``length`` in all. ``log_prob``: the sum of
    its tokens'."""

    before: Beam | None
    token: int
    log_prob: float
    length: int

    @property
    def tokens(self) -> tuple[int, ...]:
        """All tokens. Cost: their number."""
        tokens = []
        beam = self
        while beam.before is not None:
            tokens.append(beam.token)
            beam = beam.before
        return tuple(reversed(tokens))


_EMPTY = Beam(None, -1, 0.0, 0)


class Kept(NamedTuple):
    """A finished answer."""

    beam: Beam
    score: float
    finish_reason: str


class NextToken(NamedTuple):
    """A new beam: the old one at place ``beam``, with one token more."""

    beam: int
    token: int


class Beams:
    """One search. ``kept``: the answers so far, best first; final once it is over."""

    def __init__(self, rules: BeamRules) -> None:
        self.rules = rules
        self.kept: list[Kept] = []
        self._beams = [_EMPTY]

    def step(self, likeliest: Sequence[Sequence[tuple[int, float]]]) -> list[NextToken]:
        """Choose among each beam's likeliest next tokens with their log-probabilities, likeliest
        first, given in the beams' order. Returns the next beams, best first; none when the search
        is over. Cost: O(width log width), whatever the vocabulary."""
        rules = self.rules
        going_on: list[Beam] = []
        chosen: list[NextToken] = []
        for rank, (place, beam) in enumerate(self._best(likeliest)):
            ends = beam.token in rules.end_tokens
            if ends or beam.length == rules.max_tokens:
                if rank < rules.width:
                    self._keep(beam, "stop" if ends else "length")
            elif len(going_on) < rules.width:
                going_on.append(beam)
                chosen.append(NextToken(place, beam.token))
        self._beams = going_on
        return [] if self._is_over() else chosen

    def _best(self, likeliest: Sequence[Sequence[tuple[int, float]]]) -> Iterator[tuple[int, Beam]]:
        """The best continuations with the places of their beams; of equals the better beam's."""

        def longer(place: int, before: Beam) -> Iterator[tuple[int, Beam]]:
            for token, log_prob in likeliest[place]:
                yield place, Beam(before, token, before.log_prob + log_prob, before.length + 1)

        if len(likeliest) != len(self._beams):
            raise ValueError(f"{len(likeliest)} lists came for {len(self._beams)} beams")
        streams = [longer(place, beam) for place, beam in enumerate(self._beams)]
        return islice(merge(*streams, key=lambda each: -each[1].log_prob), self.rules.continuations)

    def _keep(self, beam: Beam, reason: str) -> None:
        self.kept.append(Kept(beam, self.rules.score(beam.log_prob, beam.length), reason))
        self.kept.sort(key=lambda kept: -kept.score)
        del self.kept[self.rules.width :]

    def _is_over(self) -> bool:
        """Whether the answers that are kept are the ones."""
        rules = self.rules
        if not self._beams:
            return True
        if len(self.kept) < rules.width:
            return False
        if rules.early_stopping is True:
            return True
        best = self._beams[0]
        hopeful = rules.early_stopping == "never" and rules.length_penalty > 0
        length = rules.max_tokens if hopeful else best.length
        return rules.score(best.log_prob, length) <= self.kept[-1].score
