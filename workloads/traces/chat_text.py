"""Messages of OpenAI's chat API as plain ones, with text for what a template would make of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from workloads.traces.lines import TraceError
from workloads.traces.objects import Object, kind_of
from workloads.traces.session import KNOWN_ROLES, Message, neutral_message

_ALIASES = {"developer": "system"}


def plain_messages(value: object, where: str) -> tuple[list[Message], list[str], list[str]]:
    """The messages, the roles that were mapped to others, and what of their content is left out
    (parts that are not text). Raises TraceError that begins with ``where`` and names the field."""
    if not isinstance(value, list) or not value:
        raise TraceError(f"{where} must be a list with at least one message")
    messages, mapped, left_out = [], [], []
    for at, message in enumerate(value):
        place = f"{where}[{at}]"
        if not isinstance(message, dict):
            raise TraceError(f"{place} must be an object, is {kind_of(message)}")
        role = message.get("role")
        if not isinstance(role, str) or not role:
            raise TraceError(f"{place}.role must be a string, is {kind_of(role)}")
        role = _ALIASES.get(role, role)
        text, others = message_text(message, place)
        messages.append(neutral_message(role, text))
        mapped += [] if role in KNOWN_ROLES else [role]
        left_out += others
    return messages, mapped, left_out


def message_text(message: Object, where: str) -> tuple[str, list[str]]:
    """A message's content with its tool calls as JSON behind it, and what is left out."""
    text, left_out = _content(message.get("content"), where)
    calls = message.get("tool_calls")
    if calls is None and isinstance(message.get("function_call"), dict):
        calls = [{"function": message["function_call"]}]
    if calls:
        if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
            raise TraceError(f"{where}.tool_calls must be a list of objects")
        lines = [_compact(call.get("function", call)) for call in calls]
        text = "\n".join([text, *lines] if text else lines)
    return text, left_out


def with_tools(messages: Sequence[Message], tools: object, where: str) -> list[Message]:
    """The tools' definitions at the end of the system message, where most templates put them."""
    if not tools:
        return list(messages)
    if not isinstance(tools, list):
        raise TraceError(f"{where} must be a list, is {kind_of(tools)}")
    text = "\n".join(["# Tools", *map(_compact, tools)])
    if messages and messages[0].role == "system":
        return [Message("system", f"{messages[0].content}\n\n{text}"), *messages[1:]]
    return [Message("system", text), *messages]


def _content(content: Any, where: str) -> tuple[str, list[str]]:
    if content is None:
        return "", []
    if isinstance(content, str):
        return content, []
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise TraceError(
            f"{where}.content must be a string or a list of parts, is {kind_of(content)}"
        )
    texts, left_out = [], []
    for at, part in enumerate(content):
        text = part.get("text", part.get("refusal"))
        if isinstance(text, str):
            texts.append(text)
        elif part.get("type") in ("text", "refusal"):
            raise TraceError(f"{where}.content[{at}].text must be a string, is {kind_of(text)}")
        else:
            left_out.append(f"content of type {part.get('type')}")
    return "".join(texts), left_out


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
