"""ShareGPT-style files: whole conversations, ``conversations`` of [{from, value}], no times.

Every answer of the model is one call, whose messages are those since the answer before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from workloads.traces.lines import TraceError
from workloads.traces.objects import Object, Placed, kind_of
from workloads.traces.row import LeftOut, Row
from workloads.traces.session import KNOWN_ROLES, Call, Message, neutral_message

_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "system": "system",
}
_READ_FIELDS = frozenset({"id", "conversations"})


def conversation_rows(objects: Iterable[Placed]) -> Iterator[Row | LeftOut]:
    """The calls of each conversation in turn. One in which nobody asks has none; two of equal id
    are two sessions. Raises TraceError that names file, line or element, and field."""
    seen: dict[str, int] = {}
    for number, (where, value) in enumerate(objects, 1):
        name = _name(value, number, where)
        times = seen[name] = seen.get(name, 0) + 1
        ignored = tuple(sorted(value.keys() - _READ_FIELDS))
        rows = list(
            _rows(name if times == 1 else f"{name} ({times})", _messages(value, where), ignored)
        )
        yield from rows
        if not rows:
            yield LeftOut("conversations in which nobody asks")


def _rows(
    name: str, messages: Iterable[tuple[str, Message]], ignored: tuple[str, ...]
) -> Iterator[Row]:
    waiting: list[Message] = []
    mapped: list[str] = []
    for role, message in messages:
        # An answer to nothing (a conversation cut in parts) belongs to the prompt of the next.
        if message.role == "assistant" and waiting and waiting[-1].role != "assistant":
            yield Row(name, Call(tuple(waiting), message.content), tuple(mapped), ignored)
            waiting, mapped = [], []
            continue
        waiting.append(message)
        if role not in KNOWN_ROLES:
            mapped.append(role)
    if any(message.role != "assistant" for message in waiting):
        yield Row(name, Call(tuple(waiting)), tuple(mapped), ignored)


def _messages(value: Object, where: str) -> Iterator[tuple[str, Message]]:
    parts = value.get("conversations")
    if not isinstance(parts, list):
        raise TraceError(f"{where}: conversations must be a list, is {kind_of(parts)}")
    for at, part in enumerate(parts):
        place = f"{where}: conversations[{at}]"
        if not isinstance(part, dict):
            raise TraceError(f"{place} must be an object, is {kind_of(part)}")
        speaker, text = part.get("from"), part.get("value")
        if not isinstance(speaker, str) or not speaker:
            raise TraceError(f"{place}.from must be a string, is {kind_of(speaker)}")
        if not isinstance(text, str):
            raise TraceError(f"{place}.value must be a string, is {kind_of(text)}")
        role = _ROLES.get(speaker, speaker)
        yield role, neutral_message(role, text)


def _name(value: Object, number: int, where: str) -> str:
    name = value.get("id", f"conversation-{number}")
    if type(name) not in (str, int):
        raise TraceError(f"{where}: id must be a string or a whole number, is {kind_of(name)}")
    return str(name)
