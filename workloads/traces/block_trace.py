"""Traces of block ids without text: Mooncake's, and Claude Code's as ranges of ids.

An id stands for a block together with all before it, so equal ids are equal prefixes up to and
including that block. A call's ids become one run of int32 numbers, as the prefix cache takes them
with blocks of one "token".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workloads.traces.lines import TraceError
from workloads.traces.objects import read_objects

Ids = npt.NDArray[np.int32]

MOONCAKE_BLOCK_TOKENS = 512
RANGES_BLOCK_TOKENS = 64
_MOST_IDS = 2**26  # of a group: four billion tokens


@dataclass(frozen=True, slots=True)
class BlockCall:
    """One call to a model: ``ids`` of the blocks of its prompt, of ``prompt_tokens`` tokens, that
    came ``arrival_s`` seconds into the trace. ``reply_s``: seconds until its reply was done, where
    the trace says so. ``stop``: why the reply ended, ``reply_tokens``: how long it was, and
    ``pause_s``: the time from the session's reply before to the call, ditto."""

    session: str | None
    arrival_s: float
    prompt_tokens: int
    ids: Ids
    reply_s: float | None = None
    stop: str | None = None
    reply_tokens: int | None = None
    pause_s: float | None = None


@dataclass(frozen=True, slots=True)
class BlockTrace:
    """All calls of a trace, in order, whose blocks are of ``block_tokens`` tokens."""

    block_tokens: int
    calls: tuple[BlockCall, ...]

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(call.prompt_tokens for call in self.calls)


def is_block_trace(path: Path) -> bool:
    """Whether a file's first call names blocks, not messages. Raises TraceError."""
    for _, row in read_objects(path):
        return any(name in row for name in _KINDS)
    return False


def read_block_trace(path: Path) -> BlockTrace:
    """The trace in a file of either format. Raises TraceError that names file, line and field."""
    rows = read_objects(path)
    try:
        where, first = next(rows)
    except StopIteration:
        raise TraceError(f"{path}: holds no call") from None
    field = next((name for name in _KINDS if name in first), None)
    if field is None:
        raise TraceError(f"{where}: has neither hash_ids nor ids, which a trace of blocks has")
    return _KINDS[field](_again((where, first), rows))


def _again(first: tuple[str, Any], rest: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    yield first
    yield from rest


def _mooncake(rows: Iterable[tuple[str, dict[str, Any]]]) -> BlockTrace:
    number: dict[int, int] = {}  # ids as they come, so that they fit 32 bits whatever they are
    calls = []
    for where, row in rows:
        ids = row.get("hash_ids")
        if not isinstance(ids, list) or not all(type(each) is int for each in ids):
            raise TraceError(f"{where}: hash_ids must be a list of whole numbers")
        run = [number.setdefault(each, len(number)) for each in ids]
        calls.append(
            BlockCall(
                session=None,
                arrival_s=_number(row, "timestamp", where) / 1000,
                prompt_tokens=_whole(row, "input_length", where),
                ids=np.array(run, np.int32),
                reply_tokens=_count(row, "output_length", where),
            )
        )
    return BlockTrace(MOONCAKE_BLOCK_TOKENS, tuple(calls))


def _ranges(rows: Iterable[tuple[str, dict[str, Any]]]) -> BlockTrace:
    numbers = _Numbers()
    calls = []
    for where, row in rows:
        ranges = row.get("ids")
        if not isinstance(ranges, list) or not all(map(_is_range, ranges)):
            raise TraceError(
                f"{where}: ids must be a list of [first, last] ranges, below {_MOST_IDS:,}"
            )
        group = _text(row, "group", where)
        calls.append(
            BlockCall(
                session=_text(row, "session_id", where),
                arrival_s=_number(row, "t_arrival_s", where),
                prompt_tokens=_whole(row, "in", where),
                ids=numbers.of(group, ranges, _head(row, ranges)),
                reply_s=_seconds(row, "api_time", where),
                stop=row.get("stop"),
                reply_tokens=_count(row, "out", where),
                pause_s=_seconds(row, "think_time", where),
            )
        )
    return BlockTrace(RANGES_BLOCK_TOKENS, tuple(calls))


def _is_range(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(type(each) is int for each in value)
        and 0 <= value[0] <= value[1] < _MOST_IDS
    )


def _head(row: Mapping[str, Any], ranges: list[list[int]]) -> tuple[tuple[Any, ...], int] | None:
    """The tools and system prompt that sessions of equal (model, lengths) are taken to share: which
    one, and its blocks. None where they are not one unbroken run of ids."""
    tools, system = row.get("tool_tokens"), row.get("system_tokens")
    if type(tools) is not int or type(system) is not int or not ranges:
        return None
    blocks = (tools + system) // RANGES_BLOCK_TOKENS
    if not 0 < blocks <= ranges[0][1] - ranges[0][0] + 1:
        return None
    return (row.get("model"), tools, system), blocks


class _Numbers:
    """Gives ids that are local to a group, and those of shared heads, numbers of their own."""

    def __init__(self) -> None:
        self._next = 0
        self._groups: dict[str, Ids] = {}  # by id; -1: none yet
        self._heads: dict[tuple[Any, ...], Ids] = {}

    def of(
        self, group: str, ranges: list[list[int]], head: tuple[tuple[Any, ...], int] | None
    ) -> Ids:
        parts = []
        skip = 0
        if head is not None:
            name, skip = head
            if name not in self._heads:
                self._heads[name] = self._new(skip)
            parts.append(self._heads[name])
        known = self._group(group, 1 + max((last for _, last in ranges), default=0))
        for first, last in ranges:
            part = known[first + skip : last + 1]
            skip = 0
            missing = part < 0
            if missing.any():
                part[missing] = self._new(int(np.count_nonzero(missing)))
            parts.append(part)
        return np.concatenate(parts) if parts else np.zeros(0, np.int32)

    def _group(self, group: str, ids: int) -> Ids:
        """The numbers of a group, with places for so many ids at least."""
        known = self._groups.get(group)
        if known is None or len(known) < ids:
            grown = np.full(max(ids, 1024, 0 if known is None else 2 * len(known)), -1, np.int32)
            if known is not None:
                grown[: len(known)] = known
            known = self._groups[group] = grown
        return known

    def _new(self, count: int) -> Ids:
        start = self._next
        self._next += count
        return np.arange(start, start + count, dtype=np.int32)


def _text(row: Mapping[str, Any], name: str, where: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value:
        raise TraceError(f"{where}: {name} must be a string")
    return value


def _whole(row: Mapping[str, Any], name: str, where: str) -> int:
    value = row.get(name)
    if type(value) is not int or value < 0:
        raise TraceError(f"{where}: {name} must be a whole number from 0")
    return value


def _number(row: Mapping[str, Any], name: str, where: str) -> float:
    value = row.get(name)
    if type(value) not in (int, float):
        raise TraceError(f"{where}: {name} must be a number")
    return float(value)  # type: ignore[arg-type]


def _count(row: Mapping[str, Any], name: str, where: str) -> int | None:
    return None if row.get(name) is None else _whole(row, name, where)


def _seconds(row: Mapping[str, Any], name: str, where: str) -> float | None:
    return None if row.get(name) is None else max(0.0, _number(row, name, where))


# The field that each format has, and its reader.
_KINDS = {"hash_ids": _mooncake, "ids": _ranges}
