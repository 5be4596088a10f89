"""What has happened to recent requests, as the engine's steps saw it."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field

from radix_engine.cache import MatchEnd, Namespace
from scheduler import Request, StepPlan

_MOST_CHUNKS = 256  # of one request; the last one then takes up what follows


@dataclass(slots=True)
class Chunk:
    """A step has computed ``count`` of the prompt's tokens, from ``start`` on, ``at`` this time."""

    at: float
    start: int
    count: int


@dataclass(slots=True)
class Life:
    """One engine request from its first step on. Times are of ``time.monotonic``. ``run``: the
    prompt, packed; empty where it was dropped to keep within the bound."""

    request_id: int
    namespace: Namespace
    run: bytes
    prompt_tokens: int
    session: str | None
    arrived_s: float
    admitted_s: float | None
    cached_tokens: int
    match_end: MatchEnd | None
    chunks: list[Chunk] = field(default_factory=list)
    preempted_s: list[float] = field(default_factory=list)


class Lives:
    """By engine id, the ``most`` that began last; their prompts within ``most_bytes`` together. The
    engine's thread writes; others read through it. Cost: nanoseconds for each request of a step."""

    def __init__(self, most: int = 1024, most_bytes: int = 32 << 20) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._lives: OrderedDict[int, Life] = OrderedDict()
        self._with_run: OrderedDict[int, Life] = OrderedDict()
        self._bytes = 0
        self.preemptions: list[tuple[float, int]] = []  # the last ones: when, and who

    def __len__(self) -> int:
        return len(self._lives)

    def get(self, request_id: int) -> Life | None:
        """What is known of a request that has begun."""
        return self._lives.get(request_id)

    def planned(self, plan: StepPlan) -> None:
        """A step is about to be computed."""
        prefilling = [span for span in plan.spans if span.start < span.request.num_prompt_tokens]
        if not (prefilling or plan.preempted):
            return
        now = time.monotonic()
        for request in plan.preempted:
            life = self._lives.get(request.request_id)
            if life is not None:
                life.preempted_s.append(now)
            self.preemptions.append((now, request.request_id))
        if len(self.preemptions) > 128:
            del self.preemptions[:-64]
        for span in prefilling:
            life = self._lives.get(span.request.request_id)
            if life is None:
                life = self._begin(span.request)
            if len(life.chunks) < _MOST_CHUNKS:
                life.chunks.append(Chunk(now, span.start, span.count))
            else:
                last = life.chunks[-1]
                life.chunks[-1] = Chunk(now, last.start, span.start + span.count - last.start)

    def _begin(self, request: Request) -> Life:
        life = Life(
            request.request_id,
            request.namespace,
            request.run,
            request.num_prompt_tokens,
            request.session,
            request.arrived_s,
            request.admitted_s,
            request.cached_tokens or 0,
            request.match_end,
        )
        self._lives[request.request_id] = life
        self._with_run[request.request_id] = life
        self._bytes += len(life.run)
        while self._bytes > self._most_bytes:
            _, oldest = self._with_run.popitem(last=False)
            self._bytes -= len(oldest.run)
            oldest.run = b""
        if len(self._lives) > self._most:
            gone, oldest = self._lives.popitem(last=False)
            if self._with_run.pop(gone, None) is not None:
                self._bytes -= len(oldest.run)
        return life
