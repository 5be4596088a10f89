"""One request's answer on its way to whoever asked: tokens in, pieces of text out."""

from __future__ import annotations

import logging
from collections.abc import Callable

from radix_engine.model.penalties import TokenCounts
from radix_engine.model.sampling import SampleRow
from radix_engine.model.sampling_params import SamplingParams
from radix_engine.model.token_logprob import TokenLogprob
from scheduler import Request
from server.after_prompt import AfterPrompt
from server.answer_text import AnswerText
from server.constrained.next_tokens import NextTokens
from server.detokenizer import Detokenizer
from server.generation_params import GenerationParams
from server.outputs import Output, Usage
from server.prompt_scores import PromptScores

logger = logging.getLogger(__name__)


class Answer:
    """Joins a scheduler's request with its text, its sampling and its receiver.

    ``on_output`` is called on the engine's thread; its last call, and only that, has a finish
    reason. ``sampling`` and ``seed`` are the resolved ones. ``counts``: the prompt's tokens, where
    the sampling wants to know; the answer's are added here. ``scores``: the prompt's
    log-probabilities, and ``after``: what is to be done once it is computed, which all answers to
    it share. ``next_tokens``: what may come at all; None: anything. ``stop_tokens``: the request's
    that are not the model's own. ``asked_id`` and ``index``: whoever asked knows it as this
    request's answer number so and so; by default the only one.
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
        after: AfterPrompt | None = None,
        next_tokens: NextTokens | None = None,
        stop_tokens: frozenset[int] = frozenset(),
    ) -> None:
        self.request = request
        self.asked_id = request.request_id if asked_id is None else asked_id
        self._index = index
        self._sampling = sampling
        self._seed = seed
        self._text = AnswerText(detokenizer, params, stop_tokens)
        self._next_tokens = NextTokens() if next_tokens is None else next_tokens
        self._on_output = on_output
        self._counts = counts
        self._begun = False
        self.scores = scores
        self._after = after
        self.logprobs = params.logprobs
        self.wants_tokens = params.max_tokens > 0
        self.ended = False
        self.abandoned = False  # its receiver has failed: nobody wants the rest

    @property
    def changes_logits(self) -> bool:
        """Whether the next token is chosen from other logits than the model's own, in which case
        it may matter which tokens came before."""
        free = self._next_tokens.are_free(self.request.num_new_tokens)
        return self._sampling.changes_logits or not free

    def sample_row(self) -> SampleRow:
        """How to choose the next token; good until the answer gets it."""
        count = self.request.num_new_tokens
        allowed = self._next_tokens.allowed(count)
        return SampleRow(self._sampling, self._seed, count, self._counts, allowed)

    def push(
        self, token: int, finish_reason: str | None, logprob: TokenLogprob | None = None
    ) -> bool:
        """Send a new token's text. True when the answer ends here, though the scheduler does not
        know it: by a stop string, or because it cannot follow its constraint any further.

        With ``stop`` the token is one that ends the answer.
        """
        if self._after is not None:
            self._after.run()
        if self._counts is not None:
            self._counts.add(token)
        problem = self._next_tokens.take(token)
        if problem is not None:
            self._send("", (), "error", problem)
            return True
        text, stopped = self._text.push(token, self.request.num_new_tokens, finish_reason)
        if stopped:
            finish_reason = "stop"
        self._send(text, (token,), finish_reason, logprob=logprob)
        return stopped

    def prompt_is_computed(self) -> None:
        """The prompt is computed, and no token is wanted; for others ``push`` does this."""
        if self._after is not None:
            self._after.run()

    def end(self, finish_reason: str, error: str | None = None) -> None:
        """End the answer without a further token (``abort``, ``error`` or ``length``); once."""
        if self.ended:
            return
        text = self._text.rest(self.request.num_new_tokens) if error is None else ""
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
            None if self._after is None else self._after.retained,
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
            prompt_logprobs=None if scores is None else scores.scored(request),
            admitted_s=request.admitted_s,
            stop_reason=self._text.stop_reason,
        )
        try:
            self._on_output(output)
        except Exception:  # whoever asked must not be able to stop the others' answers
            self.abandoned = True
            logger.exception("the receiver of request %d failed", request.request_id)
