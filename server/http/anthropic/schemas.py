"""The shapes of answers in Anthropic's form, for the OpenAPI description."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, RootModel

from server.http.diagnosis_schemas import MessageDiagnostics
from server.http.schemas import CacheRetention, Exact, MatchEndBody

StopReason = Literal[
    "end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"
]


class TextOut(Exact):
    """What the model says."""

    type: Literal["text"]
    text: str


class ThinkingOut(Exact):
    """What it thinks before."""

    type: Literal["thinking"]
    thinking: str
    signature: str = Field(description="A hash of these thoughts. Nothing is proved by it.")


class ToolUseOut(Exact):
    """A call of a tool."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any] = Field(
        description="As far as it came, where the answer was cut off inside (max_tokens)."
    )


BlockOut = Annotated[TextOut | ThinkingOut | ToolUseOut, Discriminator("type")]


class CacheCreation(Exact):
    """For how long what was written stays."""

    ephemeral_5m_input_tokens: int = Field(ge=0)
    ephemeral_1h_input_tokens: int = Field(ge=0)


class MessagesUsage(Exact):
    """Token counts; the first three sum to the prompt."""

    input_tokens: int = Field(ge=0, description="Of the prompt, neither read nor written.")
    cache_creation_input_tokens: int = Field(
        ge=0, description="Computed now, and kept for cache_control: whole blocks."
    )
    cache_read_input_tokens: int = Field(ge=0, description="Taken from the prefix cache.")
    cache_creation: CacheCreation
    output_tokens: int = Field(ge=0)
    match_end: MatchEndBody | None = Field(description="Why no more was read.")
    cache_retention: CacheRetention | None = Field(
        None, description="Where cache_control or cache_retention_s asked for it."
    )


class Message(Exact):
    """A whole answer."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[BlockOut]
    stop_reason: StopReason | None = Field(description="null: more follows.")
    stop_sequence: str | None = Field(description="Which of stop_sequences ended it.")
    usage: MessagesUsage
    diagnostics: MessageDiagnostics | None = Field(
        None, description="Where it was asked for; null: nothing was missed."
    )


class MessageStart(Exact):
    """The message, without content."""

    type: Literal["message_start"]
    message: Message


class ContentBlockStart(Exact):
    """A block begins."""

    type: Literal["content_block_start"]
    index: int = Field(ge=0)
    content_block: BlockOut


class TextDelta(Exact):
    """More text."""

    type: Literal["text_delta"]
    text: str


class ThinkingDelta(Exact):
    """More thoughts."""

    type: Literal["thinking_delta"]
    thinking: str


class SignatureDelta(Exact):
    """The end of thoughts."""

    type: Literal["signature_delta"]
    signature: str


class InputJsonDelta(Exact):
    """More of a call's input: all pieces together are a JSON object."""

    type: Literal["input_json_delta"]
    partial_json: str


class ContentBlockDelta(Exact):
    """More of a block."""

    type: Literal["content_block_delta"]
    index: int = Field(ge=0)
    delta: Annotated[
        TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta, Discriminator("type")
    ]


class ContentBlockStop(Exact):
    """A block is complete."""

    type: Literal["content_block_stop"]
    index: int = Field(ge=0)


class StopDelta(Exact):
    """Why the answer has ended."""

    stop_reason: StopReason
    stop_sequence: str | None


class MessageDelta(Exact):
    """The end of the answer, with all its counts."""

    type: Literal["message_delta"]
    delta: StopDelta
    usage: MessagesUsage


class MessageStop(Exact):
    """Nothing follows."""

    type: Literal["message_stop"]


class Ping(Exact):
    """The answer is still on its way."""

    type: Literal["ping"]


class MessagesErrorDetails(Exact):
    """More about an error, for programs."""

    error_code: str | None = Field(None, description="A stable word.")
    param: str | None = Field(None, description="The field it is about.")


class MessagesErrorDetail(Exact):
    """What went wrong and what to do."""

    type: str
    message: str
    details: MessagesErrorDetails | None = None


class MessagesError(Exact):
    """Every answer other than 200, and the end of a stream that cannot go on."""

    type: Literal["error"]
    error: MessagesErrorDetail
    request_id: str | None = Field(description="null: refused before it had one.")


class MessageEvent(
    RootModel[
        Annotated[
            MessageStart
            | ContentBlockStart
            | ContentBlockDelta
            | ContentBlockStop
            | MessageDelta
            | MessageStop
            | Ping
            | MessagesError,
            Discriminator("type"),
        ]
    ]
):
    """An event of a streamed answer; its name is its type."""


class TokensCount(Exact):
    """How many tokens a conversation is."""

    input_tokens: int = Field(ge=0)
