from __future__ import annotations

import pytest

from tests.workloads.making import ANSWER, record
from workloads.agents.measures import (
    Tokens,
    counter_differences,
    decode_rate,
    equal_replies,
    percentile,
    prompts_differ,
    summarise,
)


def test_percentiles_interpolate_between_the_sorted_values() -> None:
    values = [40.0, 10.0, 30.0, 20.0]
    assert percentile(values, 0.5) == 25.0
    assert percentile(values, 0.99) == pytest.approx(39.7)
    assert percentile(values, 0.0) == 10.0
    assert percentile(values, 1.0) == 40.0
    assert percentile([7.0], 0.99) == 7.0
    assert percentile([], 0.5) is None


def test_decode_speed_counts_the_tokens_after_the_first() -> None:
    assert decode_rate(ANSWER) == pytest.approx(4 / 0.4)
    assert decode_rate(record(1, completion_tokens=1).answer) is None
    assert decode_rate(record(1, last_s=0.1).answer) is None


def test_the_hit_rate_is_all_cached_tokens_over_all_prompt_tokens_of_that_turn() -> None:
    records = [
        record(1, "a", prompt_tokens=100, cached_tokens=0),
        record(1, "b", prompt_tokens=300, cached_tokens=100),
        record(2, "a", prompt_tokens=1000, cached_tokens=900),
        record(2, "b", prompt_tokens=200, cached_tokens=0),
    ]
    summary = summarise(records)
    assert summary.tokens == Tokens(prompt=1600, cached=1000, generated=20)
    assert summary.tokens.computed == 600
    assert summary.tokens.hit_rate == 1000 / 1600
    assert [turn.tokens.hit_rate for turn in summary.turns] == [100 / 400, 900 / 1200]


def test_warm_turns_are_those_after_a_sessions_first() -> None:
    times = [(1, 4.0), (1, 6.0), (2, 1.0), (3, 2.0), (4, 3.0)]
    summary = summarise([record(turn, ttft_s=t) for turn, t in times])
    assert (summary.cold.calls, summary.cold.p50_ms) == (2, 5000.0)
    assert (summary.warm.calls, summary.warm.p50_ms) == (3, 2000.0)
    assert summary.all.p50_ms == 3000.0
    assert summary.all.p99_ms == pytest.approx(5920.0)


def test_a_run_without_an_answer_has_no_figures_and_is_no_error() -> None:
    summary = summarise([])
    assert summary.warm.p50_ms is None
    assert summary.tokens.hit_rate is None
    assert summary.decode_tps is None


def test_counters_agree_when_they_moved_by_the_clients_sums() -> None:
    before = {"prompt_tokens": 5, "cached_tokens": 1, "computed_tokens": 4, "steps": 9}
    after = {"prompt_tokens": 105, "cached_tokens": 61, "computed_tokens": 44, "steps": 99}
    assert counter_differences(before, after, Tokens(100, 60, 7)) == ()


def test_each_counter_that_moved_otherwise_is_named_with_both_numbers() -> None:
    before = {"prompt_tokens": 0, "cached_tokens": 0}
    after = {"prompt_tokens": 100, "cached_tokens": 1_061}
    assert counter_differences(before, after, Tokens(100, 60, 7)) == (
        "cached_tokens: server 1,061, client 60",
        "computed_tokens: the server has no such counter",
    )


def test_calls_with_other_prompts_or_without_a_partner_are_named() -> None:
    first = [record(1, digest="x"), record(2, digest="y"), record(3, digest="z")]
    second = [record(1, digest="x"), record(2, digest="other")]
    assert prompts_differ(first, second) == ("session a, turn 2", "session a, turn 3")
    assert prompts_differ(first, first) == ()


def test_equal_replies_are_counted_over_the_calls_of_both_runs() -> None:
    first = [record(1, text="x"), record(2, text="y"), record(3, text="z")]
    assert equal_replies(first, [record(1, text="x"), record(2, text="other")]) == (1, 2)
