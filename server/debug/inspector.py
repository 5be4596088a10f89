"""Looking into an engine from other threads, at a cost that its steps do not notice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from radix_engine.cache import (
    CacheMode,
    Explanation,
    MatchEnd,
    Namespace,
    Outline,
    OutlineWalk,
    PrefixCache,
    Scope,
    explain_prompt,
    pack,
)
from scheduler import Request, Scheduler
from server.debug.lives import Life, Lives
from server.debug.tree_json import TreeWriter
from server.debug.tree_query import TreeQuery
from server.errors import RequestRefused
from server.readings import Readings

T = TypeVar("T")

_MOST_ACTIVE = 256  # requests that one look tells of
# What a look at the tree takes of the time between two steps: more where somebody waits for it than
# where it comes again every second; of a long step a share, within bounds.
_SLICE_S, _WAITED_FOR_SLICE_S, _MOST_SLICE_S = 0.0005, 0.0015, 0.005
_STEP_SHARE = 0.05


class BetweenSteps(Protocol):
    """Runs work on the engine's thread, between two of its steps, and returns its result."""

    def __call__(self, work: Callable[[], T], /) -> T: ...


class ActiveRequest(NamedTuple):
    """A request that waits or runs. ``computed_tokens``: of its prompt and answer, those whose K
    and V exist. ``waited_s``: since it was queued."""

    engine_id: int
    state: str
    tenant: str | None
    session: str | None
    prompt_tokens: int
    cached_tokens: int | None
    match_end: MatchEnd | None
    computed_tokens: int
    answer_tokens: int
    preemptions: int
    waited_s: float


@dataclass(frozen=True, slots=True)
class Look:
    """The engine at a moment; the tree in outline (``nodes``, empty where there is none) as it was
    within the steps before, see `OutlineWalk`.
    ``active``: at most 256 requests, the running ones first. ``preempted``: engine ids and when, on
    the clock of ``time.monotonic``, as is ``at_s``."""

    nodes: list[dict[str, Any]]
    active: list[ActiveRequest]
    preempted: list[tuple[float, int]]
    readings: Readings
    at_s: float


