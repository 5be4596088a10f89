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
    except (OSError, EOFError, zstandard.ZstdError) as error:
        raise TraceError(f"{path}, after line {number}: cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}, after line {number}: not UTF-8 text: {error}") from error


@contextmanager
def _open_text(path: Path) -> Iterator[IO[str]]:
    with path.open("rb") as file:
        if path.suffix == ".gz":
            with gzip.open(file, "rt", encoding="utf-8") as text:
                yield text
        elif path.suffix == ".zst":
            reader = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
            with reader.stream_reader(file, read_across_frames=True) as stream:
                yield io.TextIOWrapper(stream, encoding="utf-8")
        else:
            yield io.TextIOWrapper(file, encoding="utf-8")
