from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from scheduler import Limits
from workloads.__main__ import main
from workloads.simulation.options import default_options

SMALL = ["--requests", "40", "--heads", "4", "--head-tokens", "64", "--own-tokens", "16"]


def simulate(folder: Path, *options: str) -> dict[str, Any]:
    assert main(["simulate", *options, "--reply-tokens", "4", "--output", str(folder)]) == 0
    written: dict[str, Any] = json.loads((folder / "simulate.json").read_text())
    return written


def without_wall_time(written: dict[str, Any]) -> list[object]:
    rows = [*written["data"]["orders"].values(), *written["data"]["all_at_the_start"].values()]
    return [{k: v for k, v in row.items() if k != "requests_per_wall_s"} for row in rows]


def test_a_simulation_is_printed_written_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = simulate(tmp_path, *SMALL, "--pool-share", "0.5")
    assert list(written["data"]["orders"]) == ["lpm", "dfs", "hrrn", "fcfs"]
    for order, row in written["data"]["orders"].items():
        assert row["hit_tokens"] + row["computed_tokens"] == 40 * 80
        assert row["hit_rate"] == row["hit_tokens"] / (40 * 80)
        assert row["not_served"] == 0
        assert len(row["ttft_quantiles_s"]) == 101
        assert written["figures"][f"hit_tokens_{order}"]["value"] == row["hit_tokens"]
    figures = written["figures"]
    rows = written["data"]["orders"]
    best = written["data"]["all_at_the_start"]["dfs, all at once, unbounded"]
    assert figures["hit_share_of_best_order"]["value"] == (
        rows["lpm"]["hit_tokens"] / best["hit_tokens"]
    )
    assert {key: figure["goal"] for key, figure in figures.items() if figure["goal"]} == {
        "hit_share_of_best_order": 0.95,
        "p99_wait_over_fcfs": 1.2,
        "mean_ttft_fcfs_over_lpm": 2.0,
        "requests_per_wall_s": 1000.0,
    }
    # Requests come at 1.3 times the rate at which fcfs serves them when all are there at once.
    at_once = written["data"]["all_at_the_start"]["fcfs, all at once"]
    assert written["data"]["arrivals_per_s"] == pytest.approx(1.3 * 40 / at_once["makespan_s"])
    # 4 heads of 64, 40 requests of 16 + 4 tokens: 1,056 distinct tokens, half of them in blocks.
    assert written["data"]["distinct_tokens"] == 1056
    assert written["data"]["pool_blocks"] == 33
    assert (tmp_path / "simulate.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "4 heads by Zipf(1)" in printed
    assert "hit_share_of_best_order" in printed


def test_the_same_seed_gives_the_same_results_and_another_one_does_not(tmp_path: Path) -> None:
    options = [*SMALL, "--orders", "lpm", "fcfs"]
    first = without_wall_time(simulate(tmp_path, *options))
    assert first == without_wall_time(simulate(tmp_path, *options))
    assert first != without_wall_time(simulate(tmp_path, *options, "--seed", "1"))


def test_the_best_order_is_bound_by_no_number_of_overtakings(tmp_path: Path) -> None:
    options = ["fewshot", "--heads", "4", "--questions", "8", "--head-tokens", "64"]
    options += ["--max-running", "1", "--pool-share", "0.2", "--orders", "dfs"]
    written = simulate(tmp_path, *options, "--max-passed-by", "0")
    (best,) = written["data"]["all_at_the_start"].values()
    # Each head is computed once: 7 of 8 questions find it.
    assert best["hit_tokens"] == 4 * 7 * 64
    assert written["data"]["orders"]["dfs"]["hit_tokens"] < best["hit_tokens"]


def test_a_batch_is_there_at_the_start(tmp_path: Path) -> None:
    written = simulate(
        tmp_path, "fewshot", "--heads", "3", "--questions", "5", "--head-tokens", "64",
        "--orders", "lpm", "fcfs", "--prefix-index", "hash",
    )  # fmt: skip
    rows = written["data"]["orders"]
    assert list(rows) == ["lpm", "fcfs"]
    assert written["data"]["arrivals_per_s"] is None
    assert rows["lpm"]["hit_tokens"] + rows["lpm"]["computed_tokens"] == 15 * 192
    assert all(figure["goal"] is None for figure in written["figures"].values())


def test_a_trace_is_simulated_as_far_as_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_text(
        "\n".join(
            json.dumps(
                {
                    "session_id": session,
                    "turn": turn,
                    "messages": [{"role": "user", "content": f"{session} says {turn} " * 40}],
                    "output": "the recorded reply " * 5,
                }
            )
            for session in "abc"
            for turn in range(3)
        )
    )
    written = simulate(
        tmp_path, "trace", "--trace", str(trace), "--sessions", "2", "--max-turns", "2",
        "--pool-share", "2", "--orders", "lpm",
    )  # fmt: skip
    row = written["data"]["orders"]["lpm"]
    # Messages of 9 * 40 bytes are 90 tokens and two marks; replies of 95 bytes are 24.
    prompts = 2 * 92 + 2 * (92 + 24 + 92)
    assert row["hit_tokens"] + row["computed_tokens"] == prompts
    # Of the 115 tokens before a reply's last one, 7 blocks.
    assert row["hit_tokens"] == 2 * 112
    assert "hit_share_of_best_order" not in written["figures"]
    printed = capsys.readouterr().out
    assert "4 calls of 2 sessions (5 calls left out)" in printed
    assert "nothing to take these from: hit_share_of_best_order" in printed


def test_costs_can_be_fitted_to_a_file(tmp_path: Path) -> None:
    shapes = [(1, 1, 1), (4, 40, 4), (16, 136, 1), (64, 9000, 2), (20, 5000, 7), (8, 3000, 8)]
    file = tmp_path / "steps.jsonl"
    file.write_text(
        "\n".join(
            json.dumps(
                {"computed": c, "pairs": p, "sequences": n, "seconds": 1 + c / 4 + p / 8 + n / 2}
            )
            for c, p, n in shapes
        )
    )
    written = simulate(tmp_path, *SMALL, "--orders", "lpm", "--fit", str(file))
    assert written["data"]["cost_model"] == pytest.approx(
        {"fixed": 1.0, "per_token": 0.25, "per_pair": 0.125, "per_sequence": 0.5}
    )


def test_the_default_is_the_published_experiment() -> None:
    options = default_options()
    assert (options.kind, options.requests, options.heads, options.zipf_s) == ("zipf", 2000, 64, 1)
    assert (options.head_tokens, options.own_tokens, options.reply_tokens) == (1024, 128, 64)
    assert (options.load, options.pool_shares, options.blocks) == (1.3, (0.25,), ())
    assert (options.evictions, options.max_sessions) == (("lru",), (None,))
    assert options.orders == ("lpm", "dfs", "hrrn", "fcfs")
    assert options.limits == Limits(256)
    assert (options.index, options.fit, options.seed) == ("tree", None, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--heads", "0"], "--heads: '0' is not a whole number of at least 1"),
        (["--load", "nan"], "--load: 'nan' is not a number of at least"),
        (["--zipf-s", "-1"], "--zipf-s: '-1' is not a number of at least 0"),
        (["--order", "lpm,lifo"], "'lifo' is not one of lpm, dfs, hrrn, fcfs, priority"),
        (["--order", ","], "',' names nothing; give values, as in A,B"),
        (["--eviction", "lru,best"], "'best' is not one of lru"),
        (["--eviction", "optimum"], "--eviction optimum needs --serial"),
        (["--prefix-index", "hash", "--eviction", "lfu"], "hash has no --eviction but lru"),
        (["--blocks", "0"], "'0' is not a whole number of at least 1"),
        (["--max-sessions", "0"], "must be a whole number from 1, not '0'; or write auto or off"),
        (["--questions", "3"], "--questions 3 does not apply to zipf: it is for fewshot"),
        (["fewshot", "--load", "2"], "--load 2.0 does not apply to fewshot: it is for zipf"),
        (["trace", "--heads", "2"], "--heads 2 does not apply to trace: it is for zipf or few"),
        (["trace"], "trace needs --trace FILE"),
        (["trace", "--trace", "none.jsonl"], "--trace none.jsonl: there is no such file"),
        (["--trace", "t.jsonl"], "--trace t.jsonl does not apply to zipf: say simulate trace"),
        (["--fit", "none.jsonl"], "--fit none.jsonl: there is no such file"),
        (
            ["--max-step-tokens", "8"],
            "max_running (64) must not exceed max_step_tokens (8): every running request gets a "
            "token in each step; lower --max-running or raise --max-step-tokens",
        ),
    ],
)
def test_wrong_options_are_named_with_their_value_and_a_remedy(
    options: Sequence[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *options])
    assert ended.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_what_cannot_be_simulated_says_why_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text("nonsense\n")
    output = tmp_path / "results"
    for options, message in (
        (["--pool-share", "0.001"], "--pool-share 0.001 of 3,456 distinct tokens are 0 blocks"),
        (["--fit", str(wrong)], "wrong.jsonl, line 1: not JSON"),
        (["trace", "--trace", str(wrong)], "wrong.jsonl, line 1: not JSON"),
    ):
        small = [] if options[0] == "trace" else SMALL
        assert main(["simulate", *options, *small, "--output", str(output)]) == 2
        err = capsys.readouterr().err
        assert err.startswith("simulate: ")
        assert message in err
    assert not output.exists()
