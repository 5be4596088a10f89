"""What the endpoints share: the engine, threads for blocking calls, and whether the server ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from server.diagnostics import RecentPrompts
from server.generation_params import GenerationParams
from server.head_noise import NoiseFilter
from server.http.bridge import Bridge
from server.http.caller import Caller
from server.http.debug.register import Register
from server.http.door import Door
from server.http.engine_like import EngineLike
from server.http.errors import ApiError
from server.http.job import Context
from server.http.readiness import Readiness
from server.http.settings import HttpSettings
from server.http.shutdown import Shutdown
from server.http.submission import Piece, Submission
from server.http.text_threads import TextThreads
from server.metrics import Metrics
from server.near_miss import Register as NearMisses
from server.near_miss import Watch
from server.tenants import TenantLimits
from server.version import version

Result = TypeVar("Result")

_ENGINE_THREADS = 2


class Service:
    """The engine as the endpoints use it.

    Texts are parsed and tokenised on threads of their own, so that neither a long prompt nor a
    call that waits for the engine's step ever stops the event loop or the other kind.
    """

    def __init__(self, engine: EngineLike, shutdown: Shutdown, settings: HttpSettings) -> None:
        self.engine = engine
        self.shutdown = shutdown
        self.settings = settings
        self.door = Door(engine, self._limits_of)
        self.noise = NoiseFilter(settings.head_noise)
        self.bridge: Bridge[Piece] = Bridge()
        self.version = version()
        self.readiness = Readiness(engine, shutdown, settings.wedged_after_s)
        self.recent = RecentPrompts()
        self.near_misses = Watch(
            engine.text,
            engine.cache_control.branch_after,
            log_prompts=settings.log_prompts,
            register=NearMisses(),
        )
        self.metrics = Metrics(
            engine.info,
            self.version,
            read=engine.readings,
            is_ready=lambda: self.readiness.problem() is None,
            noise=lambda: sum(count for _, count in self.noise.counts()),
            near_misses=self.near_misses.register,
        )
        self.register = Register()
        self._submissions: set[Submission] = set()
        self._text = TextThreads()
        self._blocking = ThreadPoolExecutor(_ENGINE_THREADS, thread_name_prefix="engine-call")
        self._looking = ThreadPoolExecutor(1, thread_name_prefix="engine-look")

    def check_open(self) -> None:
        """Raise ApiError 503 if no new request can be answered."""
        problem = self.readiness.problem()
        if problem is not None:
            raise problem.refusal

    def context(self, caller: Caller, headers: Mapping[str, str]) -> Context:
        """What the body of a request is read with; ``headers``: names in lower case."""
        return Context(self.engine, caller, headers, self.noise, self.settings.model_aliases)

    def begin(self, submission: Submission) -> None:
        """A request for answers has come."""
        self._submissions.add(submission)
        self.metrics.requests.open = len(self._submissions)

    def end(self, submission: Submission) -> None:
        """A request for answers has ended."""
        self._submissions.discard(submission)
        self.metrics.requests.open = len(self._submissions)

    def abandon(self, error: ApiError) -> None:
        """Nothing comes from the engine any more: end all requests with this error."""
        for submission in self._submissions:
            submission.abandon(error)

    def bounded(self, params: GenerationParams) -> GenerationParams:
        """With a time limit of at most what this server gives to a request."""
        most, asked = self.settings.request_timeout_s, params.timeout_s
        if most is None or (asked is not None and asked <= most):
            return params
        return replace(params, timeout_s=most)

    async def on_text_thread(self, work: Callable[[], Result], size: int = 0) -> Result:
        """The result of ``work``, which parses or tokenises. From some tens of thousands of bytes
        on, their ``size`` has to be told: see `TextThreads`."""
        return await self._text.run(work, size)

    async def between_steps(self, work: Callable[[], Result]) -> Result:
        """The result of ``work``, which waits for a gap between two steps.

        Raises ApiError 503 if the engine has ended, or ends meanwhile.
        """
        return await self._on(self._blocking, work)

    async def over_steps(self, work: Callable[[], Result]) -> Result:
        """The same of work that waits for many steps, as a look at the tree does: one at a time, on
        a thread of its own, so that nobody who waits for one step waits for these."""
        return await self._on(self._looking, work)

    async def _on(self, threads: ThreadPoolExecutor, work: Callable[[], Result]) -> Result:
        self.check_open()
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, work)
        except RuntimeError:
            self.check_open()  # it ended meanwhile
            raise

    def _limits_of(self, tenant: str | None) -> TenantLimits:
        ring = self.settings.keys
        return TenantLimits() if ring is None else ring.keys.limits_of(tenant)

    def close(self) -> None:
        """Let the threads end once they are idle."""
        self._text.close()
        self.near_misses.close()
        for threads in (self._blocking, self._looking):
            threads.shutdown(wait=False, cancel_futures=True)
