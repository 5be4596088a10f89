"""The audit names what is wrong, and is silent when all is well."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from radix_engine.cache.flat import FlatCache
from tests.cache.flat.use import announce, hold, ids, store, take


class Scene:
    """An index with blocks of every kind, allocated one at a time so that their ids are plain."""

    PINNED, IN_FLIGHT, CACHED, PRIVATE, FREE = range(5)

    def __init__(self) -> None:
        self.cache = FlatCache(5)
        self.stored = self.cache.stored
        self.pinning = hold(self.cache, ids(16))
        self.announcing = announce(self.cache, ids(16, 1))
        store(self.cache, ids(16, 2))
        self.private = take(self.cache, 1)

    def problems(self) -> list[str]:
        return self.cache.audit([self.private], [self.pinning, self.announcing])


def test_all_is_well() -> None:
    scene = Scene()
    assert scene.problems() == []
    assert scene.cache.audit([scene.private]) == []
    assert scene.stored.pins == [1, 1, 0, 0, 0]
    assert list(scene.stored.queue) == [Scene.CACHED]


def free_a_private_block(scene: Scene) -> None:
    scene.cache.free(scene.private)


def pin_once_too_often(scene: Scene) -> None:
    scene.stored.pins[Scene.PINNED] += 1


def queue_a_pinned_block(scene: Scene) -> None:
    scene.stored.queue.add(Scene.PINNED, 1e9)


def lose_a_key(scene: Scene) -> None:
    scene.stored.keys[Scene.CACHED] = None


def lose_an_entry(scene: Scene) -> None:
    del scene.stored.index[scene.stored.keys[Scene.CACHED] or b""]


def lose_a_cached_block(scene: Scene) -> None:
    scene.stored.queue.remove(Scene.CACHED)


def call_a_block_computed(scene: Scene) -> None:
    scene.cache.pool.commit(scene.announcing.blocks())


def call_a_lease_longer(scene: Scene) -> None:
    scene.pinning.num_tokens += 16


def call_a_found_block_withdrawn(scene: Scene) -> None:
    scene.stored.withdrawn.add(Scene.IN_FLIGHT)


def turn_time_back(scene: Scene) -> None:
    store(scene.cache, ids(16, 3))
    scene.stored.queue.add(Scene.CACHED, 1e9)


def keep_a_released_lease(scene: Scene) -> None:
    scene.cache.release(scene.pinning)


def publish_behind_its_back(scene: Scene) -> None:
    scene.cache.pool.publish(scene.private)


def unpin_a_free_block(scene: Scene) -> None:
    scene.stored.pins[Scene.FREE] -= 1


def lose_count(scene: Scene) -> None:
    scene.cache.pool._counts[0] += 1


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (free_a_private_block, "block 3 has 2 owners"),
        (pin_once_too_often, "block 0 is pinned 2 times, 1 leases hold it"),
        (queue_a_pinned_block, "block 0 has 2 owners"),
        (lose_a_key, "block 2 is in the free queue without a key"),
        (lose_an_entry, "block 2 has a key and is not found by it"),
        (lose_a_cached_block, "block 2 has 0 owners"),
        (lose_a_cached_block, "block 2 has a key, and neither a lease nor the free queue holds it"),
        (call_a_block_computed, "block 1 is announced or computed, and the pool's books say other"),
        (call_a_lease_longer, "a lease of 32 tokens holds 1 blocks"),
        (call_a_found_block_withdrawn, "block 1 was withdrawn, but is found or held by nobody"),
        (turn_time_back, "the free queue is not in the order of its times"),
        (keep_a_released_lease, "a released lease of 16 tokens is called live"),
        (publish_behind_its_back, "block 3 is held by a request, but the pool's books say other"),
        (unpin_a_free_block, "block 4 is pinned -1 times"),
        (lose_count, "[2, 1, 1, 2, 0] blocks by owner"),
    ],
)
def test_damage_is_named(damage: Callable[[Scene], None], line: str) -> None:
    scene = Scene()
    damage(scene)
    assert any(problem.startswith(line) for problem in scene.problems())


def test_a_quarantined_block_that_nobody_holds_is_no_problem() -> None:
    scene = Scene()
    scene.cache.pool.quarantine(Scene.FREE)
    assert scene.problems() == []


def test_the_audit_changes_nothing() -> None:
    scene = Scene()
    before = (scene.cache.version, list(scene.stored.queue), list(scene.stored.pins))
    scene.problems()
    assert (scene.cache.version, list(scene.stored.queue), list(scene.stored.pins)) == before
