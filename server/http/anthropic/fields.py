"""The fields that tell a conversation, which messages and the count of their tokens share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, model_validator

from server.chat.prompt import ChatOptions
from server.constraint import Constraint
from server.http.anthropic.blocks import CacheControl, TextBlock, Texts, ToolResultBlock
from server.http.anthropic.conversation import Conversation, conversation_of
from server.http.anthropic.message import InputMessage
from server.http.anthropic.tools import Tool, ToolChoice, tool_use
from server.http.cache_fields import MOST_BREAKPOINTS, CacheFields
from server.http.engine_like import TextLike
from server.http.errors import ApiError
from server.http.model_names import ModelNames
from server.http.tool_use import ToolUse

_OPEN = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)
_THINKING, _EFFORT = "enable_thinking", "reasoning_effort"
_LEFT_OUT = ("redacted_thinking", "tool_reference")
# Templates that look at an effort know three.
_KNOWN_EFFORT = {"xhigh": "high", "max": "high"}


class Thinking(BaseModel):
    """Whether the model reasons before it answers."""

    model_config = _OPEN

    type: Literal["enabled", "disabled", "adaptive", "between_tools"] = Field(
        description="disabled: it does not; else it does. Given to the chat template, if it looks "
        "at it (enable_thinking)."
    )


class JsonFormat(BaseModel):
    """The JSON schema of an answer."""

    model_config = _OPEN

    type: Literal["json_schema"] = Field(description="Only json_schema.")
    schema_: dict[str, Any] = Field(
        alias="schema",
        description="A JSON schema. Keywords that cannot be kept to are refused.",
    )


class OutputConfig(BaseModel):
    """What the answer is like."""

    model_config = _OPEN

    format: JsonFormat | None = Field(None, description="What the answer has to be.")
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = Field(
        None, description="Given to the chat template, if it looks at it (reasoning_effort)."
    )


class ConversationFields(CacheFields):
    """The fields of a body."""

    model_config = _OPEN

    model: str | None = Field(
        None,
        description="The served model's name, or one that --model-alias lets stand for it; may be "
        "left out.",
    )
    messages: list[InputMessage] = Field(
        min_length=1, description="The conversation so far, a list of at least one message."
    )
    system: Texts = Field(None, description="The system prompt, a string or blocks of text.")
    tools: list[Tool] | None = Field(None, description="The tools that the model may call.")
    tool_choice: ToolChoice | None = Field(
        None, description="How it may use them, such as {type: auto} (default)."
    )
    thinking: Thinking | None = Field(
        None, description="Whether the model reasons first, such as {type: disabled}."
    )
    output_config: OutputConfig | None = Field(
        None, description="What the answer has to be, an object with format and effort."
    )
    cache_control: CacheControl | None = Field(
        None, description="Keep the whole prompt cached, such as {type: ephemeral, ttl: 1h}."
    )

    @model_validator(mode="wrap")
    @classmethod
    def _keep_marks(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Here ``cache_control`` marks prefixes, and nothing else."""
        return handler(data)

    def check(self, names: ModelNames) -> None:
        """Raise ApiError for another model's name (404), or for what is not there (400)."""
        names.check(self.model)
        if (self.model_extra or {}).get("mcp_servers"):
            raise ApiError(
                400,
                "mcp_servers is not supported by this server. Leave it out; tools that the client "
                "runs go into tools.",
                param="mcp_servers",
                code="unsupported_parameter",
            )

    def conversation(self, *, strict_turns: bool = False) -> Conversation:
        """What is said, with its marks; see `conversation_of`. Raises ApiError 400."""
        system = [block for block in self.system or () if isinstance(block, TextBlock)]
        told = conversation_of(
            system,
            self.messages,
            self.tools or (),
            self.cache_control,
            strict_turns=strict_turns,
        )
        if len(told.marks) > MOST_BREAKPOINTS:
            raise ApiError(
                400,
                f"cache_control is in {len(told.marks)} places; the limit is {MOST_BREAKPOINTS}. "
                "Leave it only where prefixes end that other requests share.",
                param="cache_control",
                code="invalid_value",
            )
        return told

    def tool_use(self) -> ToolUse:
        """Which tools there are, and how they may be used. Raises ApiError 400."""
        return tool_use(self.tools or (), self.tool_choice)

    def chat_options(self, text: TextLike, conversation: Conversation) -> ChatOptions:
        """How the conversation is made ready."""
        variables: dict[str, Any] = {}
        if self.thinking is not None and text.knows_variable(_THINKING):
            variables[_THINKING] = self.thinking.type != "disabled"
        effort = self.output_config and self.output_config.effort
        if effort and text.knows_variable(_EFFORT):
            variables[_EFFORT] = _KNOWN_EFFORT.get(effort, effort)
        return ChatOptions(
            add_generation_prompt=not conversation.continues,
            continue_final_message=conversation.continues,
            variables=variables,
        )

    def constraint(self) -> Constraint | None:
        """What the answer has to be."""
        asked = self.output_config and self.output_config.format
        if not asked:
            return None
        return Constraint("json_schema", json.dumps(asked.schema_), "output_config.format")

    def ignored(self, text: TextLike) -> tuple[str, ...]:
        """Names of what was sent and has no effect, each once."""
        names = [*(self.model_extra or {}), *self._without_template(text)]
        for tool in self.tools or ():
            names += tool.ignored()
        for block in self._blocks():
            names += _extra("content", block)
            names += [block.type] if block.type in _LEFT_OUT else []
        names += _extra("thinking", self.thinking)
        names += _extra("output_config", self.output_config)
        names += _extra("tool_choice", self.tool_choice)
        for mark in self._cache_controls():
            names += _extra("cache_control", mark)
        return tuple(dict.fromkeys(names))

    def _without_template(self, text: TextLike) -> Iterator[str]:
        """Of the fields that only the chat template acts on, those that it does not look at."""
        if self.tools and not text.takes_tools:
            yield "tools"
        if self.thinking is not None and not text.knows_variable(_THINKING):
            yield "thinking"
        if self.output_config and self.output_config.effort and not text.knows_variable(_EFFORT):
            yield "output_config.effort"
        if self.output_config and self.output_config.format and self.tool_use().must_call:
            yield "output_config.format"  # a call is no content

    def _cache_controls(self) -> Iterator[CacheControl]:
        for each in (self, *(self.tools or ()), *self._blocks()):
            mark = getattr(each, "cache_control", None)
            if mark is not None:
                yield mark

    def _blocks(self) -> Iterator[Any]:
        yield from self.system or ()
        for message in self.messages:
            for block in message.blocks:
                yield block
                if isinstance(block, ToolResultBlock):
                    yield from block.content or ()


def _extra(where: str, part: BaseModel | None) -> Iterable[str]:
    """Names of what was sent inside of a field and nobody here knows."""
    extra = part.model_extra if part is not None else None
    return (f"{where}.{name}" for name, value in (extra or {}).items() if value is not None)
