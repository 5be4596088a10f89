"""The delta-chat format: each line has what a call adds to its session's history.

One JSON object a line, one line per call to a model, in the order of the replay: ``session_id``,
``turn``, ``messages`` ([{role, content}]) that are appended to the session's history, ``output``
(the recorded reply, or null), and optionally ``reset`` (the history starts anew), ``raw`` (a
completion prompt, no chat template) and ``t_arrival_s`` (seconds into the trace).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from workloads.traces.lines import TraceError
from workloads.traces.objects import Object, Placed, kind_of
from workloads.traces.row import Row
from workloads.traces.session import KNOWN_ROLES, Call, neutral_message

_READ_FIELDS = frozenset(
    {"session_id", "turn", "messages", "output", "reset", "raw", "t_arrival_s"}
)


def delta_rows(objects: Iterable[Placed]) -> Iterator[Row]:
    """The rows, in order. Raises TraceError that names file, line and field."""
    for where, value in objects:
        yield _row(value, where)


def _row(row: Object, where: str) -> Row:
    session_id = row.get("session_id")
    if not isinstance(session_id, str) or not session_id:
        raise TraceError(f"{where}: session_id must be a string, is {kind_of(session_id)}")
    if type(row.get("turn")) is not int:
        raise TraceError(f"{where}: turn must be an integer, is {kind_of(row.get('turn'))}")
    if "output" not in row or not isinstance(row["output"], str | None):
        found = kind_of(row["output"]) if "output" in row else "missing"
        raise TraceError(f"{where}: output must be a string or null, is {found}")
    for flag in ("reset", "raw"):
        if not isinstance(row.get(flag, False), bool):
            raise TraceError(f"{where}: {flag} must be true or false, is {kind_of(row[flag])}")
    time_s = row.get("t_arrival_s")
    if time_s is not None and type(time_s) not in (int, float):
        raise TraceError(f"{where}: t_arrival_s must be a number, is {kind_of(time_s)}")
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages:
        raise TraceError(f"{where}: messages must be a list with at least one message")
    roles = [
        _checked_role(message, f"{where}: messages[{i}]") for i, message in enumerate(messages)
    ]
    call = Call(
        messages=tuple(neutral_message(m["role"], m["content"]) for m in messages),
        reply=row["output"],
        reset=row.get("reset", False),
        raw=row.get("raw", False),
    )
    mapped = tuple(role for role in roles if role not in KNOWN_ROLES)
    return Row(session_id, call, mapped, tuple(sorted(row.keys() - _READ_FIELDS)), time_s)


def _checked_role(message: Any, where: str) -> str:
    if not isinstance(message, dict):
        raise TraceError(f"{where} must be an object, is {kind_of(message)}")
    for field in ("role", "content"):
        if not isinstance(message.get(field), str):
            raise TraceError(f"{where}.{field} must be a string, is {kind_of(message.get(field))}")
    role: str = message["role"]
    return role
