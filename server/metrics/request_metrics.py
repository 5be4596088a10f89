"""What is counted of HTTP requests for answers: on the event loop, and never per step."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from server.metrics.buckets import REQUEST_SECONDS, TOKEN_SECONDS, TOKENS, Buckets
from server.outputs import Usage

Outcome = Literal["completed", "refused", "failed", "aborted", "hung_up"]

# Values of a label beyond this many are counted together: each is a time series for ever.
_MOST_VALUES = 256
_OTHER = "other"


class RequestMetrics:
    """Counts and measures of the requests of one application."""

    def __init__(self) -> None:
        self.open = 0
        self.outcomes: Counter[tuple[str, str, str]] = Counter()  # endpoint, outcome, tenant
        self.refusals: Counter[str] = Counter()
        self.first_token = {"hit": Buckets(REQUEST_SECONDS), "miss": Buckets(REQUEST_SECONDS)}
        self.inter_token = Buckets(TOKEN_SECONDS)
        self.queue = Buckets(REQUEST_SECONDS)
        self.whole = Buckets(REQUEST_SECONDS)
        self.prompt_tokens = Buckets(TOKENS)
        self.completion_tokens = Buckets(TOKENS)
        self._tenants: set[str] = set()

    def ended(self, endpoint: str, outcome: Outcome, tenant: str | None, code: str | None) -> None:
        """A request has ended. ``code``: of its error, where it was refused."""
        self.outcomes[endpoint, outcome, self._shown(tenant)] += 1
        if outcome == "refused":
            self.refused(code)

    def refused(self, code: str | None) -> None:
        """A request was refused, with this code."""
        code = code or "none"
        known = code in self.refusals or len(self.refusals) < _MOST_VALUES
        self.refusals[code if known else _OTHER] += 1

    def completed(self, seconds: float, usage: Usage) -> None:
        """A request got its whole answer."""
        self.whole.observe(seconds)
        self.prompt_tokens.observe(usage.prompt_tokens)
        self.completion_tokens.observe(usage.completion_tokens)

    def _shown(self, tenant: str | None) -> str:
        """A tenant as the value of a label."""
        if tenant is None:
            return ""
        if tenant not in self._tenants and len(self._tenants) >= _MOST_VALUES:
            return _OTHER
        self._tenants.add(tenant)
        return tenant
