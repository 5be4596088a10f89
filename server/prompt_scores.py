"""The log-probabilities of a prompt's tokens, gathered while the prompt is computed."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from radix_engine.model.logprobs import TokenLogprob, token_logprobs
from server.outputs import PromptLogprobs


class PromptScores:
    """One prompt's, for all answers to it. ``top``: how many of the likeliest tokens go with each.

    The logits after a token are about the next one. So nothing is known of the first, and the last
    one's are the answer's. Entries come in order, each once, also where the prompt is computed in
    chunks, or again after a preemption.
    """

    def __init__(self, prompt: Sequence[int], top: int) -> None:
        self._prompt = prompt
        self._top = top
        self._entries: list[TokenLogprob | None] = [None]

    @property
    def is_complete(self) -> bool:
        """Whether all entries are there."""
        return len(self._entries) == len(self._prompt)

    @property
    def entries(self) -> PromptLogprobs:
        """Those so far."""
        return tuple(self._entries)

    def num_logits(self, start: int, count: int) -> int:
        """After how many of the last tokens of a span of the prompt logits are missing."""
        if self.is_complete:
            return 0
        return max(0, start + count - max(start, len(self._entries) - 1))

    def take(self, end: int, logits: torch.Tensor) -> None:
        """The logits [rows, vocabulary] after the last tokens before position ``end``: as many as
        `num_logits` said."""
        first = len(self._entries)
        if end - len(logits) != first - 1:
            raise RuntimeError(f"logits from position {end - len(logits)} on, not {first - 1}")
        tokens = self._prompt[first : end + 1]
        self._entries += token_logprobs(
            logits[: len(tokens)], list(tokens), [self._top] * len(tokens)
        )
