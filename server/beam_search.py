"""A prompt that is answered by beam search: each beam is a request of the scheduler.

::

    step      logits of all beams -> `Beams` chooses -> the scheduler resumes those that go on
              A --+-- A "the"                           A goes on with its best token,
                  +-- A' "a"       (forks off A)        a branch forks off for each further one,
              B       (ends)                            a beam without one gives its blocks back

A beam whose logits are there is undecided until those of all are: one may come later, because it
was preempted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

import torch

from scheduler import Request, Scheduler
from server.after_prompt import AfterPrompt
from server.beams import BeamRules, Beams, NextToken
from server.branches import branch_of
from server.detokenizer import Detokenizer
from server.outputs import Output, Usage

logger = logging.getLogger(__name__)


class BeamSearch:
    """One search, on the engine's thread. ``request`` computes the prompt; its branches keep places
    for the other beams. ``detokenizers``: one for each of the answers that are wanted. ``after``:
    what is to be done once the prompt is computed.

    ``on_output`` is called at the end, once for each answer, the best first.
    """

    def __init__(
        self,
        request: Request,
        rules: BeamRules,
        detokenizers: Sequence[Detokenizer],
        on_output: Callable[[Output], None],
        next_id: Callable[[], int],
        after: AfterPrompt | None = None,
    ) -> None:
        self.asked_id = request.request_id
        self.ended = False
        self.beams = [request]  # those that go on, best first
        self._spares = list(request.branches)  # for the first step's further beams
        self._prompt = request
        self._choosing = Beams(rules)
        self._likeliest: dict[int, list[tuple[int, float]]] = {}  # next tokens, by request
        self._detokenizers = detokenizers
        self._sent = 0
        self._on_output = on_output
        self._next_id = next_id
        self._after = after

    @property
    def requests(self) -> list[Request]:
        """All that the scheduler may know. To be ended in this order: what is to fork off a request
        would go on without it."""
        return [*reversed(self._spares), *self.beams]

    @property
    def is_ready(self) -> bool:
        """Whether the logits of all beams are there."""
        return not self.ended and len(self._likeliest) == len(self.beams)

    def take(self, beams: Iterable[Request], logits: torch.Tensor) -> None:
        """The logits [beams, vocabulary] after the last token of each of these beams."""
        count = min(self._choosing.rules.continuations, logits.shape[1])
        values, tokens = logits.topk(count)
        exact = logits.to(torch.float64)
        log_probs = values.to(torch.float64) - exact.logsumexp(dim=-1, keepdim=True)
        for beam, ids, each in zip(beams, tokens.tolist(), log_probs.tolist(), strict=True):
            self._likeliest[beam.request_id] = list(zip(ids, each, strict=True))

    def advance(self, scheduler: Scheduler) -> None:
        """Choose the next beams once `is_ready`, or send the answers when the search is over."""
        if self._after is not None:
            self._after.run()
        chosen = self._choosing.step([self._likeliest[beam.request_id] for beam in self.beams])
        self._likeliest.clear()
        if chosen:
            self._go_on(chosen, scheduler)
            return
        for request in self.requests:
            scheduler.finish(request)
        self._send_answers()

    def end(self, finish_reason: str, error: str | None = None) -> None:
        """End all answers that were not sent yet, without text."""
        self.ended = True
        while self._sent < len(self._detokenizers):
            self._send("", (), finish_reason, error=error)

    def _go_on(self, chosen: Sequence[NextToken], scheduler: Scheduler) -> None:
        before, self.beams = self.beams, []
        tokens: dict[int, list[int]] = {}
        for place, token in chosen:
            own = tokens.setdefault(place, [])
            self.beams.append(self._branch(before[place]) if own else before[place])
            own.append(token)
        # What ends gives its blocks back first.
        for request in [*self._spares, *before]:
            if request not in self.beams:
                scheduler.finish(request)
        self._spares.clear()
        for place, own in tokens.items():
            scheduler.resume(before[place], own)

    def _branch(self, beam: Request) -> Request:
        """A request that forks off this beam."""
        if self._spares:
            return self._spares.pop(0)
        branch = branch_of(beam, self._next_id())
        beam.branches.append(branch)
        return branch

    def _send_answers(self) -> None:
        self.ended = True
        for kept in self._choosing.kept[: len(self._detokenizers)]:
            tokens, detokenizer = kept.beam.tokens, self._detokenizers[self._sent]
            shown = tokens[:-1] if kept.finish_reason == "stop" else tokens
            text = "".join(map(detokenizer.push, shown)) + detokenizer.flush()
            self._send(text, tokens, kept.finish_reason, score=kept.score)

    def _send(
        self,
        text: str,
        tokens: tuple[int, ...],
        finish_reason: str,
        *,
        score: float | None = None,
        error: str | None = None,
    ) -> None:
        prompt, index = self._prompt, self._sent
        self._sent += 1
        usage = Usage(
            prompt.num_prompt_tokens,
            len(tokens),
            prompt.cached_tokens or 0,
            prompt.match_end,
            None if self._after is None else self._after.retained,
        )
        output = Output(
            self.asked_id,
            text,
            tokens,
            finish_reason,
            usage,
            error,
            index=index,
            score=score,
            admitted_s=prompt.admitted_s,
        )
        try:
            self._on_output(output)
        except Exception:  # whoever asked must not be able to stop the others' answers
            logger.exception("the receiver of request %d failed", self.asked_id)
