"""The lines of a trace file, plain or compressed, one by one."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import zstandard

ZSTD_WINDOW = 2**27
UNREADABLE = (OSError, EOFError, zstandard.ZstdError)


class TraceError(Exception):
    """A trace that cannot be read; the message names the file, the line and the field."""


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Each line that is not blank, with its place for messages, of a .jsonl, .jsonl.zst or
    .jsonl.gz file, without holding the others.

    Raises TraceError for a file that is missing or damaged.
    """
    number = 0
    try:
        with _open_text(path) as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield f"{path}, line {number}", line
    except UNREADABLE as error:
        raise TraceError(f"{path}, after line {number}: cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}, after line {number}: not UTF-8 text: {error}") from error


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """What a file holds, unpacked by its ending (.gz, .zst); raises one of `UNREADABLE`, here or
    where it is read."""
    with path.open("rb") as file:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=file, mode="rb") as data:
                yield data  # type: ignore[misc]  # has all of it that is used
        elif path.suffix == ".zst":
            reader = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
            with reader.stream_reader(file, read_across_frames=True) as stream:
                yield io.BufferedReader(stream)
        else:
            yield file


@contextmanager
def _open_text(path: Path) -> Iterator[IO[str]]:
    with open_bytes(path) as data:
        yield io.TextIOWrapper(data, encoding="utf-8")
