"""The engine's thread: carries out commands and runs steps.

Everything below it (scheduler, cache, model) belongs to this thread alone. Others reach it through
``post`` and ``call``, which are carried out between two steps.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import TypeVar

from server.active_answers import describe
from server.answer import Answer
from server.beam_search import BeamSearch
from server.garbage import GarbageCollector, tame_garbage_collector
from server.step_times import COMMANDS, GARBAGE, StepTimes
from server.steps import Steps

logger = logging.getLogger(__name__)
T = TypeVar("T")

_IDLE_BEFORE_COLLECTING_S = 5.0


class EngineLoop:
    """Runs steps on a thread of its own for as long as there is work, and sleeps otherwise."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._inbox: list[Callable[[], None]] = []
        self._unqueued: dict[str | None, int] = {}  # by tenant
        self._num_unqueued = 0
        self._wake = threading.Condition()
        self._stopping = False
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

    @property
    def times(self) -> StepTimes:
        """Where the time of steps goes; any thread may read it."""
        return self._steps.times

    def stack(self) -> str:
        """What the thread is doing right now, as a traceback shows it; empty when it has ended."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "" if frame is None else "".join(traceback.format_stack(frame))

    @property
    def num_unqueued(self) -> int:
        """What was added and is not in the scheduler's queue yet."""
        return self._num_unqueued

    def num_unqueued_of(self, tenant: str | None) -> int:
        """Of these, a tenant's."""
        return self._unqueued.get(tenant, 0)

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

    def add(self, work: Sequence[Answer] | BeamSearch, tenant: str | None = None) -> bool:
        """Queue the answers to one prompt, or a beam search, of a tenant. False like `post`."""

        def command() -> None:
            try:
                if isinstance(work, BeamSearch):
                    self._steps.active.add_search(work)
                else:
                    self._steps.active.add(work)
            finally:
                self._count_unqueued(tenant, -1)

        self._count_unqueued(tenant, 1)
        if self.post(command):
            return True
        self._count_unqueued(tenant, -1)
        return False

    def _count_unqueued(self, tenant: str | None, more: int) -> None:
        with self._wake:
            self._num_unqueued += more
            count = self._unqueued.get(tenant, 0) + more
            if count:
                self._unqueued[tenant] = count
            else:
                del self._unqueued[tenant]

    def abort(self, request_id: int) -> None:
        """End a request in any state, between two steps. Unknown ids are ignored."""
        self.post(lambda: self._steps.active.end(request_id, "abort"))

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
            reason, error = "error", describe(failure)
        with self._wake:
            self._stopping = True  # from here on nothing is posted any more
            commands, self._inbox = self._inbox, []
        for command in commands:
            command()
        self._steps.active.end_all(reason, error)
        self._tell_idle()

    def _serve(self) -> None:
        """Commands and steps, until the loop is told to stop."""
        times = self._steps.times
        while True:
            with self._wake:
                while not (self._inbox or self._stopping or self._steps.has_work):
                    times.rest()
                    self._wait()
                if self._stopping:
                    return
                commands, self._inbox = self._inbox, []
            times.begin()
            for command in commands:
                command()
            if self._steps.has_work:
                times.lap(COMMANDS)
                self._steps.step()
                if self._collector is not None:
                    self._collector.between_steps()
                    times.lap(GARBAGE)
                times.end_step()
            if self._steps.active.is_empty:
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
