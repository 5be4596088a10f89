"""A conversation in Anthropic's blocks, as chat templates expect it.

::

    assistant [thinking, text, tool_use]    ->  assistant, with reasoning_content and tool_calls
    user      [tool_result, text]           ->  tool, user

Blocks of text are joined with nothing between them: no text is ours. Messages of one role in a row
are one turn, as this API has it; of a user's, an empty line parts them.

Some templates are strict about turns: they take no user's words right after results, and a system
prompt only at the beginning. For these, such words can end the last result, after an empty line,
and later system prompts can be the user's words.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from server.http.anthropic.blocks import (
    CacheControl,
    Markable,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from server.http.anthropic.message import InputMessage
from server.http.anthropic.tools import Tool
from server.http.breakpoints import Mark
from server.http.errors import ApiError

_BETWEEN = "\n\n"
_ERROR = "Error: "


@dataclass(frozen=True, slots=True)
class Conversation:
    """``messages``: as templates expect them. ``marks``: the ends of prefixes that are to stay
    cached, and for how many seconds each. ``continues``: the last message is the assistant's, and
    the answer goes on where it ends."""

    messages: list[dict[str, Any]]
    marks: tuple[tuple[Mark, float], ...]
    continues: bool


def conversation_of(
    system: Sequence[TextBlock],
    messages: Sequence[InputMessage],
    tools: Sequence[Tool],
    automatic: CacheControl | None,
    *,
    strict_turns: bool = False,
) -> Conversation:
    """``automatic`` marks the last block, where that is not marked itself. ``strict_turns``: for
    templates that are strict about them. Raises ApiError 400 for a conversation that no answer can
    go on with."""
    turns = _Turns(strict_turns)
    for place, tool in enumerate(tools):
        turns.mark(tool, Mark(tool=place))
    if system:
        turns.system(system)
    for message in messages:
        turns.add(message)
    last = messages[-1].blocks[-1]
    is_marked = isinstance(last, Markable) and last.cache_control is not None
    return turns.ended(None if is_marked else automatic)


class _Turns:
    """A conversation so far."""

    def __init__(self, strict: bool) -> None:
        self._strict = strict
        self._messages: list[dict[str, Any]] = []
        self._marks: list[tuple[Mark, float]] = []

    def mark(self, block: Markable, mark: Mark) -> None:
        """Note that a block ends a prefix, if it does."""
        if block.cache_control is not None:
            self._marks.append((mark, block.cache_control.seconds))

    def system(self, blocks: Sequence[TextBlock]) -> None:
        """A system prompt."""
        self._messages.append({"role": "system", "content": ""})
        for block in blocks:
            self._say(block)

    def add(self, message: InputMessage) -> None:
        """A message of any role."""
        role = message.role
        if role == "system" and not (self._strict and self._messages):
            self.system([block for block in message.blocks if isinstance(block, TextBlock)])
            return
        role = "user" if role == "system" else role
        is_first = True  # of the text
        for block in message.blocks:
            if isinstance(block, ToolResultBlock):
                self._result(block)
                is_first = True
                continue
            turn = self._turn(role)
            if isinstance(block, TextBlock):
                if is_first and turn["role"] != "assistant" and turn["content"]:
                    turn["content"] += _BETWEEN
                is_first = False
                self._say(block)
            elif isinstance(block, ToolUseBlock):
                turn.setdefault("tool_calls", []).append(_call(block))
                self.mark(block, Mark(self._place))
            elif isinstance(block, ThinkingBlock) and block.thinking:
                turn["reasoning_content"] = turn.get("reasoning_content", "") + block.thinking

    def ended(self, automatic: CacheControl | None) -> Conversation:
        """All of it."""
        last = self._messages[-1]
        continues = last["role"] == "assistant"
        if continues and not last["content"]:
            if len(last) > 2:
                raise _no_text()
            continues = False  # nothing to go on with
            self._messages.pop()
        count = len(self._messages)
        if not count:
            raise _no_text()
        marks = [each for each in self._marks if each[0].message is None or each[0].message < count]
        if automatic is not None:
            marks.append((Mark(count - 1), automatic.seconds))
        return Conversation(self._messages, tuple(marks), continues)

    @property
    def _place(self) -> int:
        return len(self._messages) - 1

    def _turn(self, role: str) -> dict[str, Any]:
        """The message that this role is speaking in."""
        before = self._messages[-1]["role"] if self._messages else None
        goes_on = before == role or (before == "tool" and role == "user" and self._strict)
        if not goes_on:
            self._messages.append({"role": role, "content": ""})
        return self._messages[-1]

    def _say(self, block: TextBlock) -> None:
        """More text of the last message."""
        self._messages[-1]["content"] += block.text
        self.mark(block, Mark(self._place, len(self._messages[-1]["content"])))

    def _result(self, block: ToolResultBlock) -> None:
        texts = [each for each in block.content or () if isinstance(each, TextBlock)]
        whole = "".join(each.text for each in texts)
        # Templates have no other way to tell it, and most results tell it themselves.
        fails = block.is_error and "error" not in whole.lower()
        message = {"role": "tool", "content": "", "tool_call_id": block.tool_use_id}
        self._messages.append(message)
        message["content"] = _ERROR if fails else ""
        for text in texts:
            self._say(text)
        self.mark(block, Mark(self._place))


def _call(block: ToolUseBlock) -> dict[str, Any]:
    arguments = json.dumps(block.input, ensure_ascii=False)
    function = {"name": block.name, "arguments": arguments}
    return {"id": block.id, "type": "function", "function": function}


def _no_text() -> ApiError:
    return ApiError(
        400,
        "the last message is the assistant's and has no text, so an answer can neither go on with "
        "it nor follow it. End with a user's message, or with text to go on with.",
        param="messages",
        code="invalid_value",
    )
