"""The shapes of diagnoses, for the OpenAPI description."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from server.http.schemas import Exact, MatchEndBody

_EVICTED = "Tokens of the prompt that were stored once, and had gone. Ours."
_END = "Where the match in the cache ended, and why. Ours."


class PromptCacheDiagnostics(Exact):
    """What kept a chat completion from being served all that an earlier one left in the cache."""

    type: Literal["cache_miss", "cache_hit", "comparison_response_not_found", "unavailable"] = (
        Field(description="unavailable: nothing that the client changed; see match_end.")
    )
    reason: (
        Literal["tools_changed", "reasoning_effort_changed", "context_compacted", "input_changed"]
        | None
    ) = Field(None, description="With cache_miss; reasoning_effort: or another template variable.")
    cache_missed_tokens: int | None = Field(
        None, ge=0, description="Tokens of the earlier prompt that were not served."
    )
    comparison_reusable_tokens: int | None = Field(
        None, ge=0, description="Tokens that both prompts begin with, in whole blocks."
    )
    match_end: MatchEndBody | None = Field(None, description=_END)
    evicted_tokens: int | None = Field(None, ge=0, description=_EVICTED)


class CacheMissReason(Exact):
    """Why."""

    type: Literal[
        "system_changed",
        "tools_changed",
        "messages_changed",
        "previous_message_not_found",
        "unavailable",
    ] = Field(description="unavailable: nothing that the client changed; see match_end.")
    cache_missed_input_tokens: int | None = Field(
        None, ge=0, description="Tokens of the earlier prompt that were not served."
    )


class MessageDiagnostics(Exact):
    """What kept a message from being served all that an earlier one left in the cache."""

    cache_miss_reason: CacheMissReason
    match_end: MatchEndBody | None = Field(None, description=_END)
    evicted_tokens: int | None = Field(None, ge=0, description=_EVICTED)
