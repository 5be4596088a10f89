"""The tools of a chat request, and whether the model may, must or must not call one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, WrapValidator

from server.http.errors import ApiError
from server.http.openai.chat_message import as_sent
from server.http.tool_use import Definition, ToolUse

_OPEN = ConfigDict(extra="allow", strict=True)


class Function(BaseModel):
    """What a tool does and takes."""

    model_config = _OPEN

    name: str = Field(min_length=1, description="The name that a call uses.")
    description: str | None = Field(None, description="What it does, for the model.")
    parameters: dict[str, Any] | None = Field(None, description="A JSON schema of what it takes.")


class Tool(BaseModel):
    """A tool that the model may call."""

    model_config = _OPEN

    type: Literal["function"] = Field(description="Only function.")
    function: Function


class NamedFunction(BaseModel):
    """A tool's name."""

    model_config = _OPEN

    name: str = Field(min_length=1, description="The name of one of the tools.")


class NamedTool(BaseModel):
    """The one tool that the model must call."""

    model_config = _OPEN

    type: Literal["function"] = Field(description="Only function.")
    function: NamedFunction


class ToolFields(BaseModel):
    """The fields of a body."""

    tools: list[Annotated[Tool, WrapValidator(as_sent)]] | None = Field(
        None, description="The tools that the model may call, a list; given to the chat template."
    )
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = Field(
        None,
        description="auto (default): the model may call tools; none: it must not; required: it "
        "must; or the one that it must call, {type: function, function: {name: ...}}.",
    )
    parallel_tool_calls: bool | None = Field(
        None, description="false: at most one call in an answer. Default true."
    )

    def tool_use(self) -> ToolUse:
        """What the fields ask for together. Raises ApiError 400."""
        # Each was checked to be a tool, and kept as it was sent.
        definitions = cast("list[Definition]", self.tools or [])
        choice = self.tool_choice or "auto"
        several = self.parallel_tool_calls is not False
        if choice in ("none", "auto"):
            return ToolUse(definitions, (), bool(definitions) and choice == "auto", several)
        if not definitions:
            raise ApiError(
                400,
                "tool_choice asks for a call, but there are no tools. Send tools, or auto as "
                "tool_choice.",
                param="tool_choice",
                code="invalid_value",
            )
        if not isinstance(choice, NamedTool):
            return ToolUse(definitions, definitions, True, several)
        name = choice.function.name
        named = [each for each in definitions if each["function"]["name"] == name]
        if not named:
            raise ApiError(
                400,
                f"tool_choice names {name[:60]!r}, which is none of the tools. Send the name of "
                "one of them.",
                param="tool_choice",
                code="invalid_value",
            )
        return ToolUse(definitions, named[:1], True, several=False)


def refuse_functions(extra: Mapping[str, Any]) -> None:
    """Raise ApiError 400 for the forerunners of tools, whose answers look different."""
    for old, new in (("functions", "tools"), ("function_call", "tool_choice")):
        if extra.get(old) not in (None, [], "auto", "none"):
            raise ApiError(
                400,
                f"{old} is not supported by this server. Send {new} instead; calls come as "
                "tool_calls.",
                param=old,
                code="unsupported_parameter",
            )
