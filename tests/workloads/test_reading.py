"""Which format a file is in, and the times that were recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workloads.trace_files import lines_file
from workloads.traces.arrival import Arrival, parse_arrival, with_times
from workloads.traces.lines import TraceError
from workloads.traces.reading import FORMATS, format_of, read_rows, select_sessions


def delta(session: str, turn: int, at: float | None = None) -> dict[str, object]:
    messages = [{"role": "user", "content": f"{session}{turn}"}]
    row = {"session_id": session, "turn": turn, "messages": messages, "output": "ok"}
    return row if at is None else {**row, "t_arrival_s": at}


@pytest.mark.parametrize(
    ("row", "form"),
    [
        (delta("a", 0), "delta-chat"),
        ({"messages": [], "model": "m"}, "request-log"),
        ({"prompt": "x"}, "request-log"),
        ({"request": {}, "timestamp": 1}, "request-log"),
        ({"custom_id": "1", "body": {}}, "request-log"),
        ({"id": "x", "conversations": []}, "sharegpt"),
    ],
)
def test_the_format_is_told_from_the_first_row(row: dict[str, object], form: str) -> None:
    assert format_of("here", row) == form
    assert form in FORMATS


def test_a_format_that_is_named_is_not_guessed(tmp_path: Path) -> None:
    path = lines_file(tmp_path, delta("a", 0))
    (row,) = read_rows(path, "request-log")
    assert row.call.reset
    with pytest.raises(TraceError, match="line 1: conversations must be a list"):
        list(read_rows(path, "sharegpt"))


def test_other_files_are_refused_with_what_they_have(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="line 1: no format is known that has a, b; delta-chat"):
        list(read_rows(lines_file(tmp_path, {"b": 1, "a": 2})))
    with pytest.raises(TraceError, match="block ids has no text; use simulate --serial"):
        list(read_rows(lines_file(tmp_path, {"hash_ids": [1]})))


def test_recorded_times_are_kept_or_scaled(tmp_path: Path) -> None:
    rows = [delta("a", 0, 5.0), delta("b", 0, 7.0), delta("a", 1, 9.0), delta("a", 2, 8.0)]
    sessions = select_sessions(lines_file(tmp_path, *rows), 9).sessions
    kept = with_times(sessions, parse_arrival("recorded"), 99.0, seed=0)
    assert [(s.arrival_s, [c.think_s for c in s.calls]) for s in kept] == [
        (0.0, [0.0, 4.0, 0.0]),  # a time that goes back is no pause
        (2.0, [0.0]),
    ]
    half = with_times(sessions, parse_arrival("recorded:0.5"), 99.0, seed=0)
    assert [(s.arrival_s, s.calls[-1].think_s) for s in half] == [(0.0, 0.0), (1.0, 0.0)]
    assert half[0].calls[1].think_s == 2.0
    others = with_times(sessions, Arrival(), 0.0, seed=0)
    assert {s.arrival_s for s in others} == {0.0}
    assert {c.think_s for s in others for c in s.calls} == {0.0}


def test_recorded_arrivals_need_a_time_of_every_call(tmp_path: Path) -> None:
    rows = [delta("a", 0, 5.0), delta("b", 0, 7.0), delta("b", 1)]
    sessions = select_sessions(lines_file(tmp_path, *rows), 9).sessions
    assert [session.timed for session in sessions] == [True, False]
    with pytest.raises(TraceError, match="session b has calls without a recorded time; use"):
        with_times(sessions, parse_arrival("recorded"), 0.0, seed=0)


def test_how_sessions_arrive_is_written_as_it_is_read() -> None:
    for text in ("together", "stagger:2.5", "poisson:4", "recorded", "recorded:0.5"):
        assert str(parse_arrival(text)) == text


def test_all_calls_of_a_session_are_taken_where_no_most_is_given(tmp_path: Path) -> None:
    rows = [delta("a", turn) for turn in range(7)]
    assert len(select_sessions(lines_file(tmp_path, *rows), 1).sessions[0].calls) == 7
