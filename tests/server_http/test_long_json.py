"""Long answers are the same JSON as short ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.responses import JSONResponse

from server.http.long_json import LongResponse
from server.http.sse import event, long_event

ENTRIES = [{"token": f"t{i}", "bytes": [i, 2], "top": [{"a": -0.5}] * 2} for i in range(1001)]
VALUES: list[Any] = [
    {},
    [],
    None,
    {"a": [], "b": {}, "c": None, "d": '\u732b\n"', "\u00e9": 1.5},
    {"choices": [{"logprobs": {"tokens": ["x"] * 999, "offsets": list(range(201))}}], "n": 1},
    {"choices": [{"logprobs": {"content": ENTRIES, "refusal": None}}, {"logprobs": None}, {}]},
    [{}] * 200,
    [[]] * 201,
    [{"a": ENTRIES}] * 2,
]


@pytest.mark.parametrize("value", VALUES)
def test_a_long_answer_is_written_as_any_other(value: Any) -> None:
    assert LongResponse(value).body == JSONResponse(value).body


@pytest.mark.parametrize("value", [value for value in VALUES if isinstance(value, dict)])
def test_a_long_event_is_written_as_any_other(value: dict[str, Any]) -> None:
    assert long_event(value) == event(value)
    assert json.loads(long_event(value)[6:]) == value


def test_no_number_that_json_has_not_is_written() -> None:
    for where in ([float("nan")] * 300, {"a": [float("inf")]}):
        with pytest.raises(ValueError, match="not JSON compliant"):
            LongResponse(where)
