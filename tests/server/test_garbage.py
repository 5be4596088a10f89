from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from server.garbage import collect_when_idle, tame_garbage_collector


class Knot:
    """An object that refers to itself, so that only a collection can free it."""

    alive = 0

    def __init__(self) -> None:
        self.itself = self
        Knot.alive += 1

    def __del__(self) -> None:
        Knot.alive -= 1


class Collections:
    """Counts collections by generation."""

    def __init__(self) -> None:
        self.counts = [0, 0, 0]

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            self.counts[info["generation"]] += 1


@pytest.fixture
def collections() -> Iterator[Collections]:
    """A tamed collector; afterwards it is as it was."""
    thresholds = gc.get_threshold()
    counting = Collections()
    tame_garbage_collector()
    gc.callbacks.append(counting)
    try:
        yield counting
    finally:
        gc.callbacks.remove(counting)
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        gc.collect()


def grow(count: int) -> list[list[int]]:
    """So many objects that the collector knows and that stay."""
    return [[number] for number in range(count)]


def test_what_was_loaded_is_looked_at_no_more(collections: Collections) -> None:
    assert gc.get_freeze_count() > 1000
    assert len(gc.get_objects()) < gc.get_freeze_count()


def test_work_causes_young_collections_but_no_full_one(collections: Collections) -> None:
    kept = grow(400_000)  # untamed, this much causes one
    assert len(kept) == 400_000
    assert collections.counts[0] > 100
    assert collections.counts[1] > 10
    assert collections.counts[2] == 0


def test_circles_that_die_young_are_freed_during_work(collections: Collections) -> None:
    for _ in range(20_000):
        Knot()
    assert Knot.alive < 10_000
    assert collections.counts[2] == 0


def test_circles_that_lived_through_work_are_freed_when_idle(collections: Collections) -> None:
    knots = [Knot() for _ in range(100)]
    kept = grow(50_000)
    knots.clear()
    kept += grow(50_000)  # young collections do not look at them any more
    assert Knot.alive >= 100
    assert collect_when_idle() > 0.0
    assert Knot.alive == 0
    assert collections.counts[2] == 1


def test_an_idle_server_does_not_collect_again_and_again(collections: Collections) -> None:
    kept = grow(50_000)
    assert collect_when_idle() > 0.0
    kept += grow(1_000)  # a short request
    assert collect_when_idle() == 0.0
    assert collections.counts[2] == 1


def test_a_server_that_is_never_idle_collects_at_last(collections: Collections) -> None:
    kept: list[list[list[int]]] = []
    for _ in range(100):
        kept.append(grow(50_000))
        if collections.counts[2]:
            break
    assert collections.counts[2] == 1
    assert 1_000_000 < 50_000 * len(kept) <= 2_500_000
