"""The log-probabilities of a prompt's tokens, gathered while the prompt is computed."""

from __future__ import annotations

import torch

from radix_engine.cache import TOKEN_BYTES
from radix_engine.model.logprobs import token_logprobs
from radix_engine.model.token_logprob import TokenLogprob
from scheduler import Request
from server.scored_prompt import Likeliest, ScoredPrompt


class PromptScores:
    """One prompt's, for all answers to it. ``top``: how many of the likeliest tokens go with each.

    The logits after a token are about the next one. So nothing is known of the first, and the last
    one's are the answer's. What is known of the tokens themselves is with the request, which also
    has it where the cache served them (with ``top`` 0). Each comes once and in order, also where
    the prompt is computed in chunks, or again after a preemption.
    """

    def __init__(self, top: int) -> None:
        self._top = top
        self._likeliest: list[Likeliest] = [()]  # unless there are none to be told
        self._scored: ScoredPrompt | None = None

    def is_complete(self, request: Request) -> bool:
        """Whether all of them are known."""
        return request.num_valued_tokens >= request.num_prompt_tokens

    def scored(self, request: Request) -> ScoredPrompt | None:
        """All of them, for all answers; None before they are known."""
        if self._scored is None and self.is_complete(request):
            assert request.payload is not None
            count = request.num_prompt_tokens
            values = bytes(request.payload[: count * TOKEN_BYTES])
            likeliest = self._likeliest if self._top else None
            self._scored = ScoredPrompt(request.tokens[:count], values, likeliest)
        return self._scored

    def num_logits(self, request: Request, start: int, count: int) -> int:
        """After how many of the last tokens of a span of its prompt logits are missing."""
        if self.is_complete(request):
            return 0
        return max(0, start + count - max(start, request.num_valued_tokens - 1))

    def take(self, request: Request, end: int, logits: torch.Tensor) -> None:
        """The logits [rows, vocabulary] after the last tokens before position ``end``: as many as
        `num_logits` said."""
        first = request.num_valued_tokens
        if end - len(logits) != first - 1:
            raise RuntimeError(f"logits from position {end - len(logits)} on, not {first - 1}")
        tokens = request.tokens[first : min(end + 1, request.num_prompt_tokens)]
        found = token_logprobs(logits[: len(tokens)], tokens, [self._top] * len(tokens))
        request.learn(each.logprob for each in found)
        if self._top:
            self._likeliest += [each.top for each in found]


def learn_next(request: Request, logprob: TokenLogprob | None) -> None:
    """Keep the log-probability of a request's newest token, where it follows on what is known."""
    if logprob is not None and request.num_valued_tokens == len(request.tokens) - 1:
        request.learn((logprob.logprob,))
