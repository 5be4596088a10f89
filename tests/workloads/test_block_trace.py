"""Traces of block ids: Mooncake's, and ranges of ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workloads.traces.block_trace import is_block_trace, read_block_trace
from workloads.traces.lines import TraceError


def written(folder: Path, *rows: Any) -> Path:
    path = folder / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def ranges(session: str, ids: list[list[int]], **more: Any) -> dict[str, Any]:
    known = {"session_id": session, "group": session, "t_arrival_s": 1.5, "in": 256, "ids": ids}
    return known | more


def test_equal_hashes_of_mooncake_are_equal_blocks(tmp_path: Path) -> None:
    row = {"timestamp": 2500, "input_length": 1300, "output_length": 5, "hash_ids": [7, 9**12, 3]}
    path = written(tmp_path, row, row | {"timestamp": 4000, "hash_ids": [7, 4]})
    trace = read_block_trace(path)
    assert trace.block_tokens == 512
    assert [call.ids.tolist() for call in trace.calls] == [[0, 1, 2], [0, 3]]
    assert [call.arrival_s for call in trace.calls] == [2.5, 4.0]
    assert trace.prompt_tokens == 2600


def test_ids_of_ranges_are_a_groups_own(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        ranges("a", [[1, 3], [7, 7]], api_time=2.5, stop="tool_use"),
        ranges("b", [[1, 2]]),
        ranges("a", [[1, 2], [8, 8]]),
    )
    first, second, third = read_block_trace(path).calls
    assert first.ids.tolist() == [0, 1, 2, 3]
    assert second.ids.tolist() == [4, 5]  # the same ids of another group
    assert third.ids.tolist() == [0, 1, 6]
    assert (first.reply_s, first.stop, second.reply_s) == (2.5, "tool_use", None)


def test_sessions_of_equal_tools_and_system_prompt_share_that_head(tmp_path: Path) -> None:
    head = {"model": "m", "tool_tokens": 100, "system_tokens": 50}  # 150 tokens: 2 blocks of 64
    path = written(
        tmp_path,
        ranges("a", [[1, 4]], **head),
        ranges("b", [[1, 3]], **head),
        ranges("c", [[1, 3]], **(head | {"system_tokens": 51})),
        ranges("d", [[1, 1], [5, 6]], **head),  # its head is no unbroken run
    )
    a, b, c, d = (call.ids.tolist() for call in read_block_trace(path).calls)
    assert a[:2] == b[:2]
    assert set(a[2:]).isdisjoint(b[2:])
    assert set(c).isdisjoint(a + b)
    assert set(d).isdisjoint(a + b + c)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"timestamp": 1, "input_length": 5, "hash_ids": [1, "2"]}, "hash_ids must be a list"),
        ({"timestamp": "1", "input_length": 5, "hash_ids": [1]}, "timestamp must be a number"),
        ({"timestamp": 1, "input_length": -5, "hash_ids": [1]}, "input_length must be a whole"),
        (ranges("a", [[3, 1]]), "ids must be a list of"),
        (ranges("a", [[3, 2**26]]), "ranges, below 67,108,864"),
        (ranges("a", [[1, 2]], group=""), "group must be a string"),
        ({"messages": []}, "neither hash_ids nor ids"),
        ([1], "must be a JSON object"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_field(
    tmp_path: Path, row: Any, message: str
) -> None:
    good = {"timestamp": 1, "input_length": 5, "hash_ids": [1]}
    if "messages" in row:
        path, line = written(tmp_path, row), 1
    elif "hash_ids" in row or isinstance(row, list):
        path, line = written(tmp_path, good, row), 2
    else:
        path, line = written(tmp_path, ranges("z", [[1, 1]]), row), 2
    with pytest.raises(TraceError, match=f"line {line}: .*{message}|line {line}: {message}"):
        read_block_trace(path)


def test_a_trace_of_messages_is_none_of_blocks(tmp_path: Path) -> None:
    assert not is_block_trace(written(tmp_path, {"session_id": "a", "messages": []}))
    assert is_block_trace(written(tmp_path, ranges("a", [[1, 2]])))
    with pytest.raises(TraceError, match="holds no call"):
        read_block_trace(written(tmp_path))
