"""The blocks that a message's content is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

_OPEN = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)
_SHOWN_CHARACTERS = 60


class CacheControl(BaseModel):
    """Marks the end of a prefix that is to stay cached."""

    model_config = _OPEN

    type: Literal["ephemeral"] = Field(description="Only ephemeral.")
    ttl: Literal["5m", "1h"] | None = Field(
        None, description="For how long it stays after each use, 5m (default) or 1h."
    )

    @property
    def seconds(self) -> float:
        """For how long."""
        return 3600.0 if self.ttl == "1h" else 300.0


class Block(BaseModel):
    """What all blocks have."""

    model_config = _OPEN


class Markable(Block):
    """A block that may end a prefix."""

    cache_control: CacheControl | None = Field(
        None, description="Keep the prompt up to the end of this block cached."
    )


class TextBlock(Markable):
    """Text."""

    type: Literal["text"]
    text: str


class ToolUseBlock(Markable):
    """A tool call that an earlier answer made."""

    type: Literal["tool_use"]
    id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    input: dict[str, Any]


class ThinkingBlock(Block):
    """What an earlier answer thought before it spoke; the chat template decides whether the model
    sees it again. The signature is not looked at."""

    type: Literal["thinking"]
    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(Block):
    """Somebody else's thoughts, which nobody here can read: they are left out."""

    type: Literal["redacted_thinking"]
    data: str


class ToolReferenceBlock(Markable):
    """The name of a tool that was found by a search for tools. All tools are shown anyway, so it
    is left out."""

    type: Literal["tool_reference"]
    tool_name: str


def _texts(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    return value if value is None else blocks_of(value, {"text": TextBlock})


def _results(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    return value if value is None else blocks_of(value, _RESULT_KINDS)


# Each may be sent as a string, too, which is one block of text.
Texts = Annotated[str | list[TextBlock] | None, WrapValidator(_texts)]
Results = Annotated[
    str | list[Annotated[TextBlock | ToolReferenceBlock, Discriminator("type")]] | None,
    WrapValidator(_results),
]
_RESULT_KINDS: Mapping[str, type[TextBlock | ToolReferenceBlock]] = {
    "text": TextBlock,
    "tool_reference": ToolReferenceBlock,
}


class ToolResultBlock(Markable):
    """What came of a tool call."""

    type: Literal["tool_result"]
    tool_use_id: str = Field(min_length=1)
    content: Results = None
    is_error: bool | None = None


AnyBlock = TextBlock | ToolUseBlock | ToolResultBlock | ThinkingBlock | RedactedThinkingBlock
_KINDS: Mapping[str, type[AnyBlock]] = {
    "text": TextBlock,
    "tool_use": ToolUseBlock,
    "tool_result": ToolResultBlock,
    "thinking": ThinkingBlock,
    "redacted_thinking": RedactedThinkingBlock,
}


def _content(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    return blocks_of(value, _KINDS)


Content = Annotated[
    str | list[Annotated[AnyBlock, Discriminator("type")]],
    WrapValidator(_content),
]

Kind = TypeVar("Kind", bound=Block)


def blocks_of(value: Any, kinds: Mapping[str, type[Kind]]) -> list[Kind]:
    """Blocks of these kinds, by the words in ``type``; a string is one of text. Raises ValueError
    that says where one is wrong."""
    if isinstance(value, str):
        value = [{"type": "text", "text": value}]
    if not isinstance(value, list):
        raise ValueError("content must be a string or a list of blocks.")
    return [_block(each, f"content[{index}]", kinds) for index, each in enumerate(value)]


def _block(value: Any, name: str, kinds: Mapping[str, type[Kind]]) -> Kind:
    word = value.get("type") if isinstance(value, dict) else None
    if not isinstance(word, str):
        raise ValueError(f"{name} must be an object with a type.")
    kind = kinds.get(word)
    if kind is None:
        raise ValueError(
            f"{name} is of type {word[:_SHOWN_CHARACTERS]!r}, which is not supported. Send only "
            f"blocks of type {', '.join(kinds)}."
        )
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise ValueError(_problem(error, name)) from None


def _problem(error: ValidationError, name: str) -> str:
    """The first of what is wrong with a block."""
    first = error.errors(include_url=False)[0]
    place = ".".join([name, *map(str, first["loc"])])
    if first["type"] == "missing":
        return f"{place} is required."
    if first["type"] == "value_error":  # of blocks inside, which know their place
        return f"{name}.{first['ctx']['error']}"
    return f"{place} {first['msg'].removeprefix('Input ')}."
