"""simulate --serial: rules side by side on the cache alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workloads.__main__ import main
from workloads.simulation.mixing import mixed
from workloads.simulation.serial_calls import SerialCall, in_random_order
from workloads.simulation.serial_table import gap_closed
from workloads.simulation.text_calls import TextTraces


def blocks_file(folder: Path, rows: list[list[int]]) -> Path:
    path = folder / "trace.jsonl"
    lines = (
        {"timestamp": 1000 * at, "input_length": 512 * len(ids), "hash_ids": ids}
        for at, ids in enumerate(rows)
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def text_file(folder: Path, sessions: dict[str, list[str]]) -> Path:
    path = folder / "text.jsonl"
    rows: list[dict[str, Any]] = []
    for name, turns in sessions.items():
        for turn, text in enumerate(turns):
            messages = [{"role": "user", "content": text}]
            rows.append(
                {
                    "session_id": name,
                    "turn": turn,
                    "messages": messages,
                    "output": "ok",
                    "raw": True,
                }
            )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_it_prints_and_writes_the_hit_rates_of_each_rule_and_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A loop of three over two blocks: LRU never hits, the best hits every second call once full.
    path = blocks_file(tmp_path, [[1], [2], [3]] * 4)
    options = ["--serial", "--trace", str(path), "--blocks", "2,3", "--eviction", "lru,optimum"]
    assert main(["simulate", *options, "--json", "--output", str(tmp_path)]) == 0
    printed = json.loads(capsys.readouterr().out)
    figures = {key: figure["value"] for key, figure in printed["figures"].items()}
    almost = 511 / 512  # a prompt's last token is never served
    assert figures == {
        "hit_rate.lru.2": 0.0,
        "hit_rate.lru.3": pytest.approx(9 / 12 * almost),
        "hit_rate.optimum.2": pytest.approx(5 / 12 * almost),
        "hit_rate.optimum.3": pytest.approx(9 / 12 * almost),
    }
    written = json.loads((tmp_path / "simulate-serial.json").read_text())
    assert written["figures"] == printed["figures"]
    assert (tmp_path / "simulate-serial.png").read_bytes().startswith(b"\x89PNG")


def test_what_prefill_costs_is_told_by_the_users_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = blocks_file(tmp_path, [[1], [2], [3]] * 4)
    options = ["--serial", "--trace", str(path), "--blocks", "2,3", "--eviction", "lru"]
    prices = ["--prefill-tokens-per-s", "100", "--gpu-hour-dollars", "36"]
    assert main(["simulate", *options, *prices, "--output", str(tmp_path)]) == 0
    figures = json.loads((tmp_path / "simulate-serial.json").read_text())["figures"]
    # LRU never hits two blocks: 12 prompts of 512 tokens; of three blocks the first three only.
    assert figures["gpu_s.lru.2"]["value"] == pytest.approx(12 * 512 / 100)
    assert figures["gpu_s.lru.3"]["value"] == pytest.approx((3 * 512 + 9) / 100)
    assert figures["dollars.lru.2"]["value"] == pytest.approx(12 * 512 / 100 / 100)
    assert "61.44 s, 0.6144 dollars" in capsys.readouterr().out


def test_a_random_order_keeps_calls_and_times() -> None:
    calls = [
        SerialCall(np.array([number]), 1, 64, float(number), number + number / 10, None, 5.0)
        for number in range(20)
    ]
    mixed_up = in_random_order(calls, 3)
    assert [call.start_s for call in mixed_up] == [call.start_s for call in calls]
    for call in mixed_up:
        assert call.end_s - call.start_s == pytest.approx(int(call.path[0]) / 10)
    assert [int(call.path[0]) for call in mixed_up] != list(range(20))
    again = [int(call.path[0]) for call in in_random_order(calls, 3)]
    assert again == [int(call.path[0]) for call in mixed_up]
    assert again != [int(call.path[0]) for call in in_random_order(calls, 4)]


def test_the_share_of_the_gap_closed_is_told_where_there_is_a_gap() -> None:
    rates = {
        "lru": {1: 0.2, 2: 0.5},
        "slru": {1: 0.3, 2: 0.4},
        "optimum": {1: 0.6, 2: 0.501},
    }
    closed = gap_closed(rates)
    assert closed == {"slru": {1: pytest.approx(0.25)}}
    assert gap_closed({"lru": {1: 0.2}, "slru": {1: 0.3}}) == {}


def test_a_conversations_next_prompt_goes_on_from_its_reply(tmp_path: Path) -> None:
    reader = TextTraces(lambda text: [ord(letter) for letter in text], 2)
    path = text_file(tmp_path, {"a": ["xx", "yy"], "b": ["xx"]})
    (first, second), (other,) = reader.sessions(path, 20)
    assert first.prompt_tokens == 2
    assert len(first.path) == 2  # its reply is stored, too
    assert second.prompt_tokens == 6
    assert second.path[:2].tolist() == first.path.tolist()
    assert other.path.tolist() == first.path.tolist()  # of two traces, too: one reader
    assert reader.sessions(path, 1)[0][0].path.tolist() == first.path.tolist()


def test_sessions_in_flight_take_turns_and_the_next_begins_when_one_has_ended(
    tmp_path: Path,
) -> None:
    reader = TextTraces(lambda text: [ord(letter) for letter in text], 1)
    sessions = reader.sessions(text_file(tmp_path, {name: [name] * 2 for name in "abc"}), 20)
    calls = mixed(sessions, 2, 0, block_tokens=1, shuffle_rounds=False, seconds_a_call=2.0)
    heads = [int(call.path[0]) for call in calls]
    first, second, third = heads[0], heads[1], heads[4]
    assert heads == [first, second, first, second, third, third]
    assert sorted({first, second, third}) == sorted(int(each[0].path[0]) for each in sessions)
    assert [call.start_s for call in calls] == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert [call.prompt_blocks for call in calls] == [1, 1, 4, 4, 1, 4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--serial"], "--serial needs --trace FILE"),
        (["--serial", "--trace", "/nowhere.jsonl"], "there is no such file"),
        (["--serial", "--eviction", "lru,best"], "'best' is not one of lru"),
        (["--serial", "--blocks", "0"], "is not a whole number of at least 1"),
        (["--trace", "x.jsonl"], "does not apply to zipf: say simulate trace"),
        (["trace", "--trace", __file__, "--eviction", "optimum"], "optimum needs --serial"),
        (
            ["--serial", "--trace", __file__, "--gpu-hour-dollars", "2"],
            "--gpu-hour-dollars needs --prefill-tokens-per-s with --serial",
        ),
    ],
)
def test_wrong_options_are_refused_with_what_to_do(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *options])
    assert ended.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_damaged_trace_ends_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = blocks_file(tmp_path, [[1]])
    path.write_text(path.read_text() + "{\n")
    assert main(["simulate", "--serial", "--trace", str(path), "--output", str(tmp_path)]) == 2
    assert f"{path}, line 2: not JSON" in capsys.readouterr().err
