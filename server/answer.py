"""One request's answer on its way to whoever asked: tokens in, pieces of text out."""

from __future__ import annotations

import logging
from collections.abc import Callable

from radix_engine.model.logprobs import TokenLogprob
from radix_engine.model.penalties import TokenCounts
from radix_engine.model.sampling import SampleRow
from radix_engine.model.sampling_params import SamplingParams
from scheduler import Request
from server.outputs import GenerationParams, Output, Usage
from server.prompt_scores import PromptScores
from server.stop_strings import StopStrings
from server.text import Detokenizer

logger = logging.getLogger(__name__)


class Answer:
    """Joins a scheduler's request with its text, its sampling and its receiver.

    ``on_output`` is called on the engine's thread; its last call, and only that, has a finish
    reason. ``sampling`` and ``seed`` are the resolved ones. ``counts``: the prompt's tokens, where
    the sampling wants to know; the answer's are added here. ``scores``: the prompt's
    log-probabilities, which all answers to it share. ``asked_id`` and ``index``: whoever asked
    knows it as this request's answer number so and so; by default the only one.
    """

    def __init__(
        self,
        request: Request,
        params: GenerationParams,
        sampling: SamplingParams,
        seed: int,
        detokenizer: Detokenizer,
        on_output: Callable[[Output], None],
        asked_id: int | None = None,
        index: int = 0,
        *,
        counts: TokenCounts | None = None,
        scores: PromptScores | None = None,
    ) -> None:
        self.request = request
        self.asked_id = request.request_id if asked_id is None else asked_id
        self._index = index
        self._sampling = sampling
        self._seed = seed
        self._detokenizer = detokenizer
        self._stops = StopStrings(params.stop)
        self._on_output = on_output
        self._counts = counts
        self._begun = False
        self.scores = scores
        self.logprobs = params.logprobs
        self.wants_tokens = params.max_tokens > 0
        self.ended = False
        self.abandoned = False  # its receiver has failed: nobody wants the rest

    @property
    def changes_logits(self) -> bool:
        """Whether the next token's choice depends on which tokens came before."""
        return self._sampling.changes_logits

    def sample_row(self) -> SampleRow:
        """How to choose the next token."""
        return SampleRow(self._sampling, self._seed, self.request.num_new_tokens, self._counts)

    def push(
        self, token: int, finish_reason: str | None, logprob: TokenLogprob | None = None
    ) -> bool:
        """Send a new token's text. True when a stop string ends the answer here.

        With ``stop`` the token is an end-of-text token and no part of the text.
        """
        if self._counts is not None:
            self._counts.add(token)
        piece = "" if finish_reason == "stop" else self._detokenizer.push(token)
        if finish_reason is not None:
            piece += self._detokenizer.flush()
        text, stopped = self._stops.push(piece)
        if stopped:
            finish_reason = "stop"
        elif finish_reason is not None:
            text += self._stops.flush()
        self._send(text, (token,), finish_reason, logprob=logprob)
        return stopped

    def end(self, finish_reason: str, error: str | None = None) -> None:
        """End the answer without a further token (``abort``, ``error`` or ``length``); once."""
        if self.ended:
            return
        text = ""
        if error is None:
            text, stopped = self._stops.push(self._detokenizer.flush())
            if not stopped:
                text += self._stops.flush()
        self._send(text, (), finish_reason, error)

    def _send(
        self,
        text: str,
        tokens: tuple[int, ...],
        finish_reason: str | None,
        error: str | None = None,
        *,
        logprob: TokenLogprob | None = None,
    ) -> None:
        self.ended = finish_reason is not None
        request = self.request
        usage = Usage(
            request.num_prompt_tokens,
            request.num_new_tokens,
            request.cached_tokens or 0,
            request.match_end,
        )
        scores = self.scores if not self._begun else None
        self._begun = True
        output = Output(
            self.asked_id,
            text,
            tokens,
            finish_reason,
            usage,
            error,
            self._index,
            logprobs=None if self.logprobs is None else () if logprob is None else (logprob,),
            prompt_logprobs=scores.entries if scores is not None and scores.is_complete else None,
        )
        try:
            self._on_output(output)
        except Exception:  # whoever asked must not be able to stop the others' answers
            self.abandoned = True
            logger.exception("the receiver of request %d failed", request.request_id)
