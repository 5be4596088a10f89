"""Looks into an engine: in slices between its steps, one look at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from radix_engine.cache import PrefixCache
from scheduler import Limits, Scheduler
from server.debug import inspector
from server.debug.inspector import Inspector
from server.debug.lives import Lives
from server.debug.tree_query import TreeQuery
from server.errors import RequestRefused
from server.readings import Readings
from tests.cache.trees import ids, make_cache, store

T = TypeVar("T")


class Between:
    """Runs work at once; ``who``: the thread of each. ``then`` is called after each."""

    def __init__(self) -> None:
        self.who: list[str] = []
        self.then: Callable[[], object] = lambda: None
        self._turn = threading.Lock()

    def __call__(self, work: Callable[[], T], /) -> T:
        with self._turn:
            self.who.append(threading.current_thread().name)
            try:
                return work()
            finally:
                self.then()


@pytest.fixture(autouse=True)
def _slices_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspector, "_SLICE_S", 0.0)
    monkeypatch.setattr(inspector, "_WAITED_FOR_SLICE_S", 0.0)
    monkeypatch.setattr(inspector, "_STEP_SHARE", 0.0)


def looking_into(cache: PrefixCache | None, between: Between) -> Inspector:
    scheduler = Scheduler(cache or PrefixCache(1), Limits())
    readings = Readings({}, {"running": 0})
    return Inspector(
        cache, scheduler, Lives(), between, lambda each: str(len(each)), lambda: readings
    )


def filled() -> PrefixCache:
    cache = make_cache(256, 4)
    for seed in range(20):
        store(cache, ids(8, seed))
    return cache


def test_a_look_takes_a_slice_of_each_of_many_steps_and_then_tells_all() -> None:
    between = Between()
    look = looking_into(filled(), between).look(TreeQuery())
    assert len(between.who) > 20
    assert sorted(node["tokens"] for node in look.nodes) == [0, 0, *[8] * 20]
    assert look.active == []


def test_what_is_stored_between_slices_harms_no_look() -> None:
    between, cache = Between(), filled()
    seeds = iter(range(100, 10_000))
    between.then = lambda: store(cache, ids(8, next(seeds) % 500))
    told = looking_into(cache, between).tree(TreeQuery(limit=10))
    assert 3 <= len(told) <= 10
    assert {node["parent"] for node in told[1:]} <= {node["id"] for node in told}
    assert cache.audit((), ()) == []


def test_looks_take_turns_so_that_a_step_has_one_slice_at_most() -> None:
    between = Between()
    inspector = looking_into(filled(), between)
    told: list[list[dict[str, Any]]] = []
    threads = [
        threading.Thread(target=lambda: told.append(inspector.tree(TreeQuery())), name=name)
        for name in ("one", "two", "three")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    changes = sum(one != other for one, other in zip(between.who, between.who[1:], strict=False))
    assert changes == 2
    assert [len(each) for each in told] == [22] * 3


def test_a_part_is_told_by_its_id_and_an_id_that_nobody_was_told_is_refused() -> None:
    inspector = looking_into(filled(), Between())
    leaf = inspector.tree(TreeQuery())[-1]
    assert inspector.tree(TreeQuery(root=leaf["id"]))[-1] == leaf
    for name in ("", "zz", "00" * 6):
        with pytest.raises(RequestRefused) as refused:
            inspector.tree(TreeQuery(root=name))
        assert (refused.value.status, refused.value.param) == (404, "root")


def test_without_a_tree_all_else_is_told() -> None:
    inspector = looking_into(None, Between())
    look = inspector.look(TreeQuery())
    assert (look.nodes, look.active) == ([], [])
    with pytest.raises(RequestRefused, match="no tree to look at"):
        inspector.tree(TreeQuery())
