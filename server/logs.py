"""What the server logs, and how a line looks: for people, or as JSON for programs.

All goes through ``logging``, to standard error. A line may have fields besides its message (see
`fields`): ``name=value`` at the end of a text line, members of the object in JSON. A message is one
line, whatever is in it; only tracebacks follow it. No line shows text of a prompt or an answer, but
where --log-prompts lets near-misses show a few characters.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import IO, Any, Literal

LogFormat = Literal["text", "json"]
FORMATS: tuple[LogFormat, ...] = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")

# Libraries that tell at INFO what only their own developers want to know.
_TALKATIVE = ("asyncio", "httpcore", "httpx", "urllib3", "uvicorn")
# Libraries that bring a handler of their own, which would write past the format.
_WITH_HANDLERS = ("transformers", "uvicorn", "uvicorn.access", "uvicorn.error")
_FIELDS = "fields"
_STACK = "stack"  # a field that is shown after the line, as a traceback is


def configure(log_format: LogFormat, level: str, stream: IO[str] | None = None) -> None:
    """Log to ``stream`` (standard error) from now on, whatever was set up before.

    ``level``: one of `LEVELS`. Warnings of Python and lines of libraries come in the same format;
    chatter of some of these is left out, except at debug.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    for other in root.handlers[:]:
        root.removeHandler(other)
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.captureWarnings(True)
    for name in _TALKATIVE:
        quiet = max(root.level, logging.WARNING) if level != "debug" else logging.DEBUG
        logging.getLogger(name).setLevel(quiet)
    join_libraries()


def join_libraries() -> None:
    """Take away the handlers that libraries brought when they were imported, so that their lines
    come in our format."""
    for name in _WITH_HANDLERS:
        library = logging.getLogger(name)
        for handler in library.handlers[:]:
            library.removeHandler(handler)
        library.propagate = True


def fields(**values: Any) -> dict[str, dict[str, Any]]:
    """``extra`` of a logging call: the line's fields. Those that are None are left out."""
    return {_FIELDS: {name: value for name, value in values.items() if value is not None}}


class TextFormatter(logging.Formatter):
    """``2026-01-31 12:00:00,123 INFO message name=value``."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and a traceback or a stack where there is one."""
        found = dict(_fields_of(record))
        stack = found.pop(_STACK, "")
        line = f"{self.formatTime(record)} {record.levelname} {_one_line(record.getMessage())}"
        line += "".join(f" {name}={_plain(value)}" for name, value in found.items())
        after = [self.formatException(record.exc_info) if record.exc_info else "", stack]
        return "\n".join([line, *(text.rstrip() for text in after if text)])


class JsonFormatter(logging.Formatter):
    """One object a line, in ASCII: ``time`` (UTC), ``level``, ``logger``, ``message``, the fields,
    and ``exception`` with a traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in _fields_of(record).items() if name not in line}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, separators=(",", ":"), default=str)


def _fields_of(record: logging.LogRecord) -> Mapping[str, Any]:
    found = getattr(record, _FIELDS, None)
    return found if isinstance(found, dict) else {}


def _one_line(text: str) -> str:
    """The text with what would begin a new line, or move the cursor, written out."""
    text = text.strip()
    return text if text.isprintable() else json.dumps(text)[1:-1]


def _plain(value: Any) -> str:
    """A value for a text line: in quotes where it would not be one word."""
    if not isinstance(value, str):
        return json.dumps(value, separators=(",", ":"), default=str)
    is_word = value.isascii() and value.isprintable() and not set(value) & set(" \"'=\\")
    return value if is_word and value else json.dumps(value)
