"""Following a JSON value: what is JSON, and where it ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.chat.json_scan import JsonScan, Status

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def scan(text: str, size: int) -> tuple[JsonScan, str, int]:
    """Feed a text in pieces; the scanner, what it wrote, and how far it came."""
    scanner, written, done = JsonScan(), "", 0
    for start in range(0, len(text), size):
        piece = text[start : start + size]
        end = scanner.feed(piece, 0)
        written += scanner.take()
        done += end
        if end < len(piece):
            break
    return scanner, written, done


@settings(deadline=None)
@given(value=VALUES, indent=st.sampled_from([None, 2]), size=st.integers(1, 30))
def test_a_value_ends_where_it_ends_and_is_written_as_it_was(
    value: Any, indent: int | None, size: int
) -> None:
    text = json.dumps([value], indent=indent)
    scanner, written, done = scan(text + " rest", size)
    assert scanner.status is Status.DONE
    assert (written, done) == (text, len(text))


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("[1 2]", 3),
        ("[01]", 3),
        ("[1.]", 3),
        ("[+1]", 1),
        ("[-]", 2),
        ("[1,]", 3),
        ("{,}", 1),
        ('{"a" 1}', 5),
        ('{"a": 1,}', 8),
        ("{a: 1}", 1),
        ("{'a': 1}", 1),
        ('["\\x"]', 3),
        ('["\\u00g0"]', 6),
        ("[True]", 1),
        ("[nul]", 4),
        ("[NaN]", 1),
        ("[}", 1),
        ("]", 0),
        ("\u0663", 0),
    ],
)
@pytest.mark.parametrize("size", [1, 100])
def test_what_is_no_json_fails_at_the_first_character_that_does_not_fit(
    text: str, end: int, size: int
) -> None:
    scanner, written, done = scan(text, size)
    assert scanner.status is Status.FAILED
    assert (written, done) == (text[:end], end)


def test_control_characters_in_strings_are_escaped() -> None:
    scanner, written, _ = scan('{"a": "1\n2\t3\x01"}', 3)
    assert scanner.status is Status.DONE
    assert written == '{"a": "1\\n2\\t3\\u0001"}'
    assert json.loads(written) == {"a": "1\n2\t3\x01"}


def test_a_value_that_has_not_ended_is_open() -> None:
    for text in ("", "  ", "[", '{"a"', '"abc', "[1", "12", "tru", '"\\', '"\\u12'):
        assert scan(text, 1)[0].status is Status.OPEN
