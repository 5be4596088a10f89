"""The JSON objects of a trace file, one by one: one a line, or the elements of one array."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ijson

from workloads.traces.lines import UNREADABLE, TraceError, open_bytes, read_lines

Object = dict[str, Any]
Placed = tuple[str, Object]  # an object and its place in the file, for messages
_BLANK = b" \t\r\n"


def read_objects(path: Path) -> Iterator[Placed]:
    """Each object with its place, without holding the others: of a file of lines, or of one JSON
    array, plain or compressed (.gz, .zst).

    Raises TraceError for a file that is missing, damaged, or holds something else.
    """
    for where, value in _elements(path) if _is_array(path) else _lines(path):
        if not isinstance(value, dict):
            raise TraceError(f"{where}: must be a JSON object, is {kind_of(value)}")
        yield where, value


def kind_of(value: object) -> str:
    """What a JSON value is, in words."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    if value is None:
        return "null or missing"
    if value == "":
        return "empty"
    return names.get(type(value), "a number")


def _is_array(path: Path) -> bool:
    try:
        with open_bytes(path) as data:
            first = data.read(1)
            while first and first in _BLANK:
                first = data.read(1)
    except UNREADABLE as error:
        raise TraceError(f"{path}: cannot be read: {error}") from error
    return first == b"["


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    for where, line in read_lines(path):
        try:
            yield where, json.loads(line)
        except json.JSONDecodeError as error:
            raise TraceError(
                f"{where}: not JSON: {error.msg} at character {error.pos + 1}"
            ) from error


def _elements(path: Path) -> Iterator[tuple[str, Any]]:
    number = 0
    try:
        with open_bytes(path) as data:
            for number, value in enumerate(ijson.items(data, "item", use_float=True), 1):
                yield f"{path}, element {number}", value
    except UNREADABLE as error:
        raise TraceError(f"{path}, after element {number}: cannot be read: {error}") from error
    except (ijson.JSONError, UnicodeDecodeError) as error:
        what = " ".join(str(error).split())
        raise TraceError(f"{path}, after element {number}: not JSON: {what}") from error
