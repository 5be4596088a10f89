"""The tools of a messages request, and whether the model may, must or must not call one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from server.http.anthropic.blocks import Markable
from server.http.errors import ApiError
from server.http.tool_use import Definition, ToolUse

_OPEN = ConfigDict(extra="allow", strict=True)
# Of a tool: what asks for what is done anyway.
_HARMLESS = ("eager_input_streaming",)


class Tool(Markable):
    """A tool that the model may call, and the client runs."""

    type: Literal["custom"] | None = Field(None, description="Only custom.")
    name: str = Field(min_length=1, description="The name that a call uses.")
    description: str | None = Field(None, description="What it does, for the model.")
    input_schema: dict[str, Any] = Field(description="A JSON schema of what it takes.")

    @model_validator(mode="before")
    @classmethod
    def _is_custom(cls, value: Any) -> Any:
        kind = value.get("type") if isinstance(value, dict) else None
        if isinstance(kind, str) and kind != "custom":
            raise ValueError(
                f"a tool of type {kind[:60]!r} is not supported: what it takes and does is not "
                "told. Send only tools with a name and an input_schema, of type custom."
            )
        return value

    def for_template(self) -> Definition:
        """As chat templates expect it."""
        function: dict[str, Any] = {"name": self.name}
        if self.description is not None:
            function["description"] = self.description
        return {"type": "function", "function": {**function, "parameters": self.input_schema}}

    def ignored(self) -> list[str]:
        """Names of what was sent with it and has no effect."""
        return [
            f"tools.{name}"
            for name, value in (self.model_extra or {}).items()
            if value not in (None, False) and name not in _HARMLESS
        ]


class ToolChoice(BaseModel):
    """How the model may use the tools."""

    model_config = _OPEN

    type: Literal["auto", "any", "tool", "none"] = Field(
        description="auto: it may call them; any: it must call one; tool: it must call the one of "
        "this name; none: it must not call any."
    )
    name: str | None = Field(None, description="With type tool.")
    disable_parallel_tool_use: bool | None = Field(
        None, description="true: at most one call in an answer. Default false."
    )


def tool_use(tools: Sequence[Tool], choice: ToolChoice | None) -> ToolUse:
    """What tools and choice ask for together. Raises ApiError 400."""
    definitions = [tool.for_template() for tool in tools]
    kind = "auto" if choice is None else choice.type
    several = choice is None or not choice.disable_parallel_tool_use
    if choice is None or kind in ("auto", "none"):
        return ToolUse(definitions, (), bool(definitions) and kind == "auto", several)
    if not definitions:
        raise _wrong("it asks for a call, but there are no tools. Send tools, or type auto.")
    if kind == "any":
        return ToolUse(definitions, definitions, True, several)
    named = [each for each in definitions if each["function"]["name"] == choice.name]
    if not named:
        shown = (choice.name or "")[:60]
        raise _wrong(f"it names {shown!r}, which is none of the tools. Send the name of one.")
    return ToolUse(definitions, named[:1], True, several=False)


def _wrong(message: str) -> ApiError:
    return ApiError(400, message, param="tool_choice", code="invalid_value")
