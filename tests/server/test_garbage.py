from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from server.garbage import GarbageCollector, tame_garbage_collector


class Knot:
    """An object that refers to itself, so that only a collection can free it."""

    alive = 0

    def __init__(self) -> None:
        self.itself = self
        Knot.alive += 1

    def __del__(self) -> None:
        Knot.alive -= 1


class Collections:
    """Counts collections by generation, and knows the time."""

    def __init__(self) -> None:
        self.counts = [0, 0, 0]
        self.now = 0.0

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


@pytest.fixture
def collector(collections: Collections) -> GarbageCollector:
    return GarbageCollector(lambda: collections.now)


def grow(count: int) -> list[list[int]]:
    """So many objects that the collector knows and that stay."""
    return [[number] for number in range(count)]


def steps(collector: GarbageCollector, count: int) -> None:
    for _ in range(count):
        collector.between_steps()


def test_what_was_loaded_is_looked_at_no_more(collections: Collections) -> None:
    assert gc.get_freeze_count() > 1000
    assert len(gc.get_objects()) < gc.get_freeze_count()


def test_work_causes_no_full_collection(
    collector: GarbageCollector, collections: Collections
) -> None:
    kept = []
    for _ in range(400):
        kept.append(grow(1000))  # untamed, this many cause several
        collector.between_steps()
    assert collections.counts[0] > 100
    assert collections.counts[1] >= 25
    assert collections.counts[2] == 0


def test_what_is_new_is_collected_every_few_steps_though_as_much_is_freed_as_made(
    collector: GarbageCollector, collections: Collections
) -> None:
    kept = grow(5000)
    steps(collector, 16)
    collections.counts = [0, 0, 0]
    for _ in range(1600):
        kept.append([0])  # as many are freed as made: Python itself sees no reason to collect
        kept[0] = kept.pop()
        collector.between_steps()
        assert len(gc.get_objects(0)) + len(gc.get_objects(1)) < 500
    assert collections.counts[1:] == [100, 0]


def test_circles_are_freed_during_work(collector: GarbageCollector) -> None:
    for _ in range(64):
        Knot()
        collector.between_steps()
        assert Knot.alive <= 16
    assert Knot.alive == 0


def test_circles_that_lived_through_work_are_freed_when_idle(
    collector: GarbageCollector, collections: Collections
) -> None:
    knots = [Knot() for _ in range(10)]
    steps(collector, 16)
    knots.clear()
    steps(collector, 16)  # these collections do not look at them any more
    assert Knot.alive == 10
    collections.now = 61.0
    collector.when_idle()
    assert Knot.alive == 0
    assert collections.counts[2] == 1


def test_an_idle_server_does_not_collect_again_and_again(
    collector: GarbageCollector, collections: Collections
) -> None:
    steps(collector, 1)
    collections.now = 59.0
    assert collector.when_idle() == 0.0
    collections.now = 61.0
    collector.when_idle()
    assert collections.counts[2] == 1
    collections.now = 1000.0  # nothing has happened
    collector.when_idle()
    assert collections.counts[2] == 1


def test_a_full_collection_does_not_look_at_what_an_earlier_one_has_seen(
    collector: GarbageCollector, collections: Collections
) -> None:
    kept = grow(10_000)
    steps(collector, 1)
    collections.now = 61.0
    collector.when_idle()
    assert len(gc.get_objects()) < 1000 < len(kept)


def test_a_circle_that_was_frozen_is_freed_within_hours(
    collector: GarbageCollector, collections: Collections
) -> None:
    knots = [Knot()]
    for _ in range(62):
        steps(collector, 1)
        collections.now += 61.0
        collector.when_idle()
        knots.clear()
    assert Knot.alive == 0


def test_a_server_that_is_never_idle_collects_at_last(
    collector: GarbageCollector, collections: Collections
) -> None:
    knots = [Knot()]
    steps(collector, 16)
    knots.clear()
    collections.now = 590.0
    steps(collector, 16)
    assert Knot.alive == 1
    collections.now = 601.0
    steps(collector, 16)
    assert Knot.alive == 0
    assert collections.counts[2] == 1


def test_after_a_long_time_without_work_the_first_steps_collect_no_more_than_others(
    collector: GarbageCollector, collections: Collections
) -> None:
    for _ in range(3):
        collections.now += 7 * 3600.0
        steps(collector, 160)
        assert collections.counts[2] == 0
        collections.now += 599.0
        steps(collector, 160)
        assert collections.counts[2] == 0
        collections.now += 2.0  # these are ten minutes of work
        steps(collector, 16)
        assert collections.counts[2] == 1
        collections.counts = [0, 0, 0]


def test_a_server_that_is_never_idle_frees_frozen_circles_within_six_hours(
    collector: GarbageCollector, collections: Collections
) -> None:
    kept = grow(2000)
    knots: list[Knot] = []
    longest = 0
    for _ in range(72):  # ten minutes each
        knots.append(Knot())
        collections.now += 601.0
        steps(collector, 32)  # in the first or second half a full collection, which freezes it
        knots.clear()
        longest = max(longest, Knot.alive)
    assert 30 <= longest <= 40, "those of six hours, and no more"
    assert collections.counts[2] <= 72
    assert gc.get_freeze_count() > len(kept)
    collections.now += 6 * 3600.0
    steps(collector, 32)
    collections.now += 601.0
    steps(collector, 32)
    assert Knot.alive <= 1
