"""The engine's thread: takes commands, plans a step, computes it, commits it, hands the text out.

Everything below it (scheduler, cache, model) belongs to this thread alone. Others reach it through
``post`` and ``call``, which are carried out between two steps.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Protocol, TypeVar

import torch

from radix_engine.model.batch import Span
from radix_engine.model.sampling import not_finite, sample
from scheduler import NewToken, Scheduler, StepPlan
from server.answer import Answer
from server.garbage import GarbageCollector, tame_garbage_collector

logger = logging.getLogger(__name__)
T = TypeVar("T")

_IDLE_BEFORE_COLLECTING_S = 5.0


class Forward(Protocol):
    """What the loop needs of a model."""

    def copy_rows(self, copies: Sequence[tuple[int, int, int]]) -> None:
        """Copy the first rows of blocks: (source, target, rows)."""

    def forward(self, spans: list[Span]) -> torch.Tensor:
        """Float32 logits [spans that want them, vocabulary]."""


class EngineLoop:
    """Runs steps on a thread of its own for as long as there is work, and sleeps otherwise."""

    def __init__(self, scheduler: Scheduler, model: Forward) -> None:
        self._scheduler = scheduler
        self._model = model
        self._answers: dict[int, Answer] = {}
        self._inbox: list[Callable[[], None]] = []
        self._wake = threading.Condition()
        self._stopping = False
        self._known_problem: str | None = None
        self._collector: GarbageCollector | None = None
        self._idle_events: list[threading.Event] = []
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def tame_garbage_collector(self) -> None:
        """On the engine's thread: from now on collect between steps and when idle."""
        self._collector = tame_garbage_collector()

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def post(self, command: Callable[[], None]) -> bool:
        """Have a command carried out on the engine's thread, between two steps.

        False, and nothing will happen, when the loop has been told to stop.
        """
        with self._wake:
            if self._stopping:
                return False
            self._inbox.append(command)
            self._wake.notify()
            return True

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the engine's thread and return its result. Blocks for a step at most.

        On that thread itself the function runs at once. Raises RuntimeError when it has ended.
        """
        if threading.current_thread() is self._thread:
            return function()
        future: Future[T] = Future()

        def command() -> None:
            try:
                future.set_result(function())
            except Exception as error:
                future.set_exception(error)

        if self.post(command):
            while not wait([future], timeout=1.0).done and self.is_alive():
                pass
        if not future.done():
            raise RuntimeError("the engine's thread has ended")
        return future.result()

    def add(self, answer: Answer) -> None:
        """On the engine's thread: queue a request."""
        self._answers[answer.request.request_id] = answer
        with self._one_request(answer.request.request_id):
            self._scheduler.submit(answer.request)

    def abort(self, request_id: int) -> None:
        """On the engine's thread: end a request in any state. Unknown ids are ignored."""
        self._drop(request_id, "abort")

    def wait_idle(self, timeout_s: float) -> None:
        """Block until all answers have ended, the time is over, or the loop stops."""
        idle = threading.Event()
        if self.post(lambda: self._idle_events.append(idle)):
            idle.wait(min(timeout_s, threading.TIMEOUT_MAX))

    def stop(self) -> None:
        """End what still runs with ``abort`` and join the thread. Not from that thread."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("the engine cannot be shut down from its own thread")
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        reason, error = "abort", None
        try:
            self._serve()
        except BaseException as failure:  # a panic in a native library is no Exception
            logger.critical("the engine's thread has failed", exc_info=True)
            reason, error = "error", _describe(failure)
        with self._wake:
            self._stopping = True  # from here on nothing is posted any more
            commands, self._inbox = self._inbox, []
        for command in commands:
            command()
        for request_id in list(self._answers):
            self._drop(request_id, reason, error)
        self._tell_idle()

    def _serve(self) -> None:
        """Commands and steps, until the loop is told to stop."""
        while True:
            with self._wake:
                while not (self._inbox or self._stopping or self._scheduler.has_work):
                    self._wait()
                if self._stopping:
                    return
                commands, self._inbox = self._inbox, []
            for command in commands:
                command()
            if self._scheduler.has_work:
                self._step()
                if self._collector is not None:
                    self._collector.between_steps()
            if not self._answers:
                self._tell_idle()

    def _wait(self) -> None:
        """Sleep until there is something to do; after some idle seconds, collect garbage."""
        collector = self._collector
        if collector is None or not collector.has_to_do:
            self._wake.wait()
        elif not self._wake.wait(_IDLE_BEFORE_COLLECTING_S):
            collector.when_idle()

    def _tell_idle(self) -> None:
        for event in self._idle_events:
            event.set()
        self._idle_events.clear()

    def _step(self) -> None:
        """One step. Whatever goes wrong ends the requests it concerns, never the thread."""
        affected: list[int] = list(self._answers)
        try:
            plan = self._scheduler.plan()
            if not plan.spans:
                raise RuntimeError("no request can make progress")
            affected = [span.request.request_id for span in plan.spans]
            plan, tokens = self._compute(plan)
            results = self._scheduler.commit(plan, tokens)
        except Exception as error:
            logger.exception("a step failed")
            for request_id in affected:
                self._drop(request_id, "error", _describe(error))
            return
        self._check_books()
        for new in results:
            with self._one_request(new.request.request_id):
                self._deliver(new)

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

    def _deliver(self, new: NewToken) -> None:
        answer = self._answers[new.request.request_id]
        if answer.push(new.token, new.finish_reason):
            self._scheduler.finish(new.request)
        if answer.abandoned:
            self._drop(new.request.request_id, "abort")
            return
        if answer.ended:
            del self._answers[new.request.request_id]

    @contextmanager
    def _one_request(self, request_id: int) -> Iterator[None]:
        """What goes wrong in here ends this request."""
        try:
            yield
        except Exception as error:
            logger.exception("request %d failed", request_id)
            self._drop(request_id, "error", _describe(error))

    def _compute(self, plan: StepPlan) -> tuple[StepPlan, list[int]]:
        """Run the model and choose tokens. Returns the plan without requests that failed alone."""
        if plan.copies:
            self._model.copy_rows(plan.copies)
        logits = self._model.forward(
            [
                Span(span.tokens, span.start, span.request.block_table, span.samples)
                for span in plan.spans
            ]
        )
        broken = not_finite(logits)
        if broken:
            sampling = plan.sampling
            for row in broken:
                request = sampling[row].request
                self._drop(request.request_id, "error", "the model's logits are not finite numbers")
            # Others may have stood on what these computed; they were sent back to start again.
            plan = plan.still_running
            left = {span.request for span in plan.sampling}
            logits = logits[[row for row, span in enumerate(sampling) if span.request in left]]
        rows = [self._answers[span.request.request_id].sample_row() for span in plan.sampling]
        return plan, sample(logits, rows)

    def _drop(self, request_id: int, reason: str, error: str | None = None) -> None:
        answer = self._answers.pop(request_id, None)
        if answer is None:
            return
        try:
            self._scheduler.abort(answer.request)
        except Exception:
            logger.exception("request %d could not give its blocks back", request_id)
        try:
            answer.end(reason, error)
        except Exception as failure:
            logger.exception("request %d could not be ended cleanly", request_id)
            answer.end("error", _describe(failure))  # this way touches no tokenizer


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
