"""The bodies of POST /v1/messages and POST /v1/messages/count_tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from radix_engine.model.sampling_params import SamplingParams
from server.http.anthropic.fields import ConversationFields
from server.http.diagnosis import MAX_ID
from server.http.openai.fields import MAX_STOP_CHARACTERS, MAX_STOPS, MAX_TOKENS_LIMIT


class Diagnostics(BaseModel):
    """Asks why no more of the prompt was cached."""

    model_config = ConfigDict(extra="allow", strict=True)

    previous_message_id: str | None = Field(
        None,
        max_length=MAX_ID,
        description="The id of an earlier message to compare with; null: there is none yet.",
    )


class MessagesRequest(ConversationFields):
    """The body of POST /v1/messages."""

    max_tokens: int = Field(
        ge=0,
        le=MAX_TOKENS_LIMIT,
        description=f"The most tokens to generate, a whole number from 0 to {MAX_TOKENS_LIMIT}; 0 "
        "computes and stores the prompt only. What does not fit in the context is cut off.",
    )
    stop_sequences: (
        list[Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARACTERS)]] | None
    ) = Field(
        None,
        max_length=MAX_STOPS,
        description=f"At most {MAX_STOPS} strings of 1 to {MAX_STOP_CHARACTERS} characters. The "
        "answer ends before the first that appears.",
    )
    temperature: float | None = Field(
        None,
        ge=0,
        le=2,
        description="A number from 0 (always the likeliest token) to 2; default: what the model's "
        "makers recommend, else 1.",
    )
    top_p: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Sample from the likeliest tokens whose probabilities sum to this, above 0 up "
        "to 1 (off); default: what the model's makers recommend, else 1.",
    )
    top_k: int | None = Field(
        None,
        ge=0,
        le=2**31 - 1,
        description="Sample from this many likeliest tokens, a whole number; 0: no limit. Default: "
        "what the model's makers recommend, else no limit.",
    )
    stream: bool | None = Field(
        None, description="true: send the answer as server-sent events while it is generated."
    )
    metadata: dict[str, Any] | None = Field(
        None, description="Labels of yours, an object. Not used."
    )
    diagnostics: Diagnostics | None = Field(
        None,
        description="Asks for diagnostics of the cache, such as {previous_message_id: msg_...}.",
    )

    def sampling(self, defaults: SamplingParams) -> SamplingParams:
        """How to choose tokens; the model's ``defaults`` stand for what was left out."""
        return replace(
            defaults,
            temperature=defaults.temperature if self.temperature is None else self.temperature,
            top_p=defaults.top_p if self.top_p is None else self.top_p,
            top_k=defaults.top_k if self.top_k is None else self.top_k,
        )


class CountRequest(ConversationFields):
    """The body of POST /v1/messages/count_tokens: that of a message. Fields that say how to answer
    are not needed."""
