"""Which part of a conversation a token of its prompt belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from server.chat.prompt import ChatOptions
from server.common_prefix import common_prefix
from server.errors import RequestRefused
from server.http.breakpoints import Messages, Tools, tokens_before
from server.http.engine_like import TextLike

TOOLS = "the tools"


@dataclass(frozen=True, slots=True)
class Sections:
    """``ends``: (tokens before its end, name), in order; none where the prompt has no parts."""

    ends: tuple[tuple[int, str], ...] = ()

    def at(self, token: int) -> str | None:
        """The part that a token is in; what the template writes before a message is the message's.
        None after the last one, or where nothing is known."""
        return next((name for end, name in self.ends if token < end), None)


def sections_of(
    text: TextLike,
    ids: Sequence[int],
    whole: str,
    messages: Messages,
    tools: Tools,
    options: ChatOptions,
) -> Sections:
    """The parts of a rendered conversation: its tools and its messages. A message whose text the
    template changes is not found, and counts as the next one. Cost: one more rendering, and
    O(text)."""
    places: list[tuple[int, str]] = []
    begin, end = _tools_place(text, whole, messages, tools, options)
    at = 0
    for index, message in enumerate(messages):
        said = _text_of(message.get("content"))
        found = whole.find(said, at) if said else -1
        if found >= 0 and begin <= found < end:  # also the tools may have these words
            found = whole.find(said, end)
        if found < 0:
            continue
        at = found + len(said)
        places.append((at, f"message {index} ({message.get('role', 'unknown')})"))
    if end > begin:
        # What a message has before the tools is the message's.
        split = next((place for place in places if place[0] >= end), None)
        if split is not None and begin > max((p for p, _ in places if p < begin), default=0):
            places.append((begin, split[1]))
        places.append((end, TOOLS))
    places.sort()
    counts = tokens_before(text, ids, whole, [place for place, _ in places])
    return Sections(tuple(zip(counts, (name for _, name in places), strict=True)))


def _tools_place(
    text: TextLike, whole: str, messages: Messages, tools: Tools, options: ChatOptions
) -> tuple[int, int]:
    """From which character to which the tools are written; two equal ones where they are not."""
    if not tools:
        return 0, 0
    try:
        without = text.chat_text(messages, None, options=replace(options))
    except RequestRefused:
        return 0, 0
    begin = common_prefix(whole, without)
    shared = common_prefix(whole[::-1], without[::-1])
    end = max(begin, len(whole) - min(shared, len(without) - begin))
    return begin, end


def _text_of(content: object) -> str:
    """A message's text; of several parts the first one's."""
    if isinstance(content, list):
        first = next((part for part in content if isinstance(part, dict)), {})
        content = first.get("text")
    return content.strip() if isinstance(content, str) else ""
