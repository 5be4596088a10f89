"""Recorded sessions of any format that has text: which format a file is in, and its sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from workloads.traces.conversations import conversation_rows
from workloads.traces.delta_chat import delta_rows
from workloads.traces.lines import TraceError
from workloads.traces.objects import Object, Placed, read_objects
from workloads.traces.request_log import request_rows
from workloads.traces.row import LeftOut, Row
from workloads.traces.session import Call, Session

FORMATS: dict[str, Callable[[Iterable[Placed]], Iterator[Row | LeftOut]]] = {
    "delta-chat": delta_rows,
    "request-log": request_rows,
    "sharegpt": conversation_rows,
}


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a trace is replayed, and what was left out or changed to do so.

    ``mapped_roles`` counts messages by the role they had; ``ignored_fields`` counts rows by fields
    that are not used, and rows without a call by why.
    """

    sessions: tuple[Session, ...]
    left_out_sessions: int
    left_out_calls: int
    mapped_roles: dict[str, int]
    ignored_fields: dict[str, int]


def read_rows(path: Path, form: str | None = None) -> Iterator[Row]:
    """The calls in a file, in order, without holding them: .jsonl or .json (one array), also packed
    as .gz or .zst. ``form``: one of `FORMATS`; None: told from the first row.

    Raises TraceError for a file that is missing, damaged or not in the format.
    """
    for row in _read(path, form):
        if isinstance(row, Row):
            yield row


def format_of(where: str, row: Object) -> str:
    """The format that a file's first row shows. Raises TraceError where it is none of `FORMATS`."""
    if "conversations" in row:
        return "sharegpt"
    if "turn" in row and "messages" in row:
        return "delta-chat"
    if row.keys() & {"request", "body", "messages", "prompt"}:
        return "request-log"
    if row.keys() & {"hash_ids", "ids"}:
        raise TraceError(f"{where}: a trace of block ids has no text; use simulate --serial")
    raise TraceError(
        f"{where}: no format is known that has {', '.join(sorted(row)) or 'no field at all'}; "
        "delta-chat has turn and messages, a request log request, body, messages or prompt, "
        "ShareGPT conversations"
    )


def select_sessions(
    path: Path, max_sessions: int, max_turns: int | None = None, form: str | None = None
) -> Selection:
    """The first sessions of a trace, each up to ``max_turns`` calls (None: all), with the times
    that were recorded.

    The whole file is read, so that every row is checked and what is left out is counted; only the
    chosen calls are held. Raises TraceError also when the file holds no row.
    """
    chosen: dict[str, list[Row]] = {}
    others: set[str] = set()
    left_out, mapped, ignored = 0, Counter[str](), Counter[str]()
    for row in _read(path, form):
        if isinstance(row, LeftOut):
            ignored[row.why] += 1
            continue
        if row.session_id not in chosen and len(chosen) < max_sessions:
            chosen[row.session_id] = []
        rows = chosen.get(row.session_id)
        if rows is None:
            others.add(row.session_id)
        if rows is None or (max_turns is not None and len(rows) >= max_turns):
            left_out += 1
            continue
        if row.earlier_reply is not None:
            rows[-1] = replace(rows[-1], call=replace(rows[-1].call, reply=row.earlier_reply))
        rows.append(row)
        mapped.update(row.mapped_roles)
        ignored.update(row.ignored)
    if not chosen:
        raise TraceError(f"{path}: holds no call")
    starts = [rows[0].time_s for rows in chosen.values()]
    origin = min((start for start in starts if start is not None), default=0.0)
    sessions = tuple(_session(name, rows, origin) for name, rows in chosen.items())
    return Selection(sessions, len(others), left_out, dict(mapped), dict(ignored))


def _read(path: Path, form: str | None) -> Iterator[Row | LeftOut]:
    objects = read_objects(path)
    first = next(objects, None)
    if first is None:
        return
    read = FORMATS[format_of(*first) if form is None else form]
    yield from read(chain((first,), objects))


def _session(name: str, rows: list[Row], origin: float) -> Session:
    """Calls with the pauses between them, if every row has its time."""
    times = [row.time_s for row in rows if row.time_s is not None]
    if len(times) < len(rows):
        return Session(name, tuple(row.call for row in rows))
    calls: list[Call] = [rows[0].call]
    for at in range(1, len(rows)):
        busy = rows[at - 1].reply_s or 0.0
        pause = max(0.0, times[at] - times[at - 1] - busy)
        calls.append(replace(rows[at].call, think_s=pause))
    return Session(name, tuple(calls), max(0.0, times[0] - origin), timed=True)
