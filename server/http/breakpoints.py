"""Marks in a conversation, and how many tokens of its rendering come before them.

::

    rendered    <system>You are ...  |  Hello<end><assistant>
    changed     <system>You are ...  |  *Hello<end><assistant>      * a character put at the mark
                                     ^ the first difference

A template may move text, trim it, or leave it out. So nothing is assumed of it: the conversation is
rendered again with a character put at the mark, and what both renderings begin with comes before
it. The mark stands for the tokens that end there or earlier, as their bytes tell. Whatever follows
in another request, these tokens are the same, unless the tokenizer joins the last of them with it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from server.common_prefix import common_prefix
from server.errors import RequestRefused
from server.http.engine_like import TextLike

Messages = list[dict[str, Any]]
Tools = list[dict[str, Any]] | None
Render = Callable[[Messages, Tools], str]

_PRIVATE_USE = range(0xE000, 0xF900)


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a conversation: after tool number ``tool``; or in message number ``message``,
    after so many ``characters`` of its text, or after all of it, its tool calls too (None)."""

    message: int | None = None
    characters: int | None = None
    tool: int | None = None


def tokens_before_marks(
    text: TextLike,
    ids: Sequence[int],
    whole: str,
    render: Render,
    messages: Messages,
    tools: Tools,
    marks: Sequence[Mark],
) -> list[int]:
    """How many of a conversation's tokens come before each mark: 0 where the template does not show
    what is marked.

    ``ids`` and ``whole``: its tokens and their text, which ``render`` makes of it. Cost: a
    rendering a mark, and a look at each token.
    """
    if not marks:
        return []
    places = [_place(render, whole, messages, tools, mark) for mark in marks]
    return tokens_before(text, ids, whole, places)


def tokens_before(
    text: TextLike, ids: Sequence[int], whole: str, places: Sequence[int]
) -> list[int]:
    """How many of a text's first tokens lie within its first so many characters, for each of these
    ``places``.

    By the tokens' bytes. Where these are not just the text's (a tokenizer may put a space before
    it, or leave something out), a token or two fewer than there are, never more.
    """
    ends = list(accumulate(len(text.token_text(token).data) for token in ids))
    missing = max(0, len(whole.encode()) - (ends[-1] if ends else 0))
    return [
        bisect_right(ends, len(whole[:place].encode()) - missing) if place else 0
        for place in places
    ]


def unused_character(text: str) -> str:
    """A character that the text does not have, and that no text is likely to begin with."""
    return next(chr(code) for code in _PRIVATE_USE if chr(code) not in text)


def _place(render: Render, whole: str, messages: Messages, tools: Tools, mark: Mark) -> int:
    """After how many characters of the rendering a mark is."""
    character = unused_character(whole)
    for changed in _changed(messages, tools, mark, character):
        try:
            text = render(*changed)
        except RequestRefused:
            continue
        if text != whole:
            return common_prefix(whole, text)
    return 0


def _changed(
    messages: Messages, tools: Tools, mark: Mark, character: str
) -> list[tuple[Messages, Tools]]:
    """The conversation with a character at the mark; further back, where that does not show."""
    if mark.tool is not None:
        of_tools = list(tools or [])
        of_tools.insert(mark.tool + 1, _tool(character))
        return [(messages, of_tools)]
    if mark.message is None:
        raise ValueError("a mark must be in a message, or after a tool")
    message = messages[mark.message]
    ways = []
    if mark.characters is None and message.get("tool_calls"):
        ways.append({**message, "tool_calls": _called(message["tool_calls"], character)})
    content = message.get("content")
    ways.append({**message, "content": _content(content, mark.characters, character)})
    before, after = messages[: mark.message], messages[mark.message + 1 :]
    return [([*before, way, *after], tools) for way in ways]


def _content(content: Any, characters: int | None, character: str) -> Any:
    """A message's text, a string or parts of it, with a character after so many others."""
    if not isinstance(content, list):
        text = content or ""
        end = len(text) if characters is None else characters
        return text[:end] + character + text[end:]
    parts = list(content)
    left = characters
    for index, part in enumerate(parts):
        text = part.get("text") if isinstance(part, dict) else None
        if not isinstance(text, str):
            continue
        if left is not None and left <= len(text):
            parts[index] = {**part, "text": text[:left] + character + text[left:]}
            return parts
        left = None if left is None else left - len(text)
    return [*parts, {"type": "text", "text": character}]


def _called(calls: Sequence[Any], character: str) -> list[Any]:
    """Tool calls with a character at the end of the last one's arguments."""
    *others, last = calls
    function = dict(last.get("function") or {})
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        function["arguments"] = {**arguments, character: ""}
    else:
        text = str(arguments or "{}").rstrip().removesuffix("}")
        comma = "" if text.rstrip().endswith("{") else ", "
        function["arguments"] = f'{text}{comma}"{character}": ""}}'
    return [*others, {**last, "function": function}]


def _tool(character: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {}}
    function = {"name": character, "description": character, "parameters": parameters}
    return {"type": "function", "function": function}
