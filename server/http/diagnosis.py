"""The answer to "why was this not served from the cache?", in the vendors' own forms.

Both name an earlier answer to compare with. What they cannot tell is in fields of our own:
``match_end``, where the tree's match ended and why, and ``evicted_tokens``, how much of the prompt
was stored and had gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from radix_engine.cache import Reason
from server.diagnostics import Change, Fingerprint, Verdict, compare
from server.http.usage import match_end_body
from server.outputs import Usage

MAX_ID = 256

_ANTHROPIC: Mapping[Change, str] = {
    "tools": "tools_changed",
    "system": "system_changed",
    "compacted": "messages_changed",
    "messages": "messages_changed",
}
_OPENAI: Mapping[Change, str] = {
    "tools": "tools_changed",
    "system": "input_changed",
    "variables": "reasoning_effort_changed",
    "compacted": "context_compacted",
    "messages": "input_changed",
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """``asked_for``: the id of the earlier answer (None: there is none yet). ``earlier``: its
    prompt, as far as it is known."""

    asked_for: str | None
    earlier: Fingerprint | None
    now: Fingerprint

    def anthropic(self, usage: Usage) -> dict[str, Any] | None:
        """``diagnostics`` of a message: None where nothing was missed."""
        if self.asked_for is None:
            return None
        if self.earlier is None:
            return {"cache_miss_reason": {"type": "previous_message_not_found"}}
        verdict = self._verdict(usage)
        if verdict is None:
            return {"cache_miss_reason": {"type": "unavailable"}}
        if not verdict.is_miss:
            return None
        named = None if verdict.change is None else _ANTHROPIC.get(verdict.change)
        reason: dict[str, Any] = {"type": named or "unavailable"}
        if named is not None:
            reason["cache_missed_input_tokens"] = verdict.missed_tokens
        return {"cache_miss_reason": reason, **_ours(usage)}

    def openai(self, usage: Usage) -> dict[str, Any]:
        """``prompt_cache_diagnostics`` of a chat completion."""
        if self.earlier is None:
            return {"type": "comparison_response_not_found"}
        verdict = self._verdict(usage)
        if verdict is None:
            return {"type": "unavailable"}
        if not verdict.is_miss:
            return {"type": "cache_hit"}
        if verdict.change is None:
            return {"type": "unavailable", **_ours(usage)}
        return {
            "type": "cache_miss",
            "reason": _OPENAI[verdict.change],
            "cache_missed_tokens": verdict.missed_tokens,
            "comparison_reusable_tokens": verdict.reusable_tokens,
            **_ours(usage),
        }

    def _verdict(self, usage: Usage) -> Verdict | None:
        """None where the tree was not asked."""
        end = usage.match_end
        if self.earlier is None or end is None or end.reason is Reason.BYPASSED:
            return None
        return compare(self.earlier, self.now, usage)


def _ours(usage: Usage) -> dict[str, Any]:
    end = usage.match_end
    is_evicted = end is not None and end.reason is Reason.EVICTED
    return {
        "match_end": match_end_body(end),
        "evicted_tokens": end.lost_tokens if end is not None and is_evicted else 0,
    }
