from __future__ import annotations

import gc
import json
from array import array
from pathlib import Path

import numpy as np
import pytest

from radix_engine.cache import PrefixCache
from workloads.__main__ import main
from workloads.tree import pauses as tree_pauses
from workloads.tree.bench import bench_tree
from workloads.tree.build import (
    BLOCK,
    GHOSTS_PER_BLOCK,
    GrownTree,
    empty_tree,
    make_ghosts,
    store,
    store_leaves,
    tokens,
)
from workloads.tree.churn import Churn, Times, fill
from workloads.tree.memory import footprint, long_runs, reachable
from workloads.tree.operations import OPERATIONS, lay_paths, measure, room_needed
from workloads.tree.pauses import collector_as_in_the_server, longest, spread
from workloads.tree.plot import spread_out
from workloads.tree.report import FIGURES, Medians, growth, make_figures

LEAVES = 120


def nothing(_: float) -> None:
    pass


def grown(room: int = 0) -> GrownTree:
    tree = empty_tree(LEAVES, room)
    store_leaves(tree, nothing)
    return tree


def test_a_grown_tree_has_the_leaves_that_were_asked_for() -> None:
    tree = grown()
    assert len(tree.cache._tree.leaves.leaves()) == LEAVES
    assert tree.cache.pool.tree_blocks == LEAVES + 2 * len(tree.heads)
    assert tree.cache.audit([]) == []


def test_a_tree_that_has_run_for_a_while_has_all_the_ghosts_it_may() -> None:
    tree = grown()
    blocks = LEAVES + 2 * len(tree.heads)
    assert tree.cache.ghost_tokens == 0
    make_ghosts(tree, nothing)
    assert tree.cache.ghost_tokens == GHOSTS_PER_BLOCK * blocks * BLOCK
    assert tree.cache.audit([]) == []


def test_every_operation_is_timed_in_every_tree_and_leaves_it_sound() -> None:
    trees = [empty_tree(leaves, room_needed(1), seed=leaves) for leaves in (LEAVES, 2 * LEAVES)]
    for tree in trees:
        store_leaves(tree, nothing)
    paths = [lay_paths(tree, 1) for tree in trees]
    samples = measure(paths, 1, nothing)
    for taken in samples:
        assert {name: len(values) for name, values in taken.items()} == {
            operation.name: operation.per_round for operation in OPERATIONS
        }
        assert all(value >= 0 for values in taken.values() for value in values)
    for tree, laid in zip(trees, paths, strict=True):
        assert tree.cache.audit([], laid.held) == []
        assert tree.cache.counters.evicted_blocks == 4 * 20


def test_the_long_paths_have_the_depth_that_is_said() -> None:
    tree = empty_tree(LEAVES, room_needed(1))
    paths = lay_paths(tree, 1)
    depths = []
    for run in (paths.turns, paths.forks, paths.one):
        node = tree.cache.match(run + bytes(4)).node
        depth = 0
        while node.parent is not None and node.run:
            depth += 1
            node = node.parent
        depths.append(depth)
    assert depths == [64, 64, 1]


def test_memory_counts_each_object_once_and_follows_no_code() -> None:
    shared = b"x" * 1000
    things = [shared, shared, [shared], len, dict]
    sizes = reachable(things)
    assert set(sizes) == {"list", "bytes"}
    assert sizes["bytes"] == 1000 + 33
    without: list[object] = [things, b"y" * 100]
    assert reachable(without, without=things)["bytes"] == 100 + 33


def test_memory_of_a_cache_grows_with_its_tokens_and_not_with_its_empty_pool() -> None:
    small, large = (PrefixCache(blocks, BLOCK) for blocks in (64, 6400))
    run = tokens(np.random.default_rng(1), 32 * BLOCK)
    for cache in (small, large):
        store(cache, run)
    assert footprint(small, 1).tokens == footprint(large, 1).tokens == 32 * BLOCK
    assert abs(footprint(small, 1).tree - footprint(large, 1).tree) < 500
    assert footprint(large, 1).tree > len(run)
    store(large, tokens(np.random.default_rng(2), 320 * BLOCK))
    assert footprint(large, 2).tree > footprint(small, 1).tree + 320 * BLOCK * 4


def test_a_long_runs_token_takes_its_four_bytes_and_a_little_and_ghosts_take_more() -> None:
    fresh, with_ghosts = long_runs(40, nothing)
    assert fresh.tokens == with_ghosts.tokens == 40 * 1024
    assert 4.0 < fresh.per_token < 8.0
    assert with_ghosts.per_token > fresh.per_token + 4.0 * GHOSTS_PER_BLOCK
    assert fresh.per_leaf == pytest.approx(1024 * fresh.per_token)


