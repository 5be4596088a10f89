"""bench-debug: a tree as large as asked for, steps of a known length, and right figures."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from radix_engine.cache import PrefixCache
from radix_engine.model.batch import Span
from scheduler import Limits
from server import Engine, GenerationParams
from server.options import CacheOptions
from server.text import TextCodec
from tests.server_http.running import serving
from tests.tiny import make_tiny_folder
from workloads.__main__ import main
from workloads.debug.bench import Measured, at, figures_of, rounds_table, step_ms
from workloads.debug.browser import Drawn
from workloads.debug.grown import count_nodes, grow
from workloads.debug.timed_model import TimedRunner, timed_model
from workloads.debug.watching import Window, run_streams, tree_answers, window


def test_a_tree_grows_to_as_many_nodes_as_are_asked_for_and_is_sound() -> None:
    cache = PrefixCache(4000, 16)
    found = grow(cache, 1500)
    assert 1500 <= found == count_nodes(cache) < 1500 + 2500
    assert cache.audit((), ()) == []
    assert len(cache.root.children) == 8


def test_a_pool_without_room_for_so_many_nodes_is_told() -> None:
    with pytest.raises(ValueError, match="has no room for 100000 nodes"):
        grow(PrefixCache(200, 16, ghost_blocks=100), 100_000)


def test_the_model_always_thinks_of_the_same_token_and_notes_its_steps() -> None:
    runner = TimedRunner(8, 16, 10, 0.0)
    spans = [Span([1, 2], 0, [0], 1), Span([3], 4, [1], 0), Span([1], 0, [2], 1)]
    assert runner.forward(spans).argmax(dim=-1).tolist() == [5, 5]
    assert len(runner.began) == 1


def windows() -> list[Window]:
    return [
        Window("nobody", 0.0, 0.5),
        Window("page", 1.0, 1.5, updates=[9000, 100, 300]),
        Window("tree", 2.0, 2.5, trees=[(0.05, 1000), (0.07, 2000)]),
    ]


def test_figures_are_medians_of_rounds_and_ratios_of_windows_of_one_round() -> None:
    lengths = ((0, 4), (1, 5), (2, 6))  # of a window's steps, in milliseconds
    began = [start + 0.001 * ms * step for start, ms in lengths for step in range(50)]
    drawn = Drawn(80.0, [10.0, 30.0, 20.0])
    found = Measured([windows()], [(0.1, 5000), (0.3, 6000), (0.2, 7000)], drawn, began)
    figures = {name: figure.value for name, figure in figures_of(found).items()}
    expected = {
        "tree_p50_ms": 60.0,
        "tree_longest_ms": 70.0,
        "tree_bytes": 2000,
        "tree_2000_p50_ms": 200.0,
        "tree_2000_bytes": 7000,
        "update_bytes": 200.0,
        "first_draw_ms": 80.0,
        "update_draw_ms": 20.0,
        "step_p50_nobody_ms": 4.0,
        "step_p50_page_ratio": 1.25,
        "step_p99_tree_ratio": 1.5,
    }
    assert {name: figures[name] for name in expected} == pytest.approx(expected)
    assert rounds_table(found).count("\n") == 4
    without = figures_of(Measured(found.rounds, found.larger, None, began))
    assert "first_draw_ms" not in without


def test_only_steps_within_a_window_count() -> None:
    inside = step_ms(Window("nobody", 1.0, 2.0), [0.5, 1.0, 1.25, 1.75, 2.5])
    assert inside == [250.0, 500.0]
    assert [at([1, 2, 3, 4], share) for share in (0.0, 0.5, 1.0)] == [1, 3, 4]


def test_a_served_engine_is_looked_at_while_streams_run(tmp_path: Path) -> None:
    made: list[TimedRunner] = []
    folder = make_tiny_folder(tmp_path / "tiny", tokenizer=True)
    model = timed_model(512, 0.001, made)
    limits = Limits(max_running=8)
    with Engine(model, TextCodec(folder), 2000, limits=limits, cache=CacheOptions()) as engine:
        assert engine.generate([[1, 2, 3]], GenerationParams(2))[0].token_ids == (256, 256)

        async def look(port: int) -> tuple[list[Window], list[tuple[float, int]]]:
            tasks = await run_streams(port)
            found = [await window(port, who, 0.4) for who in ("nobody", "tree", "page")]
            answers = await tree_answers(port, "?limit=3", 1)
            for task in tasks:
                assert not task.done()
                task.cancel()
            return found, answers

        with serving(engine) as (url, _, _):
            found, answers = asyncio.run(look(int(url.rpartition(":")[2])))
    alone, tree, page = found
    assert (alone.trees, alone.updates) == ([], [])
    assert tree.trees
    assert not tree.updates
    assert page.updates
    assert not page.trees
    assert answers[0][1] > 500
    assert len(step_ms(alone, made[0].began)) > 20


def test_a_model_that_is_not_there_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(tmp_path / "none")
    assert main(["bench-debug", "--model", model, "--output", str(tmp_path)]) == 1
    assert "bench-debug: FAILED: " in capsys.readouterr().err
