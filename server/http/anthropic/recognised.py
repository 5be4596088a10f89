"""Whether a body is one of this API, where nothing else says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FIELDS = ("system", "thinking", "anthropic_version")
_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking")


def is_messages_body(body: Mapping[str, Any]) -> bool:
    """Whether a body has what only Anthropic's API knows. Nothing of it need be checked."""
    if any(name in body for name in _FIELDS):
        return True
    if any("input_schema" in each for each in _objects(body.get("tools"))):
        return True
    return any(
        block.get("type") in _BLOCKS
        for message in _objects(body.get("messages"))
        for block in _objects(message.get("content"))
    )


def _objects(value: object) -> list[dict[str, Any]]:
    """The objects of a list; none where it is no list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
