"""simulate with several orders, eviction rules and sizes of the memory, and traces of blocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scheduler import Limits, Request, ScheduledSpan
from workloads.__main__ import main
from workloads.simulation.block_load import block_load
from workloads.simulation.block_steps import BlockSteps
from workloads.simulation.cost import CostModel
from workloads.simulation.grid import Combination, combinations, key_of, named
from workloads.simulation.load import Load, LoadRequest, made_up_tokens
from workloads.simulation.run import Setup, simulate
from workloads.traces.block_trace import BlockCall, BlockTrace

STEP = CostModel(1.0, 0.0, 0.0, 0.0)


def call(session: str | None, at: float, ids: list[int], **fields: Any) -> BlockCall:
    return BlockCall(session, at, 64 * len(ids) + 1, np.array(ids, np.int32), **fields)


def test_combinations_are_named_by_what_differs() -> None:
    assert list(named(combinations(["lpm", "fcfs"], ["lru"], [100]))) == ["lpm", "fcfs"]
    grid = named(combinations(["lpm"], ["lru", "agent"], [100, 2000], [None, "auto"]))
    assert list(grid)[:2] == [
        "lpm, lru, 100 blocks, sessions off",
        "lpm, lru, 100 blocks, sessions auto",
    ]
    assert grid["lpm, agent, 2,000 blocks, sessions auto"] == Combination(
        "lpm", "agent", 2000, "auto"
    )
    assert key_of("lpm, agent, 2,000 blocks") == "lpm_agent_2000"


def test_all_combinations_are_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--requests", "30", "--heads", "4", "--head-tokens", "64", "--own-tokens", "16"]
    grid = ["--order", "lpm,fcfs", "--eviction", "lru,agent", "--blocks", "20,60"]
    arguments = ["simulate", *options, "--reply-tokens", "4", *grid, "--output", str(tmp_path)]
    assert main([*arguments, "--gpu-hour-dollars", "3600"]) == 0
    written = json.loads((tmp_path / "simulate.json").read_text())
    rows = written["data"]["orders"]
    assert len(rows) == 8
    row = rows["fcfs, agent, 60 blocks"]
    assert (row["order"], row["eviction"], row["blocks"]) == ("fcfs", "agent", 60)
    assert row["hit_tokens"] + row["computed_tokens"] == 30 * 80
    for name, each in rows.items():
        figure = written["figures"][f"hit_rate_{key_of(name)}"]
        assert figure["value"] == each["hit_rate"]
        assert each["dollars"] == each["gpu_s"] > 0
    # All heads fit into 60 blocks, and not into 20.
    for rule in ("lru", "agent"):
        few, many = (rows[f"fcfs, {rule}, {size} blocks"]["hit_tokens"] for size in (20, 60))
        assert few < many == 26 * 64
    assert written["data"]["pool_blocks"] == [20, 60]
    assert (tmp_path / "simulate.png").read_bytes().startswith(b"\x89PNG")
    assert "2 sizes of the memory" in capsys.readouterr().out


def test_the_result_can_be_printed_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--requests", "10", "--heads", "2", "--head-tokens", "32", "--own-tokens", "16"]
    assert main(["simulate", *options, "--order", "lpm", "--json", "--output", str(tmp_path)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "simulate.json").read_text()) | {
        "date": printed["date"]
    }


def test_a_trace_of_blocks_keeps_its_sessions_and_pauses() -> None:
    trace = BlockTrace(
        64,
        (
            call("a", 5.0, [1, 2], reply_s=2.0, stop="tool_use", reply_tokens=130),
            call("b", 6.0, [3], reply_tokens=10),
            call("a", 17.0, [1, 2, 4, 5], reply_tokens=64),
            call(None, 20.0, [6]),
            call(None, 21.0, [7], reply_tokens=0),  # recorded: only the token that ended it
        ),
    )
    made = block_load(trace, sessions=None, max_turns=None, concurrency=None, reply_tokens=320)
    load = made.load
    assert (load.id_tokens, load.concurrency, made.left_out_calls) == (64, None, 0)
    first, again = load.sessions[0]
    assert (first.delay_s, again.delay_s) == (5.0, 10.0)  # 17 - 5 - 2
    assert (first.calls_tool, again.calls_tool) == (True, False)
    # A block and a token: the token is nobody else's, and so are the reply's blocks.
    assert list(first.prompt[:2]) == [1, 2]
    assert list(again.prompt[:4]) == [1, 2, 4, 5]
    own = [first.prompt[2], again.prompt[4], *first.reply, *again.reply]
    assert len(set(own)) == len(own)
    assert all(each < 0 for each in own)
    # One, and 130, 64, 10, 320 and 0 / 64.
    assert [len(r.reply) for r in load.requests()] == [3, 2, 1, 6, 1]
    assert load.sessions[2][0].delay_s == 20.0


def test_a_trace_of_blocks_is_cut_as_asked() -> None:
    calls = tuple(call(name, float(at), [at]) for at, name in enumerate("aabbbc"))
    made = block_load(
        BlockTrace(64, calls), sessions=2, max_turns=2, concurrency=1, reply_tokens=64
    )
    assert [len(session) for session in made.load.sessions] == [2, 2]
    assert made.left_out_calls == 2
    assert made.load.concurrency == 1


def span(prompt: int, start: int, count: int) -> ScheduledSpan:
    return ScheduledSpan(Request(1, range(prompt), 9), start, count, False)


def test_a_step_over_blocks_stands_for_the_steps_of_an_engine() -> None:
    steps = BlockSteps(CostModel(1.0, 0.1, 0.01, 0.5), id_tokens=4, step_tokens=8)
    # 3 ids of a prompt, 12 tokens: two steps; 12 * 13 / 2 pairs; one sequence.
    assert steps.of_spans([span(9, 0, 3)]) == pytest.approx(2 + 1.2 + 0.78 + 0.5)
    # A reply's block of 4 tokens behind 40: four steps of one token each.
    assert steps.of_spans([span(10, 10, 1)]) == pytest.approx(4 + 0.4 + 1.7 + 2.0)
    # Both: 16 tokens fit the four steps of the reply.
    both = [span(9, 0, 3), span(10, 10, 1)]
    assert steps.of_spans(both) == pytest.approx(4 + 1.6 + 2.48 + 2.5)


def test_a_trace_of_blocks_is_simulated_with_ids_for_tokens(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    lines = [
        {
            "timestamp": 60_000 * at,
            "input_length": 1024,
            "output_length": 5,
            "hash_ids": [1, 2 + at % 2],
        }
        for at in range(4)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = ["trace", "--trace", str(path), "--order", "fcfs", "--blocks", "8,100"]
    assert main(["simulate", *options, "--output", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "simulate.json").read_text())["data"]["orders"]
    for row in rows.values():
        # The last id of a prompt is computed in any case: one of two, in each but the first.
        assert row["hit_tokens"] == 3 * 512
        assert row["hit_tokens"] + row["computed_tokens"] == 4 * 1024


def request(name: str, prompt: int) -> LoadRequest:
    return LoadRequest(made_up_tokens(0, name, prompt), made_up_tokens(0, name + "r", 2))


def test_a_session_that_outgrows_the_memory_ends_there_and_the_next_one_comes() -> None:
    load = Load(
        (
            (request("a", 16), request("b", 33), request("c", 8), request("d", 8)),
            (request("e", 16),),
        ),
        concurrency=1,
    )
    told: list[int] = []
    run = simulate(load, "lpm", Setup(STEP, Limits(64, 4), num_blocks=2), told.append)
    # Two blocks hold 32 tokens; the second request would store 34.
    assert [(o.session, o.turn) for o in run.outcomes] == [(0, 0), (1, 0)]
    assert (run.outgrown, run.left_out) == (1, 3)
    assert run.outgrown_sessions == {0}
    assert sum(told) == 5
    assert simulate(load, "lpm", Setup(STEP, Limits(64, 4), num_blocks=3)).outgrown == 0


def test_the_context_bounds_a_session_too() -> None:
    load = Load(((request("a", 16), request("b", 33)),))
    limits = Limits(64, 4)
    fits = simulate(load, "lpm", Setup(STEP, limits, num_blocks=9, context=35))
    assert (fits.outgrown, len(fits.outcomes)) == (0, 2)  # 33 + 2 tokens
    short = simulate(load, "lpm", Setup(STEP, limits, num_blocks=9, context=34))
    assert (short.outgrown, short.left_out, len(short.outcomes)) == (1, 1, 1)
