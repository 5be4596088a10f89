"""What changes logits before a token is chosen: a bias, and penalties for tokens seen before."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from radix_engine.model.sampling_params import SamplingParams


class TokenCounts:
    """The distinct tokens of a prompt and its answer, and how often the answer has each.

    Kept as the answer grows. Give no ``prompt`` where only the answer's tokens matter. Memory:
    about 100 bytes a distinct token.
    """

    __slots__ = ("_counts", "_places", "_tokens")

    def __init__(self, prompt: Iterable[int] = ()) -> None:
        self._tokens = array("q", dict.fromkeys(prompt))
        self._counts = array("q", bytes(8 * len(self._tokens)))
        self._places = {token: place for place, token in enumerate(self._tokens)}

    def add(self, token: int) -> None:
        """The answer has one token more. Cost: O(1)."""
        place = self._places.setdefault(token, len(self._tokens))
        if place == len(self._tokens):
            self._tokens.append(token)
            self._counts.append(1)
        else:
            self._counts[place] += 1

    def copy(self) -> TokenCounts:
        """The same counts, for another answer to the same prompt."""
        other = TokenCounts()
        other._tokens, other._counts = self._tokens[:], self._counts[:]
        other._places = self._places.copy()
        return other

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def tokens(self) -> array[int]:
        """The distinct tokens, in the order in which they first came."""
        return self._tokens

    @property
    def counts(self) -> array[int]:
        """How often the answer has each of ``tokens``."""
        return self._counts


class Change(NamedTuple):
    """What one row of logits needs."""

    params: SamplingParams
    counts: TokenCounts


def change_logits(logits: torch.Tensor, changes: Sequence[Change]) -> None:
    """Add each row's bias to its ``logits`` (float32, [rows, vocabulary]), then apply its
    repetition, frequency and presence penalties, all in place.

    A value is computed in float64 and rounded once for the bias and once for the penalties.
    Cost: the tokens with a bias and the distinct tokens that were seen, not the vocabulary.
    """
    biases = [each.params.logit_bias for each in changes]
    rows = [row for row, bias in enumerate(biases) for _ in bias]
    if rows:
        tokens = [token for bias in biases for token in bias]
        added = [value for bias in biases for value in bias.values()]
        at = _places(logits, np.array(rows), np.array(tokens))
        values = logits[at].to(torch.float64) + _on(logits, np.array(added, np.float64))
        logits[at] = values.to(torch.float32)
    seen = [(row, each) for row, each in enumerate(changes) if each.params.penalizes]
    if any(len(each.counts) for _, each in seen):
        _penalize(logits, [row for row, _ in seen], [each for _, each in seen])


def _penalize(logits: torch.Tensor, rows: Sequence[int], changes: Sequence[Change]) -> None:
    sizes = [len(each.counts) for each in changes]

    def spread(values: Sequence[float]) -> torch.Tensor:
        return _on(logits, np.repeat(np.array(values, np.float64), sizes))

    tokens = np.concatenate([np.array(each.counts.tokens, np.int64) for each in changes])
    at = _places(logits, np.repeat(np.array(rows), sizes), tokens)
    counts = _on(logits, np.concatenate([np.array(each.counts.counts) for each in changes]))
    values = logits[at].to(torch.float64)
    repetition = spread([each.params.repetition_penalty for each in changes])
    values = torch.where(values > 0, values / repetition, values * repetition)
    values -= spread([each.params.frequency_penalty for each in changes]) * counts
    values -= spread([each.params.presence_penalty for each in changes]) * (counts > 0)
    logits[at] = values.to(torch.float32)


def _places(
    logits: torch.Tensor, rows: npt.NDArray[np.int64], tokens: npt.NDArray[np.int64]
) -> tuple[torch.Tensor, torch.Tensor]:
    return _on(logits, rows), _on(logits, tokens)


def _on(logits: torch.Tensor, values: npt.NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(values).to(logits.device)
