"""From an answer's parts to blocks of content: as events of a stream, or whole."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from pydantic_core import from_json

from server.chat.events import AnswerEvent, ContentText, ReasoningText, ToolCallBegin

Event = dict[str, Any]


class ContentEvents:
    """The events that build an answer's blocks, one after the other."""

    def __init__(self) -> None:
        self._index = -1
        self._open: str | None = None  # the type of the block that goes on
        self._thoughts = sha256()

    def of(self, parts: Iterable[AnswerEvent]) -> list[Event]:
        """The events for the next parts of the answer."""
        events: list[Event] = []
        for part in parts:
            if isinstance(part, ReasoningText):
                events += self._begin("thinking", {"thinking": "", "signature": ""})
                self._thoughts.update(part.text.encode())
                events.append(self._delta("thinking_delta", "thinking", part.text))
            elif isinstance(part, ContentText):
                events += self._begin("text", {"text": ""})
                events.append(self._delta("text_delta", "text", part.text))
            elif isinstance(part, ToolCallBegin):
                events += self.end()
                call = {"id": part.call_id, "name": part.name, "input": {}}
                events += self._begin("tool_use", call)
            else:
                events.append(self._delta("input_json_delta", "partial_json", part.text))
        return events

    def end(self) -> list[Event]:
        """No more comes of the block that is open."""
        if self._open is None:
            return []
        events = []
        if self._open == "thinking":
            # Clients expect one. It says which thoughts these were; nothing is proved by it.
            signature = base64.b64encode(self._thoughts.digest()).decode()
            events.append(self._delta("signature_delta", "signature", signature))
            self._thoughts = sha256()
        self._open = None
        return [*events, {"type": "content_block_stop", "index": self._index}]

    def _begin(self, kind: str, block: dict[str, Any]) -> list[Event]:
        """A block of this type, where none is open."""
        if self._open == kind:
            return []
        ended = self.end()
        self._index += 1
        self._open = kind
        begun = {"type": kind, **block}
        return [
            *ended,
            {"type": "content_block_start", "index": self._index, "content_block": begun},
        ]

    def _delta(self, kind: str, name: str, text: str) -> Event:
        delta = {"type": kind, name: text}
        return {"type": "content_block_delta", "index": self._index, "delta": delta}


def whole_blocks(events: Iterable[Event]) -> list[dict[str, Any]]:
    """The blocks that all events of an answer build."""
    blocks: list[dict[str, Any]] = []
    pieces: list[list[str]] = []
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append(dict(event["content_block"]))
            pieces.append([])
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            if delta["type"] == "signature_delta":
                blocks[-1]["signature"] = delta["signature"]
            else:
                (text,) = (value for name, value in delta.items() if name != "type")
                pieces[-1].append(text)
    for block, texts in zip(blocks, pieces, strict=True):
        if block["type"] == "tool_use":
            block["input"] = _object("".join(texts))
        else:
            block[block["type"]] = "".join(texts)
    return blocks


def _object(text: str) -> dict[str, Any]:
    """A call's arguments; as much of them as came where the answer was cut off inside."""
    try:
        found = from_json(text or "{}", allow_partial=True)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
