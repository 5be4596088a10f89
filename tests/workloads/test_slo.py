from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.workloads.making import load, options, record
from tests.workloads.scripted import Script, serving
from workloads.agents.bench import bench_agent
from workloads.agents.options import Load
from workloads.agents.plan import all_legs, make_plan
from workloads.agents.replay import REFUSED, TOO_LONG, Ended, Replay
from workloads.agents.slo import Slo, highest_rate, kept_share
from workloads.agents.targets import Target


def test_a_turn_keeps_the_limits_if_both_times_do() -> None:
    # First token after 100 ms, then 4 more in 400 ms.
    answer = record(1, ttft_s=0.1, last_s=0.5, completion_tokens=5).answer
    assert Slo(ttft_ms=100, itl_ms=100).kept_by(answer)
    assert not Slo(ttft_ms=99).kept_by(answer)
    assert not Slo(itl_ms=99).kept_by(answer)
    assert not Slo(ttft_ms=100, itl_ms=99).kept_by(answer)


def test_one_token_has_no_time_between_tokens_to_keep() -> None:
    assert Slo(itl_ms=1).kept_by(record(1, completion_tokens=1).answer)


def test_tokens_that_are_not_told_are_counted_by_the_pieces_of_the_stream() -> None:
    answer = record(1, ttft_s=0.1, last_s=0.5, completion_tokens=None, pieces=3).answer
    assert Slo(itl_ms=200).kept_by(answer)
    assert not Slo(itl_ms=199).kept_by(answer)


def test_the_share_counts_all_turns_and_the_refused_ones_as_missed() -> None:
    slow, quick = record(1, ttft_s=3.0), record(2, ttft_s=0.1)
    refused = Replay((quick,), (Ended("b", REFUSED, 2), Ended("c", TOO_LONG, 5)))
    # Two of three turns were answered in time, or two of five with those that were refused.
    assert kept_share(Slo(ttft_ms=500), [Replay((slow, quick, quick))]) == 2 / 3
    assert kept_share(Slo(ttft_ms=500), [Replay((slow, quick)), refused]) == 2 / 5
    assert kept_share(Slo(), [Replay((slow,))]) is None
    assert kept_share(Slo(ttft_ms=500), [Replay()]) is None


def test_the_highest_rate_is_the_last_before_one_that_falls_short() -> None:
    assert highest_rate({0.4: 0.8, 0.1: 1.0, 0.2: 0.9}, 0.9) == 0.2
    assert highest_rate({0.1: 0.95, 0.2: 0.5, 0.4: 0.95}, 0.9) == 0.1
    assert highest_rate({0.1: 0.5}, 0.9) is None
    assert highest_rate({0.1: 1.0, 0.2: None}, 0.9) == 0.1


def test_a_sweep_replays_every_rate_and_in_each_round_another_target_first() -> None:
    swept: Load = load(rates=(0.1, 0.2), rounds=2)
    legs = all_legs([Target("a"), Target("b")], swept)
    assert [(leg.rate, leg.round, leg.target) for leg in legs] == [
        (0.1, 0, "a"),
        (0.1, 0, "b"),
        (0.1, 1, "b"),
        (0.1, 1, "a"),
        (0.2, 0, "a"),
        (0.2, 0, "b"),
        (0.2, 1, "b"),
        (0.2, 1, "a"),
    ]


def test_a_higher_rate_has_the_same_sessions_in_less_time() -> None:
    plan = make_plan(load(agents=5, rates=(0.1, 0.2), think_time_s=1.0))
    slow, fast = plan.timed(0.1), plan.timed(0.2)
    assert [each.arrival_s for each in slow] == pytest.approx([2 * each.arrival_s for each in fast])
    assert [each.calls for each in slow] == [each.calls for each in fast]
    assert plan.load.concurrency is not None


def test_a_sweep_finds_the_highest_rate_and_writes_table_plot_and_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # From the 9th call on the server is too busy: the first rate's 4 calls and the second's are
    # answered, the third's are not.
    script = Script(busy_from_call=9)
    swept = load(agents=2, turns=2, rates=(100.0, 200.0, 400.0), concurrency=None)
    with serving(script) as url:
        chosen = options(
            tmp_path, load=swept, targets=(Target("a", url),), slo=Slo(ttft_ms=60_000.0)
        )
        assert bench_agent(chosen) == 0
    written = json.loads((tmp_path / "bench-agent.json").read_text())
    figures = {key: figure["value"] for key, figure in written["figures"].items()}
    assert figures["slo_share_a_at_100"] == figures["slo_share_a_at_200"] == 1
    assert figures["slo_share_a_at_400"] == 0
    assert figures["slo_rate_a"] == 200
    printed = capsys.readouterr().out
    assert "a: 90% of the turns keep TTFT <= 60000 ms up to 200 sessions a second" in printed
    assert (tmp_path / "bench-agent.png").read_bytes().startswith(b"\x89PNG")
    assert "Share of turns within the limits by rate" in (tmp_path / "bench-agent.html").read_text()
