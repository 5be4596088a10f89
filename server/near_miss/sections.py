"""Which parts of a rendered prompt are which: its tools, its messages' texts, the template's own.

The texts are looked for in the rendering, in order. A template may trim them, or leave some out;
what is not found is no section, and what lies between sections belongs to the one that follows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from server.near_miss.finding import Section, SectionKind
from server.near_miss.source import PromptSource

_SYSTEM = ("system", "developer")


def section_at(source: PromptSource, text: str, place: int) -> Section:
    """The section that a character of the rendering belongs to. ``text``: the rendering. Cost: a
    search of the text for each tool, and for each message up to that place."""
    if not source.messages:
        return Section("prompt", 0, len(text))
    tools = tools_section(source.tools, text)
    if tools is not None and tools.start <= place < tools.end:
        return tools
    sections = _messages(source.messages, text)
    first = next(sections, None)
    if first is None or place < first.start:
        return Section("template", 0, len(text) if first is None else first.start)
    if place <= first.end:
        return first
    found = (each for each in sections if place <= each.end)
    count = len(source.messages)
    return next(found, Section("message", len(text), len(text), count, "assistant"))


def tools_section(tools: Sequence[Mapping[str, Any]], text: str) -> Section | None:
    """Where the tools' definitions are; None where they are not shown. Cost: some searches of the
    text for each."""
    spans = [span for tool in tools if (span := _tool(tool, text)) is not None]
    if not spans:
        return None
    return Section("tools", min(start for start, _ in spans), max(end for _, end in spans))


def head_end(source: PromptSource, text: str) -> int:
    """Where the text of the first message begins that is not the system's."""
    found = (each.start for each in _messages(source.messages, text) if each.kind == "message")
    return next(found, len(text))


def name_of(tool: Mapping[str, Any]) -> str:
    """A tool's name, in either API's form."""
    function = tool.get("function")
    named = function if isinstance(function, Mapping) else tool
    return str(named.get("name", ""))


def name_place(name: str, text: str, start: int = 0) -> int:
    """Where a definition of this name has it; -1 where there is none."""
    pattern = r'"name":\s*' + re.escape(json.dumps(name, ensure_ascii=False))
    found = re.compile(pattern).search(text, start)
    return text.find(name, start) if found is None else found.start()


def _tool(tool: Mapping[str, Any], text: str) -> tuple[int, int] | None:
    for whole in (tool, tool.get("function")):
        for indent in (None, 4, 2):
            if isinstance(whole, Mapping):
                written = json.dumps(whole, ensure_ascii=False, indent=indent)
                start = text.find(written)
                if start >= 0:
                    return start, start + len(written)
    name = name_of(tool)
    place = name_place(name, text) if name else -1
    return None if place < 0 else (place, place + len(name))


def _messages(messages: Sequence[Mapping[str, Any]], text: str) -> Iterator[Section]:
    """The messages that are found, in order. One that calls tools, or has no text that is found,
    reaches up to the next one's text."""
    before: Section | None = None
    missing: int | None = None
    at = 0
    for index, message in enumerate(messages):
        start, end = _find(message, text, at)
        if start < 0:
            missing = index if missing is None else missing
            continue
        if before is not None:
            yield from _up_to(messages, before, missing, start)
        role = str(message.get("role", ""))
        kind: SectionKind = "system" if role in _SYSTEM else "message"
        before, missing, at = Section(kind, start, end, index, role), None, end
    if before is not None:
        yield from _up_to(messages, before, missing, len(text))


def _up_to(
    messages: Sequence[Mapping[str, Any]], section: Section, missing: int | None, end: int
) -> Iterator[Section]:
    """A section, and what follows it before character ``end``, where the next one's text begins."""
    index = section.message or 0
    if missing is None and messages[index].get("tool_calls"):
        section = Section(section.kind, section.start, end, index, section.role)
    yield section
    if missing is not None:
        role = str(messages[missing].get("role", ""))
        yield Section("message", section.end, end, missing, role)


def _find(message: Mapping[str, Any], text: str, at: int) -> tuple[int, int]:
    """Where a message's text is, from there on; -1 where it has none or it is not shown."""
    content = message.get("content")
    if not isinstance(content, str):
        parts = content if isinstance(content, Sequence) else ()
        texts = (part.get("text") for part in parts if isinstance(part, Mapping))
        content = next((each for each in texts if isinstance(each, str) and each), "")
    for shown in (content, content.strip()):
        start = text.find(shown, at) if shown else -1
        if start >= 0:
            return start, start + len(shown)
    return -1, -1
