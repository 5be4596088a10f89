"""What an answer's token counts say of the cache, in JSON, whichever API they are told in."""

from __future__ import annotations

from typing import Any

from radix_engine.cache import MatchEnd
from server.outputs import Usage


def prompt_details(usage: Usage) -> dict[str, Any]:
    """``cached_tokens`` (0 on a miss) and ``match_end``, of each prompt where there are several."""
    details: dict[str, Any] = {
        "cached_tokens": usage.cached_tokens,
        "match_end": match_end_body(usage.match_end),
    }
    if usage.match_ends:
        details["match_ends"] = [match_end_body(end) for end in usage.match_ends]
    return details


def match_end_body(end: MatchEnd | None) -> dict[str, Any] | None:
    """Why no more of a prompt was cached; None where it was never looked for."""
    if end is None:
        return None
    return {
        "reason": end.reason.value,
        "position": end.position,
        "cause": None if end.cause is None else end.cause.value,
        "lost_tokens": end.lost_tokens,
        "branch_tokens": end.branch_tokens,
    }


def retention_of(usage: Usage) -> dict[str, Any]:
    """``cache_retention``, where a request has asked for any."""
    kept = usage.retained
    if kept is None:
        return {}
    told = {"retained_tokens": kept.tokens, "refused": kept.refused, "id": kept.id}
    return {"cache_retention": told}
