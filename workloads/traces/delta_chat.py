"""Reads recorded sessions in the delta-chat format, plain or compressed, row by row.

One JSON object a line, one line per call to a model, in the order of the replay: ``session_id``,
``turn``, ``messages`` ([{role, content}]) that are appended to the session's history, ``output``
(the recorded reply, or null), and optionally ``reset`` (the history starts anew), ``raw`` (a
completion prompt, no chat template) and ``t_arrival_s``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads.traces.lines import TraceError, read_lines
from workloads.traces.session import KNOWN_ROLES, Call, Session, neutral_message

_READ_FIELDS = frozenset({"session_id", "turn", "messages", "output", "reset", "raw"})


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a trace. ``mapped_roles`` and ``ignored`` say what reading it changed."""

    session_id: str
    call: Call
    mapped_roles: tuple[str, ...]
    ignored: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a trace is replayed, and what was left out or changed to do so.

    ``mapped_roles`` counts messages by the role they had; ``ignored_fields`` counts rows.
    """

    sessions: tuple[Session, ...]
    left_out_sessions: int
    left_out_calls: int
    mapped_roles: dict[str, int]
    ignored_fields: dict[str, int]


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a .jsonl, .jsonl.zst or .jsonl.gz file, in order, without holding them.

    Raises TraceError for a file that is missing, damaged or not in the format.
    """
    for where, line in read_lines(path):
        yield parse_row(line, where)


def parse_row(line: str, where: str) -> Row:
    """One line as a row. Raises TraceError that begins with ``where`` and names the field."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise TraceError(f"{where}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise TraceError(f"{where}: must be a JSON object, is {_kind(row)}")
    session_id = row.get("session_id")
    if not isinstance(session_id, str) or not session_id:
        raise TraceError(f"{where}: session_id must be a string, is {_kind(session_id)}")
    if type(row.get("turn")) is not int:
        raise TraceError(f"{where}: turn must be an integer, is {_kind(row.get('turn'))}")
    if "output" not in row or not isinstance(row["output"], str | None):
        found = _kind(row["output"]) if "output" in row else "missing"
        raise TraceError(f"{where}: output must be a string or null, is {found}")
    for flag in ("reset", "raw"):
        if not isinstance(row.get(flag, False), bool):
            raise TraceError(f"{where}: {flag} must be true or false, is {_kind(row[flag])}")
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
    return Row(session_id, call, mapped, tuple(sorted(row.keys() - _READ_FIELDS)))


def _checked_role(message: Any, where: str) -> str:
    if not isinstance(message, dict):
        raise TraceError(f"{where} must be an object, is {_kind(message)}")
    for field in ("role", "content"):
        if not isinstance(message.get(field), str):
            raise TraceError(f"{where}.{field} must be a string, is {_kind(message.get(field))}")
    role: str = message["role"]
    return role


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    if value is None:
        return "null or missing"
    if value == "":
        return "empty"
    return names.get(type(value), "a number")


def select_sessions(path: Path, max_sessions: int, max_turns: int) -> Selection:
    """The first sessions of a trace, each up to ``max_turns`` calls.

    The whole file is read, so that every row is checked and what is left out is counted; only the
    chosen calls are held. Raises TraceError also when the file holds no row.
    """
    chosen: dict[str, list[Call]] = {}
    others: set[str] = set()
    left_out, mapped, ignored = 0, Counter[str](), Counter[str]()
    for row in read_rows(path):
        if row.session_id not in chosen and len(chosen) < max_sessions:
            chosen[row.session_id] = []
        calls = chosen.get(row.session_id)
        if calls is None:
            others.add(row.session_id)
        if calls is None or len(calls) >= max_turns:
            left_out += 1
            continue
        calls.append(row.call)
        mapped.update(row.mapped_roles)
        ignored.update(row.ignored)
    if not chosen:
        raise TraceError(f"{path}: holds no call")
    sessions = tuple(Session(name, tuple(calls)) for name, calls in chosen.items())
    return Selection(sessions, len(others), left_out, dict(mapped), dict(ignored))
