"""One step after the other, on the engine's thread: plan, compute, commit, hand the text out."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch

from radix_engine.model.batch import Span
from radix_engine.model.logprobs import TokenLogprob
from radix_engine.model.sampling import not_finite
from scheduler import NewToken, Request, Scheduler, StepPlan
from server.answer import Answer
from server.beam_search import BeamSearch
from server.choosing import Chosen, choose, num_logits, rows_of, score_prompts
from server.look_ahead import Flight, FollowingModel, can_fly, launch
from server.out_of_memory import compute, copy_rows, is_out_of_memory

logger = logging.getLogger(__name__)

_NOT_FINITE = "the model's logits are not finite numbers"


class Forward(Protocol):
    """What a step needs of a model."""

    def copy_rows(self, copies: Sequence[tuple[int, int, int]]) -> None:
        """Copy the first rows of blocks: (source, target, rows)."""

    def forward(self, spans: list[Span]) -> torch.Tensor:
        """Float32 logits [rows that the spans want, vocabulary]."""


class Steps:
    """The answers that run, and the steps that bring them on.

    A request of the scheduler belongs to one answer, or to a beam search, which has several.
    """

    def __init__(
        self, scheduler: Scheduler, model: Forward, following: FollowingModel | None = None
    ) -> None:
        self._scheduler = scheduler
        self._model = model
        self._following = following
        self._flight: Flight | None = None
        self._answers: dict[int, Answer] = {}  # by request
        self._searches: dict[int, BeamSearch] = {}  # by request, of each beam
        self._asked: dict[int, list[Answer] | BeamSearch] = {}  # by the id that was asked for
        self._known_problem: str | None = None

    @property
    def is_idle(self) -> bool:
        """Whether all answers have ended."""
        return not self._asked

    @property
    def has_work(self) -> bool:
        """Whether a step has anything to do."""
        return self._scheduler.has_work or self._flight is not None

    def add(self, answers: Sequence[Answer]) -> None:
        """Queue the answers to one prompt: their requests are the first's branches."""
        first = answers[0]
        self._asked[first.asked_id] = list(answers)
        for answer in answers:
            self._answers[answer.request.request_id] = answer
        self._submit(first.request, first.asked_id)

    def add_search(self, search: BeamSearch) -> None:
        """Queue a beam search."""
        self._asked[search.asked_id] = search
        self._searches[search.beams[0].request_id] = search
        self._submit(search.beams[0], search.asked_id)

    def end(self, asked_id: int, reason: str, error: str | None = None) -> None:
        """End all answers of a request, in any state. Unknown ids are ignored."""
        asked = self._asked.get(asked_id)
        if isinstance(asked, BeamSearch):
            self._end_search(asked, reason, error)
        else:
            # Branches first: they would go on without the one that they are to fork off.
            for answer in list(reversed(asked or [])):
                self._end_answer(answer, reason, error)

    def end_all(self, reason: str, error: str | None = None) -> None:
        """End everything."""
        for asked_id in list(self._asked):
            self.end(asked_id, reason, error)

    def step(self) -> None:
        """One step. Whatever goes wrong ends the requests it concerns, never the thread."""
        affected: list[Request] | None = None
        try:
            plan = self._scheduler.plan(time.monotonic())
            if not (plan.spans or plan.ended or plan.preempted or self._flight):
                raise RuntimeError("no request can make progress")
            affected = [span.request for span in plan.spans]
            plan = self._without_ended(plan)
            if plan.copies:  # branches forked off before this step: also if it computes nothing
                copy_rows(self._model.copy_rows, plan.copies)
            flight = self._take_off(plan)
            self._land(self._flight)
            if flight is not None:
                if not self._scheduler.go_ahead(plan):
                    self._land(flight)
                    return
                self._flight = flight
                return
            results: list[NewToken] = []
            chosen = Chosen()
            plan = plan.still_running
            if plan.spans:
                plan, chosen = compute(plan, self._compute, self._fail)
                results = self._scheduler.commit(plan, chosen.tokens)
        except Exception as error:
            logger.exception("a step failed")
            if affected is None:
                self.end_all("error", describe(error))
            else:
                self._fail(affected, describe(error))
            return
        self._check_books()
        self._hand_out(results, chosen)

    def _take_off(self, plan: StepPlan) -> Flight | None:
        """Launch a step behind the one in flight; None where that has to land first."""
        if self._following is None or not can_fly(plan.spans, self._answers, self._searches):
            return None
        try:
            return launch(plan, self._following, self._answers, self._flight)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        return None  # `compute` tries smaller parts

    def _land(self, flight: Flight | None) -> None:
        """Wait for a step that was launched, and hand out its tokens."""
        if flight is None:
            return
        self._flight = None
        try:
            tokens, broken = flight.wait()
            if broken:
                self._fail(broken, _NOT_FINITE)
            plan = flight.plan.still_running
            results = self._scheduler.commit(plan, [tokens[s.request] for s in plan.sampling])
        except Exception as error:
            logger.exception("a step failed")
            self._fail([span.request for span in flight.plan.spans], describe(error))
            self._scheduler.commit(StepPlan(()), [])  # nothing came of it
            return
        self._check_books()
        self._hand_out(results, Chosen())

    def _hand_out(self, results: Sequence[NewToken], chosen: Chosen) -> None:
        """Bring a step's tokens to those who asked for them."""
        for new in results:
            answer = self._answers.get(new.request.request_id)
            if answer is not None:  # its receiver may have failed with another of its answers
                with self._guard(answer.asked_id, answer):
                    self._deliver(answer, new, chosen.logprobs.get(new.request.request_id))
        for request in chosen.done:
            self._end_after_prompt(request)
        for search in chosen.searches:
            if search.is_ready:
                with self._guard(search.asked_id):
                    self._advance(search)

    def _submit(self, request: Request, asked_id: int) -> None:
        with self._guard(asked_id):
            self._scheduler.submit(request, time.monotonic())

    def _without_ended(self, plan: StepPlan) -> StepPlan:
        """Tell those whose requests the scheduler has ended; what is left of the plan."""
        if not plan.ended:
            return plan
        cache = self._scheduler.cache
        room = cache.pool.num_blocks * cache.block_size
        for request, reason in plan.ended:
            answer = self._answers.get(request.request_id)
            if reason == "deadline" and answer is not None and request.num_new_tokens:
                self._end_answer(answer, "length")
            elif reason == "deadline":
                self._fail([request], "the deadline has passed, and there is no answer yet")
            else:
                self._fail(
                    [request],
                    f"the answer outgrew the KV memory of {room} tokens; ask for a shorter one, or "
                    "start the server with a larger --kv-memory",
                )
        return plan.still_running

    def _compute(self, plan: StepPlan) -> tuple[StepPlan, Chosen]:
        """Run the model and choose tokens. Returns the plan without requests that failed alone.

        May be called again, for all or a part, where it failed.
        """
        counts = [num_logits(span, self._answers) for span in plan.spans]
        logits = self._model.forward(
            [
                Span(span.tokens, span.start, span.request.block_table, count)
                for span, count in zip(plan.spans, counts, strict=True)
            ]
        )
        rows = rows_of(plan.spans, counts)
        broken = not_finite(logits)
        if broken:
            failed = [r.span.request for r in rows if any(r.first <= b <= r.last for b in broken)]
            self._fail(failed, _NOT_FINITE)
            # Others may have stood on what these computed; they were sent back to start again.
            plan = plan.still_running
            left = {span.request for span in plan.spans}
            rows = [each for each in rows if each.span.request in left]
        score_prompts(rows, logits, self._answers)
        return plan, choose(rows, logits, self._answers, self._searches)

    def _check_books(self) -> None:
        """Whether every block still has one owner; what has not is set apart, and serving goes
        on."""
        problem = self._scheduler.sum_problem()
        if problem is None or problem == self._known_problem:
            return
        logger.critical("the cache's books are wrong: %s", problem)
        for line in self._scheduler.quarantine():
            logger.critical("quarantined: %s", line)
        self._known_problem = self._scheduler.sum_problem()

    def _deliver(self, answer: Answer, new: NewToken, logprob: TokenLogprob | None) -> None:
        if answer.push(new.token, new.finish_reason, logprob):
            self._scheduler.finish(new.request)
        if answer.abandoned:
            self.end(answer.asked_id, "abort")
        elif answer.ended:
            self._forget(answer)

    def _end_after_prompt(self, request: Request) -> None:
        """The request's prompt is computed, and no answer is wanted."""
        # Branches first: they would go on without the one that they are to fork off.
        for each in (*reversed(request.branches), request):
            answer = self._answers.get(each.request_id)
            if answer is not None:
                with self._guard(answer.asked_id, answer):
                    self._scheduler.finish(each)
                    self._end_answer(answer, "length")

    def _advance(self, search: BeamSearch) -> None:
        for beam in search.beams:
            del self._searches[beam.request_id]
        try:
            search.advance(self._scheduler)
        finally:
            for beam in search.beams:
                self._searches[beam.request_id] = search
        if search.ended:
            self._forget_search(search)

    # Ends

    @contextmanager
    def _guard(self, asked_id: int, answer: Answer | None = None) -> Iterator[None]:
        """What goes wrong in here ends this answer, or all that were asked for under an id."""
        try:
            yield
        except Exception as error:
            logger.exception("request %d failed", asked_id)
            if answer is None:
                self.end(asked_id, "error", describe(error))
            else:
                self._end_answer(answer, "error", describe(error))

    def _fail(self, requests: Iterable[Request], error: str) -> None:
        """End the answers of these requests, and of those that have not forked off them yet."""
        for request in requests:
            search = self._searches.get(request.request_id)
            if search is not None:
                self._end_search(search, "error", error)
                continue
            # Branches first: they would go on without the one that they are to fork off.
            for each in (*reversed(request.branches), request):
                answer = self._answers.get(each.request_id)
                if answer is not None:
                    self._end_answer(answer, "error", error)

    def _end_answer(self, answer: Answer, reason: str, error: str | None = None) -> None:
        self._forget(answer)
        self._abort(answer.request)
        try:
            answer.end(reason, error)
        except Exception as failure:
            logger.exception("request %d could not be ended cleanly", answer.asked_id)
            answer.end("error", describe(failure))  # this way touches no tokenizer

    def _end_search(self, search: BeamSearch, reason: str, error: str | None = None) -> None:
        self._forget_search(search)
        for request in search.requests:
            self._abort(request)
        search.end(reason, error)

    def _abort(self, request: Request) -> None:
        try:
            self._scheduler.abort(request)
        except Exception:
            logger.exception("request %d could not give its blocks back", request.request_id)

    def _forget(self, answer: Answer) -> None:
        if self._answers.pop(answer.request.request_id, None) is None:
            return
        asked = self._asked[answer.asked_id]
        assert isinstance(asked, list)
        asked.remove(answer)
        if not asked:
            del self._asked[answer.asked_id]

    def _forget_search(self, search: BeamSearch) -> None:
        self._asked.pop(search.asked_id, None)
        for beam in search.beams:
            self._searches.pop(beam.request_id, None)


def describe(error: BaseException) -> str:
    """An error in one line, for the answer that it ends."""
    return f"{type(error).__name__}: {error}"
