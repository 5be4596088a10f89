"""One step after the other, on the engine's thread: plan, compute, commit, hand the text out."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Protocol

import torch

from radix_engine.model.batch import Span
from radix_engine.model.sampling import not_finite
from radix_engine.model.sampling_draw import Drawer
from radix_engine.model.token_logprob import TokenLogprob
from radix_engine.parallel.errors import ParallelError
from scheduler import NewToken, Request, Scheduler, StepPlan
from server.active_answers import ActiveAnswers, describe
from server.answer import Answer
from server.beam_search import BeamSearch
from server.choosing import Chosen, choose, num_logits, rows_of, score_prompts
from server.debug.lives import Lives
from server.look_ahead import Flight, FollowingModel, can_fly, launch
from server.out_of_memory import compute, copy_rows, is_out_of_memory
from server.prompt_scores import learn_next
from server.step_times import COMMIT, COMPUTE, COPY, HAND_OUT, PLAN, SAMPLE, StepTimes

logger = logging.getLogger(__name__)

_NOT_FINITE = "the model's logits are not finite numbers"


class Forward(Protocol):
    """What a step needs of a model."""

    def copy_rows(self, copies: Sequence[tuple[int, int, int]]) -> None:
        """Copy the first rows of blocks: (source, target, rows)."""

    def forward(self, spans: list[Span]) -> torch.Tensor:
        """Float32 logits [rows that the spans want, vocabulary]."""


class Steps:
    """The steps that bring on the answers that are ``active``.

    ``following``: the model, where a step of it is computed while the next one is planned.
    ``drawer`` draws random tokens; None: torch does. ``times``: where their time goes. ``lives``:
    what has happened to recent requests.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        model: Forward,
        following: FollowingModel | None = None,
        drawer: Drawer | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._model = model
        self._following = following
        self._drawer = drawer
        self._flight: Flight | None = None
        self.active = ActiveAnswers(scheduler)
        self.times = StepTimes()
        self.lives = Lives()
        self._known_problem: str | None = None

    @property
    def has_work(self) -> bool:
        """Whether a step has anything to do."""
        return self._scheduler.has_work or self._flight is not None

    def step(self) -> None:
        """One step. Whatever goes wrong ends the requests it concerns, never the thread; save a
        ParallelError, which is passed on: the model is lost."""
        affected: list[Request] | None = None
        lap = self.times.lap
        try:
            plan = self._scheduler.plan(time.monotonic())
            if not (plan.spans or plan.ended or plan.preempted or self._flight):
                raise RuntimeError("no request can make progress")
            affected = [span.request for span in plan.spans]
            self.lives.planned(plan)
            plan = self._without_ended(plan)
            lap(PLAN)
            if plan.copies:  # branches forked off before this step: also if it computes nothing
                copy_rows(self._model.copy_rows, plan.copies)
                lap(COPY)
            flight = self._take_off(plan)
            if flight is not None:
                lap(COMPUTE)
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
                plan, chosen = compute(plan, self._compute, self.active.fail)
                lap(SAMPLE)
                results = self._scheduler.commit(plan, chosen.tokens)
        except ParallelError:
            raise
        except Exception as error:
            logger.exception("a step failed")
            if affected is None:
                self.active.end_all("error", describe(error))
            else:
                self.active.fail(affected, describe(error))
            lap(HAND_OUT)
            return
        self._check_books()
        lap(COMMIT)
        self._hand_out(results, chosen)
        lap(HAND_OUT)

    def _take_off(self, plan: StepPlan) -> Flight | None:
        """Launch a step behind the one in flight; None where that has to land first."""
        active = self.active
        if self._following is None or not can_fly(plan.spans, active.answers, active.searches):
            return None
        try:
            return launch(plan, self._following, active.answers, self._flight, self._drawer)
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
            self.times.lap(COMPUTE)
            # Those who were sent back meanwhile may have read what these computed.
            self.active.fail([r for r in broken if self._scheduler.awaits(r)], _NOT_FINITE)
            plan = flight.plan.still_running
            results = self._scheduler.commit(plan, [tokens[s.request] for s in plan.sampling])
        except ParallelError:
            raise
        except Exception as error:
            logger.exception("a step failed")
            self.active.fail([span.request for span in flight.plan.spans], describe(error))
            if self._scheduler.is_ahead:
                self._scheduler.commit(StepPlan(()), [])  # nothing came of it
            return
        self._check_books()
        self.times.lap(COMMIT)
        self._hand_out(results, Chosen())
        self.times.lap(HAND_OUT)

    def _hand_out(self, results: Sequence[NewToken], chosen: Chosen) -> None:
        """Bring a step's tokens to those who asked for them."""
        for new in results:
            answer = self.active.answers.get(new.request.request_id)
            if answer is not None:  # its receiver may have failed with another of its answers
                with self.active.guard(answer.asked_id, answer):
                    self._deliver(answer, new, chosen.logprobs.get(new.request.request_id))
        for request in chosen.done:
            self._end_after_prompt(request)
        for search in chosen.searches:
            if search.is_ready:
                with self.active.guard(search.asked_id):
                    self._advance(search)

    def _without_ended(self, plan: StepPlan) -> StepPlan:
        """Tell those whose requests the scheduler has ended; what is left of the plan."""
        if not plan.ended:
            return plan
        cache = self._scheduler.cache
        room = cache.pool.num_blocks * cache.block_size
        for request, reason in plan.ended:
            answer = self.active.answers.get(request.request_id)
            if reason == "deadline" and answer is not None and request.num_new_tokens:
                self.active.end_answer(answer, "length")
            elif reason == "deadline":
                self.active.fail([request], "the deadline has passed, and there is no answer yet")
            else:
                self.active.fail(
                    [request],
                    f"the answer outgrew the KV memory of {room} tokens; ask for a shorter one, or "
                    "start the server with a larger --kv-memory",
                )
        return plan.still_running

    def _compute(self, plan: StepPlan) -> tuple[StepPlan, Chosen]:
        """Run the model and choose tokens. Returns the plan without requests that failed alone.

        May be called again, for all or a part, where it failed.
        """
        counts = [num_logits(span, self.active.answers) for span in plan.spans]
        logits = self._model.forward(
            [
                Span(span.tokens, span.start, span.request.block_table, count)
                for span, count in zip(plan.spans, counts, strict=True)
            ]
        )
        self.times.lap(COMPUTE)
        rows = rows_of(plan.spans, counts)
        broken = not_finite(logits)
        if broken:
            failed = [r.span.request for r in rows if any(r.first <= b <= r.last for b in broken)]
            self.active.fail(failed, _NOT_FINITE)
            # Others may have stood on what these computed; they were sent back to start again.
            plan = plan.still_running
            left = {span.request for span in plan.spans}
            rows = [each for each in rows if each.span.request in left]
        score_prompts(rows, logits, self.active.answers)
        active = self.active
        return plan, choose(rows, logits, active.answers, active.searches, self._drawer)

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
        learn_next(new.request, logprob)
        if answer.push(new.token, new.finish_reason, logprob):
            self._scheduler.finish(new.request)
        if answer.abandoned:
            self.active.end(answer.asked_id, "abort")
        elif answer.ended:
            self.active.forget(answer)

    def _end_after_prompt(self, request: Request) -> None:
        """The request's prompt is computed, and no answer is wanted."""
        # Branches first: they would go on without the one that they are to fork off.
        for each in (*reversed(request.branches), request):
            answer = self.active.answers.get(each.request_id)
            if answer is not None:
                with self.active.guard(answer.asked_id, answer):
                    answer.prompt_is_computed()
                    self._scheduler.finish(each)
                    self.active.end_answer(answer, "length")

    def _advance(self, search: BeamSearch) -> None:
        for beam in search.beams:
            del self.active.searches[beam.request_id]
        try:
            search.advance(self._scheduler)
        finally:
            for beam in search.beams:
                self.active.searches[beam.request_id] = search
        if search.ended:
            self.active.forget_search(search)
