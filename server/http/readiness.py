"""Whether the server can take requests now, and if not, why. Nothing here waits for the engine."""

from __future__ import annotations

from typing import NamedTuple

from server.http.engine_like import EngineLike
from server.http.errors import ApiError, engine_stopped, engine_wedged, shutting_down
from server.http.shutdown import Shutdown


class Unready(NamedTuple):
    """``status``: one stable word. ``refusal``: what new requests are told; it has the reason."""

    status: str
    refusal: ApiError


class Readiness:
    """Looks at the engine from outside.

    ``wedged_after_s``: an engine with work to do that has not ended a step for so long is taken for
    wedged, until it ends one. A step is bounded by --max-step-tokens, so it takes seconds at most,
    however long a prompt is.
    """

    def __init__(self, engine: EngineLike, shutdown: Shutdown, wedged_after_s: float) -> None:
        self._engine = engine
        self._shutdown = shutdown
        self.wedged_after_s = wedged_after_s

    def problem(self) -> Unready | None:
        """Why no new request can be answered; None where it can. Some microseconds; any thread."""
        if self._shutdown.begun:
            return Unready("shutting_down", shutting_down())
        if not self._engine.is_alive():
            return Unready("engine_stopped", engine_stopped())
        stalled_s = self._engine.stalled_s()
        if stalled_s > self.wedged_after_s:
            return Unready("engine_wedged", engine_wedged(stalled_s, self.wedged_after_s))
        return None

    @property
    def is_wedged(self) -> bool:
        """Whether the engine has work and has not got on for too long."""
        return self._engine.is_alive() and self._engine.stalled_s() > self.wedged_after_s
