"""How log lines look, for people and for programs, and that libraries' lines look the same."""

from __future__ import annotations

import io
import json
import logging
import sys
import warnings
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from server.logs import LogFormat, configure, fields, join_libraries

logger = logging.getLogger("server.of_a_test")


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """What is set up here ends with each test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def logged(log_format: LogFormat, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    configure(log_format, level, stream)
    return stream


def objects(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_json_line_has_time_level_logger_message_and_the_fields() -> None:
    stream = logged("json")
    logger.warning("%d things", 3, extra=fields(size=1.5, name='a "b"', none=None, ids=(1, 2)))
    text = stream.getvalue()
    (line,) = objects(stream)
    assert datetime.fromisoformat(line.pop("time")).tzinfo is not None
    assert line == {
        "level": "warning",
        "logger": "server.of_a_test",
        "message": "3 things",
        "size": 1.5,
        "name": 'a "b"',
        "ids": [1, 2],
    }
    assert text.isascii()
    assert text.count("\n") == 1


def test_fields_cannot_replace_what_a_line_always_has() -> None:
    stream = logged("json")
    logger.info("true", extra=fields(message="false", level="none"))
    assert [(line["message"], line["level"]) for line in objects(stream)] == [("true", "info")]


def test_a_text_line_ends_with_its_fields_quoted_where_they_are_no_word() -> None:
    stream = logged("text")
    logger.info("request", extra=fields(status=200, code="a b", path='x="y"', ids=(1, 2), e=""))
    line = stream.getvalue()
    assert line.endswith(' INFO request status=200 code="a b" path="x=\\"y\\"" ids=[1,2] e=""\n')


def test_a_record_is_one_line_whatever_a_client_sent() -> None:
    stream = logged("text")
    evil = "x\n2026-01-01 00:00:00,000 CRITICAL all is lost\x1b[2J\u2028"
    logger.info("GET %s", evil, extra=fields(path=evil))
    assert len(stream.getvalue().splitlines()) == 1
    assert stream.getvalue().removesuffix("\n").isprintable()


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_traceback_and_a_stack_are_shown(log_format: LogFormat) -> None:
    stream = logged(log_format)
    try:
        raise ArithmeticError("boom")
    except ArithmeticError:
        logger.exception("failed", extra=fields(stack='  File "x.py", line 1\n'))
    if log_format == "json":
        (line,) = objects(stream)
        assert line["exception"].endswith("ArithmeticError: boom")
        assert line["stack"] == '  File "x.py", line 1\n'
    else:
        first, *rest = stream.getvalue().splitlines()
        assert first.endswith(" ERROR failed")
        assert rest[-2:] == ["ArithmeticError: boom", '  File "x.py", line 1']


def test_less_than_the_level_is_not_logged() -> None:
    stream = logged("json", "warning")
    logger.info("quiet")
    logger.error("loud")
    assert [line["message"] for line in objects(stream)] == ["loud"]


def test_libraries_and_warnings_come_in_the_same_format_and_their_chatter_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = logging.getLogger("transformers")
    monkeypatch.setattr(library, "handlers", [logging.StreamHandler(sys.stderr)])
    monkeypatch.setattr(library, "propagate", False)
    stream = logged("json")
    join_libraries()
    library.warning("of a library")
    logging.getLogger("uvicorn.error").info("chatter")
    logging.getLogger("httpx").info("chatter")
    logging.getLogger("uvicorn.error").error("of the server")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("careful", stacklevel=1)
    told = [line["message"] for line in objects(stream)]
    assert told[:2] == ["of a library", "of the server"]
    assert len(told) == 3
    assert "careful" in told[2]
