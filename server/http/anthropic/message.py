"""The messages of a messages request."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from server.http.anthropic.blocks import AnyBlock, Content

# What each may say.
_KINDS = {
    "user": ("text", "tool_result"),
    "assistant": ("text", "tool_use", "thinking", "redacted_thinking"),
    "system": ("text",),
}


class InputMessage(BaseModel):
    """One message. Those of one role in a row are one turn."""

    model_config = ConfigDict(extra="allow", strict=True)

    role: Literal["user", "assistant", "system"] = Field(description="Who speaks.")
    content: Content = Field(description="A string, or a list of blocks.")

    @property
    def blocks(self) -> list[AnyBlock]:
        """Its content."""
        assert isinstance(self.content, list)  # the validator has made it one
        return self.content

    @model_validator(mode="after")
    def _may_say_it(self) -> InputMessage:
        if not self.blocks:
            raise ValueError("content is empty; it must have at least one block.")
        for index, block in enumerate(self.blocks):
            if block.type not in _KINDS[self.role]:
                raise ValueError(
                    f"content[{index}] is of type {block.type!r}, which is not for the role "
                    f"{self.role}. Send only blocks of type {', '.join(_KINDS[self.role])} there."
                )
        return self
