"""The messages of a chat request."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)

_OPEN = ConfigDict(extra="allow", strict=True)


def as_sent(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """A value as it was sent: another order of its keys would be another prompt."""
    check(value)
    return value


def _content(value: object) -> str | None:
    """A message's text. Parts are joined with nothing between them: no text is ours."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ValueError("content must be a string, null or a list of text parts.")
    texts = []
    for index, part in enumerate(value):
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(kind, str):
            raise ValueError(f"content[{index}] must be an object with a type.")
        if kind != "text":
            raise ValueError(
                f"content[{index}] is of type {kind[:60]!r}, which is not supported. Send only "
                "parts of type 'text'."
            )
        text = part.get("text")
        if not isinstance(text, str):
            raise ValueError(f"content[{index}].text must be a string.")
        texts.append(text)
    return "".join(texts)


Content = Annotated[
    str | None,
    PlainValidator(_content),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["type", "text"],
                        "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
                    },
                },
                {"type": "null"},
            ]
        }
    ),
]


class CalledFunction(BaseModel):
    """What was called with what."""

    model_config = _OPEN

    name: str = Field(min_length=1, description="The tool's name.")
    arguments: str | dict[str, Any] | None = Field(
        None, description="A JSON object, as a string; none is an empty one."
    )


class ToolCall(BaseModel):
    """A tool call of an earlier turn."""

    model_config = _OPEN

    id: str | None = Field(None, description="What the tool's message calls it.")
    type: Literal["function"] | None = Field(None, description="Only function.")
    function: CalledFunction


class Message(BaseModel):
    """One message. Fields not listed here (name, tool_call_id, ...) reach the chat template too."""

    model_config = _OPEN

    role: Literal["system", "developer", "user", "assistant", "tool"] = Field(
        description="Who speaks. developer is another name for system."
    )
    content: Content = Field(
        None,
        description="A string or a list of text parts. null only for an assistant's message "
        "with tool_calls or reasoning_content.",
    )
    tool_calls: list[Annotated[ToolCall, WrapValidator(as_sent)]] | None = Field(
        None, description="The tool calls that an assistant's message made."
    )
    reasoning_content: str | None = Field(
        None,
        description="What an assistant's message thought before it spoke, as its answer had it; "
        "the chat template decides whether the model sees it again.",
    )
    reasoning: str | None = Field(None, description="Another name for reasoning_content.")

    @model_validator(mode="after")
    def _has_content(self) -> Message:
        has_more = bool(self.tool_calls or self.reasoning_content or self.reasoning)
        if self.content is None and not (self.role == "assistant" and has_more):
            raise ValueError(
                "content is missing: only an assistant's message with tool_calls may leave it out."
            )
        return self

    def for_template(self) -> dict[str, Any]:
        """What chat templates expect: a string for content, and no field that was not sent."""
        extra = (self.model_extra or {}).items()
        fields = {name: value for name, value in extra if value is not None}
        if self.tool_calls:
            fields["tool_calls"] = self.tool_calls
        thought = self.reasoning if self.reasoning_content is None else self.reasoning_content
        if thought:
            fields["reasoning_content"] = thought
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": self.content or "", **fields}