class Inspector:
    """All methods are thread-safe and block for a step at most; a look at the tree blocks for some
    steps, of which it takes 1.5 ms or a twentieth each, and for the looks before it.

    ``cache`` None: there is none, or no tree; what needs it raises RequestRefused then.
    """

    def __init__(
        self,
        cache: PrefixCache | None,
        scheduler: Scheduler,
        lives: Lives,
        between_steps: BetweenSteps,
        decode: Callable[[Sequence[int]], str],
        readings: Callable[[], Readings],
    ) -> None:
        self._cache = cache
        self._scheduler = scheduler
        self._lives = lives
        self._call = between_steps
        self._readings = readings
        self._offset = time.time() - time.monotonic()
        self._writer = TreeWriter(decode, self.to_unix_s)
        self._looking = threading.Lock()  # one at a time: else each would take its part of a step
        self._writing = threading.Lock()

    @property
    def has_tree(self) -> bool:
        """Whether there is a tree to look at."""
        return self._cache is not None

    def to_unix_s(self, monotonic_s: float) -> float:
        """Seconds since 1970 of a time of ``time.monotonic``."""
        return monotonic_s + self._offset

    def tree(self, query: TreeQuery) -> list[dict[str, Any]]:
        """The tree in outline, parents first. The engine's thread only walks it, in slices."""
        seen, _ = self._walk(self._tree(), query, _WAITED_FOR_SLICE_S, lambda: None)
        return self._write(seen, query)

    def look(self, query: TreeQuery) -> Look:
        """All that the page shows."""

        def rest() -> tuple[list[ActiveRequest], list[tuple[float, int]]]:
            return self._active(), list(self._lives.preemptions)

        nodes: list[dict[str, Any]] = []
        if self._cache is None:
            active, preempted = self._call(rest)
        else:
            seen, (active, preempted) = self._walk(self._cache, query, _SLICE_S, rest)
            nodes = self._write(seen, query)
        return Look(nodes, active, preempted, self._readings(), time.monotonic())

    def explain(
        self,
        tokens: Sequence[int] | bytes,
        namespace: Namespace,
        mode: CacheMode = CacheMode.DEFAULT,
        was: MatchEnd | None = None,
    ) -> Explanation:
        """Why a prompt would be served as it would, see `explain_prompt`."""
        cache = self._tree()
        run = tokens if isinstance(tokens, bytes) else pack(tokens)
        return self._call(lambda: explain_prompt(cache, run, namespace, mode, was=was))

    def life(self, engine_id: int) -> Life | None:
        """What has happened to a recent request since its first step."""
        return self._call(lambda: _copy(self._lives.get(engine_id)))

    def active(self) -> list[ActiveRequest]:
        """The requests that run and wait, at most 256."""
        return self._call(self._active)

    def _walk(
        self, cache: PrefixCache, query: TreeQuery, slice_s: float, at_end: Callable[[], T]
    ) -> tuple[Outline, T]:
        """Look at the tree, a slice between any two steps; and what there is to say at the end.
        Raises RequestRefused."""
        with self._writing:
            below = () if query.root is None else self._writer.path_to(query.root)
        if below is None:
            raise _unknown_node(query.root)
        walk = OutlineWalk(cache, Scope(query.limit, below, query.depth, query.tells))
        ended: float | None = None

        def slice_of_it() -> tuple[Outline, T] | None:
            nonlocal ended
            began = time.perf_counter()
            step = 0.0 if ended is None else began - ended
            seen = walk.advance(max(slice_s, min(_STEP_SHARE * step, _MOST_SLICE_S)))
            found = None if seen is None else (seen, at_end())
            ended = time.perf_counter()
            return found

        with self._looking:
            while (found := self._call(slice_of_it)) is None:
                pass
        if not found[0].is_found:
            raise _unknown_node(query.root)
        return found

    def _write(self, seen: Outline, query: TreeQuery) -> list[dict[str, Any]]:
        with self._writing:
            return self._writer.nodes(seen, text=query.text)

    def _active(self) -> list[ActiveRequest]:
        now = time.monotonic()
        found = []
        for request in self._scheduler.requests():
            found.append(_active_request(request, now))
            if len(found) == _MOST_ACTIVE:
                break
        return found

    def _tree(self) -> PrefixCache:
        if self._cache is None:
            raise RequestRefused(
                "there is no tree to look at: the server has no prefix cache, or the hash index; "
                "start it with --prefix-cache on and --prefix-index tree",
                code="no_tree",
                status=404,
            )
        return self._cache


def _unknown_node(name: str | None) -> RequestRefused:
    return RequestRefused(
        f"no node of the tree is called {str(name)[:32]!r} now: it has gone, or was cut further "
        "up. Ask for the tree without root for the names that there are.",
        code="unknown_node",
        param="root",
        status=404,
    )


def _active_request(request: Request, now: float) -> ActiveRequest:
    return ActiveRequest(
        request.request_id,
        request.state.value,
        request.namespace.tenant,
        request.session,
        request.num_prompt_tokens,
        request.cached_tokens,
        request.match_end,
        request.num_computed_tokens,
        request.num_new_tokens,
        request.preemptions,
        max(0.0, now - request.arrived_s),
    )


def _copy(life: Life | None) -> Life | None:
    """As it is now: the engine's thread goes on writing."""
    if life is None:
        return None
    return Life(
        life.request_id,
        life.namespace,
        life.run,
        life.prompt_tokens,
        life.session,
        life.arrived_s,
        life.admitted_s,
        life.cached_tokens,
        life.match_end,
        list(life.chunks),
        list(life.preempted_s),
    )
