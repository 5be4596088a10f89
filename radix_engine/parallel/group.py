"""Rank 0's hold on the other ranks: starts their processes, tells them what to do, ends them.

Messages go over a socket to each rank, in order; the numbers of a step go over torch.distributed.
One thread listens to all sockets. The first thing that goes wrong in any rank ends the whole group:
the other processes are killed, so nobody waits for what will never come, and everything that is
asked of the group from then on raises `ParallelError` with that first cause.
"""

from __future__ import annotations

import atexit
import pickle
import queue
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist

from radix_engine.parallel.errors import ParallelError
from radix_engine.parallel.member import Backend, Member, abort_waiting, join, leave
from radix_engine.parallel.messages import encode_end
from radix_engine.parallel.processes import WorkerProcess
from radix_engine.parallel.reports import Outcome

T = TypeVar("T")

_TICK_S = 0.5  # how late the end of a step's time may be noticed
_BLAME_S = 2.0  # a lost rank shows as an error of rank 0 a little before it is known who it was
_END_S = 10.0  # for a process to end when told to


class Group:
    """The processes of ``size`` ranks; this one is rank 0. Use as a context manager, or close it.

    ``backend``: gloo on a CPU, nccl for as many GPUs. ``threads``: of torch in each other process.
    One thread at a time. Raises ParallelError when a process cannot be started in
    ``start_timeout_s``, or this one is in a process group already. A step that takes longer than
    ``step_timeout_s`` counts as failed.
    """

    def __init__(
        self,
        size: int,
        backend: Backend = "gloo",
        *,
        threads: int = 1,
        start_timeout_s: float = 120.0,
        step_timeout_s: float = 60.0,
    ) -> None:
        if size < 1:
            raise ValueError(f"a group needs at least 1 process, not {size}")
        if dist.is_initialized():
            raise ParallelError("this process is in a process group already; close that first")
        if backend == "nccl" and torch.cuda.device_count() < size:
            raise ParallelError(
                f"{size} processes need as many GPUs, and this machine has "
                f"{torch.cuda.device_count()}"
            )
        self._folder = Path(tempfile.mkdtemp(prefix="radix-engine-"))
        timeout_s = max(start_timeout_s, step_timeout_s + 2 * _TICK_S)
        store = str(self._folder / "store")
        self.member = Member(0, size, backend, store, threads, timeout_s)
        self.turn = 0
        self._step_timeout_s = step_timeout_s
        self._deadline: float | None = None
        self._failure: str | None = None
        self._lock = threading.Lock()
        self._failed = threading.Event()
        self._closing = threading.Event()
        self._replies: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._workers: list[WorkerProcess] = []
        self._watcher = threading.Thread(target=self._watch, name="ranks", daemon=True)
        atexit.register(self.close)
        try:
            for rank in range(1, size):
                self._workers.append(WorkerProcess(rank))
            self._watcher.start()
            self._join(start_timeout_s)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> Sequence[int]:
        """The process ids of ranks 1, 2, ..."""
        return [worker.pid for worker in self._workers]

    def ask(self, message: bytes, own: Callable[[], T], timeout_s: float) -> T:
        """Have the other ranks carry out a message that they answer, while this one does ``own``.

        Raises what ``own`` raises, or ParallelError with a refusal of another rank; all ranks have
        answered then and the group goes on. Raises ParallelError, too, when the group has failed or
        an answer takes longer than ``timeout_s``.
        """
        self.check()
        self.turn += 1
        done: list[T] = []
        mistake: Exception | None = None
        try:
            self._send(message)
            try:
                done.append(own())
            except Exception as error:
                mistake = error
            refusals = self._answers(timeout_s)
        except BaseException as error:
            self._end_after(error)
            raise
        if mistake is not None:
            raise mistake
        if refusals:
            raise ParallelError(refusals[0])
        return done[0]

    @contextmanager
    def step(self, message: bytes) -> Iterator[None]:
        """Send a message that is not answered; this rank does its part in the ``with`` block.

        Whatever goes wrong in there ends the group, since the ranks are out of step. An error of
        this rank's own is raised as it is, one that another rank caused as ParallelError.
        """
        self.check()
        self._deadline = time.monotonic() + self._step_timeout_s
        try:
            self._send(message)
            yield
        except BaseException as error:
            self._end_after(error)
            raise
        finally:
            self._deadline = None
        self.check()

    def check(self) -> None:
        """Raise ParallelError when the group has failed or is closed."""
        if self._failure is not None:
            raise ParallelError(self._cause())
        if self._closing.is_set():
            raise ParallelError(f"the group of {self.member.size} processes is closed")

    def close(self) -> None:
        """End all other processes and leave the process group. Takes 10 s at most.

        From any thread, but not while a step runs. A second call does nothing.
        """
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
        atexit.unregister(self.close)
        if self._failure is None:
            with suppress(OSError):
                self._send(encode_end())
        with suppress(RuntimeError, ValueError):  # it may have been aborted
            leave()
        deadline = time.monotonic() + _END_S
        for worker in self._workers:
            worker.end(max(0.0, deadline - time.monotonic()))
        if self._watcher.is_alive():
            self._watcher.join()
        for worker in self._workers:
            worker.connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _join(self, timeout_s: float) -> None:
        """Wait until all processes run, then join the process group together."""
        self._answers(timeout_s)
        for worker in self._workers:
            worker.connection.send_bytes(pickle.dumps(replace(self.member, rank=worker.rank)))
        try:
            join(self.member)
        except Exception as error:
            self._end_after(error)
            raise
        self._answers(timeout_s)

    def _send(self, message: bytes) -> None:
        for worker in self._workers:
            worker.connection.send_bytes(message)

    def _answers(self, timeout_s: float) -> list[str]:
        """Wait for one answer of each other rank. Returns the refusals."""
        deadline = time.monotonic() + timeout_s
        refusals = []
        for _ in self._workers:
            try:
                reply = self._replies.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self._fail(f"a process did not answer within {timeout_s:g} s")
                reply = None
            if reply is None:
                self.check()
            elif reply:
                refusals.append(reply)
        return refusals

    def _end_after(self, error: BaseException) -> None:
        """End the group after an error in this process. Raises ParallelError where another rank
        caused it."""
        caused = self._failed.wait(_BLAME_S if self._workers else 0.0)
        self._fail(f"rank 0: {type(error).__name__}: {error}")
        if caused and not isinstance(error, ParallelError):
            raise ParallelError(self._cause()) from error

    def _cause(self) -> str:
        return f"the group of {self.member.size} processes ended: {self._failure}"

    def _fail(self, cause: str) -> None:
        """End the group. Only the first cause counts. From any thread."""
        with self._lock:
            if self._failure is not None or self._closing.is_set():
                return
            self._failure = cause
        self._failed.set()
        for worker in self._workers:
            worker.kill()
        abort_waiting(self.member.backend)
        self._replies.put(None)

    # The thread that listens

    def _watch(self) -> None:
        by_connection = {worker.connection: worker for worker in self._workers}
        while by_connection and not self._closing.is_set():
            ready = wait(list(by_connection), _TICK_S)
            reports = [(by_connection[c].report(), by_connection[c]) for c in ready]  # type: ignore[index]
            failed = [each for each in reports if each[0].outcome == Outcome.FAILED]
            if failed:
                # Who was killed says nothing, and who fails because of another fails later.
                first, worker = min(failed, key=lambda each: each[0].at_ns)
                self._fail(f"rank {worker.rank} (process {worker.pid}) {first.text}")
                return
            for report, worker in reports:
                refused = report.outcome == Outcome.REFUSED
                self._replies.put(f"rank {worker.rank} refused: {report.text}" if refused else "")
            deadline = self._deadline
            if deadline is not None and time.monotonic() > deadline:
                self._fail(
                    f"a step did not end within {self._step_timeout_s:g} s; where a step may take "
                    "so long, start with a larger --step-timeout or a smaller --max-step-tokens"
                )
                return
