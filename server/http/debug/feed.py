"""GET /debug/events: what the page shows, again about every second, for all who listen at once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from typing import Any

from starlette.types import Receive

from server.debug.inspector import Look
from server.debug.tree_query import TreeQuery
from server.http.debug.event_log import EventLog
from server.http.debug.tree_changes import TreeChanges
from server.http.debug.writing import written
from server.http.errors import ApiError
from server.http.service import Service
from server.http.usage import match_end_body

logger = logging.getLogger("server.http")

EVERY_S = 1.0
MOST_LISTENERS = 16
_QUERY = TreeQuery(limit=500)  # what a screen has room for; the page asks for more of a part


class Listener:
    """One who listens. ``pending``: an update it has not taken yet."""

    def __init__(self) -> None:
        self.pending: bytes | None = None
        self.needs_all = True
        self.ended = False
        self.ready = asyncio.Event()
        self.watcher: asyncio.Task[None] | None = None

    def end(self) -> None:
        """No more updates for it."""
        self.ended = True
        self.ready.set()

    async def wait_for_hang_up(self, receive: Receive) -> None:
        """End it as soon as the client has hung up: sending to nobody is no error."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self.end()


class Feed:
    """Looks at the engine once for all listeners, and not at all while there are none. A listener
    that is slow misses updates, and gets the whole tree next. On the event loop."""

    def __init__(self, service: Service, every_s: float = EVERY_S) -> None:
        self._service = service
        self._every_s = every_s
        self._listeners: set[Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._number = 0
        self._changes = TreeChanges()
        self._log = EventLog()

    @property
    def num_listeners(self) -> int:
        """How many listen now."""
        return len(self._listeners)

    def listen(self, receive: Receive) -> Listener:
        """One more, until `leave`, or until ``receive`` says that the client has hung up. Raises
        ApiError 429."""
        if len(self._listeners) >= MOST_LISTENERS:
            raise ApiError(
                429,
                f"{MOST_LISTENERS} debug pages are open, and that is the limit. Close one, or try "
                "again later.",
                code="too_many_listeners",
                headers={"Retry-After": "10"},
            )
        listener = Listener()
        listener.watcher = asyncio.create_task(listener.wait_for_hang_up(receive))
        self._listeners.add(listener)
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return listener

    def leave(self, listener: Listener) -> None:
        """It listens no longer."""
        self._listeners.discard(listener)
        if listener.watcher is not None:
            listener.watcher.cancel()
        self._wake.set()

    async def updates(self, listener: Listener) -> AsyncGenerator[bytes, None]:
        """Its updates, as events."""
        while not listener.ended:
            await listener.ready.wait()
            listener.ready.clear()
            update, listener.pending = listener.pending, None
            if update is not None and not listener.ended:
                yield update

    async def _run(self) -> None:
        shutdown = self._service.shutdown
        while self._listeners and not shutdown.begun:
            self._wake.clear()
            await self._update()
            try:
                async with asyncio.timeout(self._every_s):
                    while self._listeners and not any(each.needs_all for each in self._listeners):
                        await self._wake.wait()
                        self._wake.clear()
            except TimeoutError:
                pass
        self._changes.forget()
        for listener in self._listeners:
            listener.end()

    async def _update(self) -> None:
        listeners = list(self._listeners)
        behind = [each for each in listeners if each.needs_all or each.pending is not None]
        try:
            whole, changed = await self._service.over_steps(lambda: self._look(bool(behind)))
        except ApiError as error:
            whole = changed = _event({"at": time.time(), "problem": error.message})
        except Exception:
            logger.exception("the debug page's update failed")
            whole = changed = _event(
                {"at": time.time(), "problem": "The update failed; the server's log says why."}
            )
        for listener in listeners:
            is_behind = listener in behind
            listener.pending = whole if is_behind else changed
            listener.needs_all = False
            listener.ready.set()

    def _look(self, all_too: bool) -> tuple[bytes, bytes]:
        """An update with the whole tree, if wanted, and one with its changes. Blocks."""
        inspector = self._service.engine.inspector
        found = inspector.look(_QUERY)
        self._number += 1
        names = self._service.register.by_engine_id()
        new = self._log.after(found, names, inspector.to_unix_s)
        changed = self._changes.since_last(found.nodes)
        body = self._body(found, names, new)
        whole = b""
        if all_too:
            tree = {"full": True, "nodes": found.nodes, "gone": []}
            whole = _event({**body, "tree": tree, "log": self._log.recent()})
        return whole, _event({**body, "tree": changed, "log": new})

    def _body(
        self, found: Look, names: dict[int, str], new: list[dict[str, Any]]
    ) -> dict[str, Any]:
        readings = found.readings
        return {
            "at": round(time.time(), 3),
            "number": self._number,
            "problem": None,
            "state": dict(readings.state),
            "counters": dict(readings.counters),
            "match_ends": dict(readings.match_ends),
            "missed_tokens": dict(readings.missed_tokens),
            "steps": {
                "count": readings.timed_steps,
                "seconds": {part: round(s, 6) for part, s in readings.step_seconds.items()},
                "longest_ms": round(1e3 * readings.longest_step_s, 3),
            },
            "active": [
                {
                    "id": names.get(each.engine_id, str(each.engine_id)),
                    "state": each.state,
                    "tenant": each.tenant,
                    "session": each.session,
                    "prompt_tokens": each.prompt_tokens,
                    "cached_tokens": each.cached_tokens,
                    "match_end": match_end_body(each.match_end),
                    "computed_tokens": each.computed_tokens,
                    "answer_tokens": each.answer_tokens,
                    "preemptions": each.preemptions,
                    "waited_s": round(each.waited_s, 3),
                }
                for each in found.active
            ],
            "curve": {f"{size:g}": share for size, share in readings.hit_rate_curve.items()},
        }


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + written(body) + b"\n\n"  # JSON needs no line ends outside of strings
