"""Token counts in Anthropic's form: what of a prompt was read, what was written, and the rest.

::

    read from the cache | written for cache_control     | neither
    0                   cached tokens                   the last mark (whole blocks)    the end

The three sum to the prompt. ``cache_creation`` says for how long what was written stays: up to the
last mark of an hour for an hour, the rest for five minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from server.http.usage import match_end_body, retention_of
from server.outputs import Usage

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Written:
    """A mark: after so many ``tokens`` of the prompt, of which ``stored`` fill whole blocks. They
    are to stay for so many ``seconds``."""

    tokens: int
    stored: int
    seconds: float


def usage_body(usage: Usage, marks: Sequence[Written]) -> dict[str, Any]:
    """The counts, with ours beside them: ``match_end``, and ``cache_retention`` where retention was
    asked for."""
    kept = 0 if usage.retained is None else usage.retained.tokens
    written = _beyond(usage.cached_tokens, kept, marks)
    for_an_hour = _beyond(
        usage.cached_tokens, kept, [each for each in marks if each.seconds >= HOUR_S]
    )
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": written - for_an_hour,
            "ephemeral_1h_input_tokens": for_an_hour,
        },
        "output_tokens": usage.completion_tokens,
        "match_end": match_end_body(usage.match_end),
        **retention_of(usage),
    }


def _beyond(cached: int, kept: int, marks: Sequence[Written]) -> int:
    """How many tokens up to the last mark are kept and were not cached."""
    last = max((each.stored for each in marks), default=0)
    return max(0, min(last, kept) - cached)
