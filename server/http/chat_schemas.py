"""The shapes of a chat's answers, for the OpenAPI description."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from server.http.diagnosis_schemas import PromptCacheDiagnostics
from server.http.schemas import STOP_REASON, Exact, StopReason, UsageBody

ChatFinishReason = Literal["stop", "length", "tool_calls", "abort"]
FINISH_REASON = (
    "stop: end of text or a stop string; tool_calls: the same, and a tool is called; length: a "
    "limit; abort: the server ended"
)


class TopLogprob(Exact):
    """A token that could have come."""

    token: str = Field(description="Its text; bytes:... where it is no whole character.")
    logprob: float = Field(description="At least -9999.")
    bytes: list[int]


class ContentLogprob(TopLogprob):
    """A token of the answer, with the likeliest in its place."""

    top_logprobs: list[TopLogprob]


class ChatLogprobsBody(Exact):
    """The tokens of a message, or of a piece of it, with their log-probabilities in the model's own
    distribution."""

    content: list[ContentLogprob]
    refusal: None = None


class CalledFunctionBody(Exact):
    """Which tool is called with what."""

    name: str
    arguments: str = Field(
        description="A JSON object. Only where the answer was cut off, or the model made a "
        "mistake, it is none."
    )


class ToolCallBody(Exact):
    """A call that the model makes."""

    id: str = Field(description="For the message with the tool's answer.")
    type: Literal["function"]
    function: CalledFunctionBody


class AnswerMessage(Exact):
    """The assistant's message."""

    role: Literal["assistant"]
    content: str | None = Field(description="null: there are only tool calls.")
    refusal: None = None
    reasoning_content: str | None = Field(None, description="What the model thought before.")
    tool_calls: list[ToolCallBody] | None = None


class ChatChoice(Exact):
    """One answer to the conversation."""

    index: int = Field(ge=0, description="The number of the answer, from 0.")
    message: AnswerMessage
    logprobs: ChatLogprobsBody | None = None
    finish_reason: ChatFinishReason = Field(description=f"{FINISH_REASON}.")
    stop_reason: StopReason = STOP_REASON


class ChatCompletion(Exact):
    """A whole answer."""

    id: str
    object: Literal["chat.completion"]
    created: int = Field(description="Seconds since 1970.")
    model: str
    choices: list[ChatChoice]
    usage: UsageBody
    prompt_cache_diagnostics: PromptCacheDiagnostics | None = Field(
        None, description="Where it was asked for."
    )


class FunctionDelta(Exact):
    """The name comes first, then the arguments piece by piece."""

    name: str | None = None
    arguments: str


class ToolCallDelta(Exact):
    """What a chunk adds to a call."""

    index: int = Field(ge=0, description="The number of the call, from 0.")
    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionDelta


class Delta(Exact):
    """What a chunk adds to the message."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallDelta] | None = None


class ChunkChoice(Exact):
    """A piece of the answer."""

    index: int = Field(ge=0)
    delta: Delta
    logprobs: ChatLogprobsBody | None = None
    finish_reason: ChatFinishReason | None = Field(
        description=f"{FINISH_REASON}; null: more follows."
    )
    stop_reason: StopReason = STOP_REASON


class ChatCompletionChunk(Exact):
    """One event of a streamed answer; the stream ends with ``data: [DONE]``."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int = Field(description="Seconds since 1970.")
    model: str
    choices: list[ChunkChoice]
    usage: UsageBody | None = None
    prompt_cache_diagnostics: PromptCacheDiagnostics | None = Field(
        None, description="Where it was asked for, beside usage."
    )
