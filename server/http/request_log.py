"""The end of a request for answers: counted, and logged in one line that shows no text of it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass

from server.http.errors import ApiError
from server.logs import fields
from server.metrics import Outcome, RequestMetrics, RequestTimes
from server.outputs import Usage

logger = logging.getLogger("server.http")

# Never sent, as nobody listens any more; it marks the request in the log.
CLIENT_CLOSED_REQUEST = 499

_REASON_CHARACTERS = 300
# What an error's message quotes comes from the request. An apostrophe inside a word quotes nothing.
_QUOTED = re.compile(
    r"""(?<!\w)b?'(?:[^'\\]|\\.)*(?:'|$)|(?<!\w)b?"(?:[^"\\]|\\.)*(?:"|$)""", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Ending:
    """What came of a request. ``was_aborted``: the server ended before its answer did.
    ``finish_reasons``: of each answer that ended."""

    request_id: str
    client_request_id: str | None
    tenant: str | None
    endpoint: str
    status: int
    error: ApiError | None
    usage: Usage
    finish_reasons: tuple[str, ...]
    engine_ids: tuple[int, ...]
    was_aborted: bool

    @property
    def outcome(self) -> Outcome:
        """In one word."""
        if self.status == CLIENT_CLOSED_REQUEST:
            return "hung_up"
        if self.was_aborted:
            return "aborted"
        if self.status == 500:
            return "failed"
        return "refused" if self.status >= 400 else "completed"


def record(ending: Ending, times: RequestTimes, metrics: RequestMetrics) -> None:
    """Count it and log it."""
    error, usage, outcome = ending.error, ending.usage, ending.outcome
    code = None if error is None else error.code
    metrics.ended(ending.endpoint, outcome, ending.tenant, code)
    has_usage = usage.prompt_tokens > 0
    if outcome == "completed" and has_usage:  # else nothing was to be generated
        metrics.completed(times.elapsed_s, usage)
    ends = usage.match_ends or (usage.match_end,)
    line = fields(
        request_id=ending.request_id,
        client_request_id=ending.client_request_id,
        tenant=ending.tenant,
        endpoint=ending.endpoint,
        status=ending.status,
        outcome=outcome,
        code=code,
        param=None if error is None else error.param,
        reason=None if error is None else without_quotes(error.message),
        prompt_tokens=usage.prompt_tokens if has_usage else None,
        cached_tokens=usage.cached_tokens if has_usage else None,
        computed_tokens=usage.prompt_tokens - usage.cached_tokens if has_usage else None,
        completion_tokens=usage.completion_tokens if has_usage else None,
        match_end=_joined(end.reason.value for end in ends if end is not None),
        finish_reason=_joined(ending.finish_reasons),
        queue_ms=_ms(times.queue_s),
        ttft_ms=_ms(times.first_token_s),
        total_ms=_ms(times.elapsed_s),
        engine_ids=ending.engine_ids or None,
    )
    logger.log(_level(ending.status), "request", extra=line)


def without_quotes(message: str) -> str:
    """An error's message for the log: without what it quotes of the request, and not too long."""
    text = _QUOTED.sub("'...'", message)
    return text if len(text) <= _REASON_CHARACTERS else text[:_REASON_CHARACTERS] + "..."


def _level(status: int) -> int:
    if status == 500:
        return logging.ERROR
    return logging.WARNING if status > 500 else logging.INFO


def _joined(words: Iterable[str]) -> str | None:
    """Each word once, in order; None where there are none."""
    return ",".join(dict.fromkeys(words)) or None


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1e3 * seconds, 1)