def test_churn_uses_every_operation_and_leaves_the_cache_sound() -> None:
    churn = Churn(400)
    fill(churn, nothing)
    for _ in range(2500):
        churn.step()
    assert set(churn.times.by_kind) == {
        "account", "allocate", "announce", "commit", "expire", "free", "lease", "match",
        "publish", "release", "sum", "withdraw",
    }  # fmt: skip
    counters = churn.cache.counters
    assert counters.evicted_blocks > 0
    assert counters.expired_blocks > 0
    assert counters.withdrawn_blocks > 0
    held = [request.tail for request in churn._running]
    leases = [request.lease for request in churn._running]
    assert churn.cache.audit(held, leases) == []
    assert 200 < churn.stored_leaves() < 600


def test_churn_reports_what_was_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([0.0, *(number / 10 for number in range(1000))])
    monkeypatch.setattr(tree_pauses, "monotonic", lambda: next(moments))
    churn = Churn(100)
    report = tree_pauses.run(churn, 20.0, nothing)
    assert report.requests == 200
    assert report.operations["match"].count == 200
    assert report.operations["collect"].count == 200
    slowest = max(spread.longest_us for spread in report.operations.values())
    assert report.longest_ms == pytest.approx(slowest / 1000)


def test_the_garbage_collector_is_as_before_after_a_churn() -> None:
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    with collector_as_in_the_server() as (_, collections):
        assert gc.get_threshold() != thresholds
        gc.collect(1)
        assert len(collections.taken[1]) == 1
    assert gc.get_threshold() == thresholds
    assert gc.callbacks == callbacks
    assert gc.get_freeze_count() == 0


def test_spreads_and_longest_operations_are_those_of_the_samples() -> None:
    taken = array("q", [1_000, 3_000, 2_000])
    assert (spread(taken).count, spread(taken).median_us, spread(taken).longest_us) == (3, 2.0, 3.0)
    times = Times({"match": array("q", [10, 2_000_000]), "release": array("q", [9_000_000])})
    assert longest(times, 5) == [("release", 9.0, 0), ("match", 2.0, 1)]
    assert longest(times, 1) == [("release", 9.0, 0)]


def medians(*sizes: int) -> Medians:
    return {size: {op.name: 10.0 + size / 1000 for op in OPERATIONS} for size in sizes}


def test_the_figures_have_the_keys_units_and_goals_that_were_agreed() -> None:
    figures = make_figures(medians(1_000, 40_000, 100_000), 7.5, 4.0)
    assert {key: (f.value, f.unit, f.goal, f.better) for key, f in figures.items()} == {
        "match_64k_64nodes_us": (110.0, "us", 30.0, "lower"),
        "match_64k_1node_us": (110.0, "us", None, "lower"),
        "publish_64k_us": (110.0, "us", None, "lower"),
        "evict4_40k_leaves_us": (50.0, "us", 15.0, "lower"),
        "lease_release_depth64_us": (110.0, "us", 25.0, "lower"),
        "growth_1k_to_100k": (10.0, "ratio", 2.0, "lower"),
        "max_pause_ms": (4.0, "ms", 5.0, "lower"),
        "python_bytes_per_cached_token": (7.5, "bytes", None, "lower"),
    }


def test_figures_of_sizes_that_were_not_measured_are_left_out() -> None:
    missing = set(FIGURES) - set(make_figures(medians(1_000, 10_000), 7.5, 4.0))
    assert missing == {"evict4_40k_leaves_us", "growth_1k_to_100k"}


def test_growth_is_the_large_trees_cost_over_the_small_ones() -> None:
    measured = {1_000: {"match": 10.0, "sum": 4.0}, 100_000: {"match": 15.0, "sum": 2.0}}
    assert growth(measured, 1_000, 100_000) == {"match": 1.5, "sum": 0.5}


def test_labels_keep_their_order_and_a_distance() -> None:
    assert spread_out([0.5, 0.1, 0.9], 0.1) == [0.5, 0.1, 0.9]
    assert spread_out([0.50, 0.52, 0.1], 0.1) == pytest.approx([0.46, 0.56, 0.1])
    assert spread_out([0.5, 0.5, 0.5, 0.62], 0.1) == pytest.approx([0.38, 0.48, 0.58, 0.68])


@pytest.mark.parametrize("wrong", [["--seconds", "0"], ["--leaves", "999"], ["--seconds", "x"]])
def test_impossible_options_are_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench-tree", *wrong])


@pytest.mark.slow
def test_the_benchmark_writes_its_figures_and_its_plot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench_tree(tmp_path, [300, LEAVES], 0.2, runs=20, rounds=1) == 0
    written = json.loads((tmp_path / "bench-tree.json").read_text())
    assert set(written["figures"]) == set(FIGURES) - {"evict4_40k_leaves_us", "growth_1k_to_100k"}
    assert set(written["data"]["operations"]) == {str(LEAVES), "300"}
    assert set(written["data"]["growth"]) == {operation.name for operation in OPERATIONS}
    assert written["data"]["churn"]["operations"]["match"]["count"] > 0
    assert (tmp_path / "bench-tree.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "match_64k_64nodes_us" in printed
    assert "not measured with these sizes: evict4_40k_leaves_us, growth_1k_to_100k" in printed
