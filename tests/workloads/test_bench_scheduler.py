from __future__ import annotations

import json
from pathlib import Path

import pytest

from workloads.__main__ import main
from workloads.scheduling.bench import bench_scheduler, make_figures
from workloads.scheduling.queue_load import (
    OWN_TOKENS,
    PROMPT_TOKENS,
    STEP_REQUESTS,
    QueueLoad,
    shared_head,
)
from workloads.scheduling.queue_timing import QueueTimer, decode_times, step_times


def test_the_cache_holds_a_million_tokens_and_every_prompt_finds_all_but_its_own() -> None:
    load = QueueLoad(2 * STEP_REQUESTS, lambda count: None)
    assert load.cache.pool.tree_blocks * 16 == 1_040_896
    plan = load.scheduler.plan()
    assert len(plan.spans) == STEP_REQUESTS
    for request, start, count, samples in plan.spans:
        assert (start, count, samples) == (PROMPT_TOKENS - OWN_TOKENS, OWN_TOKENS, True)
        assert request.cached_tokens == start


def test_a_step_exchanges_64_requests_and_256_blocks() -> None:
    load = QueueLoad(2 * STEP_REQUESTS, lambda count: None)
    step_times(load, 6)  # 12 steps: the pool is full after 8
    before = load.cache.counters.evicted_blocks
    times = step_times(load, 2)
    assert load.cache.counters.evicted_blocks - before == 4 * 256
    assert load.scheduler.num_waiting == 2 * STEP_REQUESTS
    assert {kind: len(values) for kind, values in times.items()} == dict.fromkeys(times, 2)


def test_a_head_that_all_share_is_computed_by_the_first_and_served_to_the_next() -> None:
    scheduler = shared_head(200, lambda count: None)
    plan = scheduler.plan()
    (span,) = plan.spans
    assert span.count == PROMPT_TOKENS // 2 + OWN_TOKENS
    scheduler.commit(plan, [1])
    (span,) = scheduler.plan().spans
    assert (span.start, span.count) == (PROMPT_TOKENS // 2, OWN_TOKENS)


def test_the_timer_adds_nothing_once_stopped() -> None:
    scheduler = shared_head(3, lambda count: None)
    timer = QueueTimer(scheduler)
    scheduler.commit(scheduler.plan(), [1])
    spent = timer.seconds
    assert spent > 0
    timer.stop()
    scheduler.commit(scheduler.plan(), [1])
    assert timer.seconds == spent


def test_all_parts_of_a_decoding_step_are_timed_equally_often() -> None:
    assert {kind: len(values) for kind, values in decode_times(2).items()} == {
        "plan": 2,
        "batch": 2,
        "commit": 2,
    }


def test_figures_are_those_at_10_000_waiting_and_the_worse_of_both_orders() -> None:
    medians = {
        10_000: {"order": 0.5, "shared": 0.7, "plan": 1.5, "commit": 1.0},
        100: {"order": 9.0, "shared": 9.0, "plan": 9.0, "commit": 9.0},
    }
    figures = make_figures(medians, {"plan": 0.25, "batch": 0.25, "commit": 0.25}, {})
    values = {key: (figure.value, figure.goal) for key, figure in figures.items()}
    assert values == {
        "order_10k_ms": (0.7, 1.0),
        "admit_64_of_10k_ms": (1.5, 2.0),
        "step_host_256_running_ms": (0.75, 1.0),
    }
    del medians[10_000]
    assert set(make_figures(medians, {"plan": 1.0}, {})) == {"step_host_256_running_ms"}


def test_it_writes_its_figures_and_its_plot(tmp_path: Path) -> None:
    assert bench_scheduler(tmp_path, [2 * STEP_REQUESTS], 2, simulated=False) == 0
    written = json.loads((tmp_path / "bench-scheduler.json").read_text())
    assert set(written["data"]["queue_ms"]["128"]) == {
        "order",
        "plan",
        "commit",
        "arrive",
        "shared",
    }
    assert (tmp_path / "bench-scheduler.png").stat().st_size > 10_000


def test_a_queue_too_short_for_a_step_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["bench-scheduler", "--waiting", "100"])
    assert error.value.code == 2
    assert "128" in capsys.readouterr().err
