"""What is done when a prompt has been computed: its prefixes are retained, its session counted."""

from __future__ import annotations

from scheduler import Request
from server.generation_params import GenerationParams
from server.outputs import Retained
from server.retained_prefixes import RetainedPrefixes
from server.sessions import Sessions


class AfterPrompt:
    """All answers to a prompt share one; the first to go on runs it. On the engine's thread.

    ``prefixes`` None: nothing can be retained. ``retained``: what came of that, None before it, or
    where it was not asked for.
    """

    def __init__(
        self,
        request: Request,
        params: GenerationParams,
        prefixes: RetainedPrefixes | None,
        sessions: Sessions,
    ) -> None:
        self.retained: Retained | None = None
        self._request = request
        self._params = params
        self._prefixes = prefixes
        self._sessions = sessions
        self._has_run = False

    def run(self) -> None:
        """The prompt is computed, and its full blocks are in the cache. Again is a no-op."""
        if self._has_run:
            return
        self._has_run = True
        request, params = self._request, self._params
        if params.session is not None:
            self._sessions.used(
                params.namespace.tenant,
                params.session,
                request.num_prompt_tokens,
                request.cached_tokens or 0,
            )
        if not params.retain:
            return
        if self._prefixes is None:
            self.retained = Retained(0, "unavailable")
        elif not request.stores:
            self.retained = Retained(0, "cache_mode")
        else:
            run, space = request.run, params.namespace
            self.retained = self._prefixes.retain(run, space, params.retain, params.session)
