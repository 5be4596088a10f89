"""What an engine's callers may do with its cache besides filling it: look at what is retained, let
it go, and share prefixes among all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from radix_engine.cache import ALL, Branch, Everything, Namespace, PrefixCache, branch_after
from scheduler import Request
from server.after_prompt import AfterPrompt
from server.errors import RequestRefused
from server.generation_params import GenerationParams
from server.public_prefixes import PublicPrefix, PublicPrefixes
from server.retained_prefixes import RetainedPrefix, RetainedPrefixes
from server.sessions import Sessions, SessionView

T = TypeVar("T")


class BetweenSteps(Protocol):
    """Runs work on the engine's thread, between two of its steps, and returns its result."""

    def __call__(self, work: Callable[[], T], /) -> T: ...


class CacheControl:
    """All methods are thread-safe and block for a step at most, `after` excepted.

    ``cache`` None: there is none, or one that can neither retain nor share; what needs it then
    raises RequestRefused. ``scope``: a tenant (None: nobody in particular), or ``ALL``.
    """

    def __init__(self, cache: PrefixCache | None, between_steps: BetweenSteps) -> None:
        self._call = between_steps
        self._cache = cache
        self._retained = None if cache is None else RetainedPrefixes(cache)
        self._public = None if cache is None else PublicPrefixes(cache)
        self._sessions = Sessions()

    @property
    def can_retain(self) -> bool:
        """Whether prefixes can be retained, and made public."""
        return self._retained is not None

    def after(self, request: Request, params: GenerationParams) -> AfterPrompt | None:
        """What is to be done once this request's prompt is computed. Never blocks."""
        if not params.retain and params.session is None:
            return None
        return AfterPrompt(request, params, self._retained, self._sessions)

    def retained(self, scope: str | Everything | None = ALL) -> list[RetainedPrefix]:
        """What is retained now, as far as a tenant may know of it."""
        prefixes = self._needs(self._retained)
        return self._call(lambda: prefixes.listed(scope))

    def release(self, scope: str | Everything | None = ALL, prefix_id: str | None = None) -> int:
        """Let a retained prefix go, or all; how many."""
        prefixes = self._needs(self._retained)
        return self._call(lambda: prefixes.release(scope, prefix_id))

    def mark_public(self, tokens: Sequence[int], name: str | None = None) -> PublicPrefix:
        """Let all tenants share a prefix, in whole blocks. What they stored of it before is not
        found any more."""
        prefixes = self._needs(self._public)
        return self._call(lambda: prefixes.mark(tokens, name))

    def public(self) -> list[PublicPrefix]:
        """The prefixes that all share."""
        prefixes = self._needs(self._public)
        return self._call(prefixes.listed)

    def unmark_public(self, prefix_id: str) -> bool:
        """Share a prefix no longer; False where there is none of this id."""
        prefixes = self._needs(self._public)
        return self._call(lambda: prefixes.unmark(prefix_id))

    def sessions(self, scope: str | Everything | None = ALL) -> list[SessionView]:
        """The sessions that requests belonged to, the last used first."""
        return self._call(lambda: self._sessions.seen(scope))

    @property
    def num_sessions(self) -> int:
        """How many sessions are known. Never blocks."""
        return len(self._sessions)

    def branch_after(self, run: bytes, namespace: Namespace, position: int) -> Branch | None:
        """How the stored branch goes on that a packed prompt has left near a token; see the
        function of that name."""
        cache = self._cache
        if cache is None:
            return None
        return self._call(lambda: branch_after(cache, run, namespace, position))

    def _needs(self, register: T | None) -> T:
        if register is None:
            raise RequestRefused(
                "this server retains and shares nothing: it has no prefix cache, or the hash "
                "index; start it with --prefix-cache on and --prefix-index tree",
                code="no_tree",
                status=404,
            )
        return register
