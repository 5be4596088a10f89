from __future__ import annotations

from collections.abc import Callable

from radix_engine.cache import Lease, pack
from radix_engine.cache.eviction import LruLeaves
from radix_engine.cache.node import Node
from tests.cache.requests import Clock, begin
from tests.cache.trees import hold, ids, make_cache, take

SIZE = 4


class Told(LruLeaves):
    """LRU that keeps what it was told, but for the coming and going of leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, int, float]] = []

    def attach(self, lru_hit_tokens: Callable[[], int], num_blocks: int) -> None:
        self.told.append(("attached", num_blocks, lru_hit_tokens()))

    def begun(self, lease: Lease, seen: Node, reach: int, now: float) -> None:
        self.told.append((f"begun with {lease.priority}, seen {seen.end}", reach, now))

    def forked(self, lease: Lease, origin: Lease, now: float) -> None:
        self.told.append((f"forked off {origin.num_tokens}", lease.num_tokens, now))

    def stored(self, lease: Lease, now: float) -> None:
        self.told.append(("stored", lease.node.end, now))

    def called_tool(self, lease: Lease, now: float) -> None:
        self.told.append(("called a tool", lease.node.end, now))

    def ended(self, lease: Lease, now: float) -> None:
        self.told.append(("ended", lease.node.end, now))

    def removed(self, leaf: Node, now: float) -> None:
        self.told.append(("removed", leaf.end, now))


def test_a_rule_of_ones_own_is_told_of_calls_and_removals_with_their_times() -> None:
    clock, rule = Clock(), Told()
    cache = make_cache(16, SIZE, clock=clock, eviction=rule)
    lease = cache.lease(cache.match(pack(ids(16, 1))), 2)
    clock.now = 1.0
    cache.publish(lease, pack(ids(16, 1)), take(cache, 4))
    clock.now = 2.0
    branch = cache.share(lease)
    clock.now = 3.0
    cache.note_tool_call(lease)
    cache.release(lease)
    clock.now = 4.0
    cache.release(branch)
    clock.now = 5.0
    cache.evict(1)
    clock.now = 6.0
    cache.evict(3)
    assert rule.told == [
        ("attached", 16, 0),
        ("begun with 2, seen 0", 0, 0.0),
        ("stored", 16, 1.0),
        ("forked off 16", 16, 2.0),
        ("called a tool", 16, 3.0),
        ("ended", 16, 3.0),
        ("ended", 16, 4.0),
        ("removed", 16, 6.0),
    ]


def test_a_rule_is_told_how_far_a_prompt_is_known_and_where_that_ends() -> None:
    rule = Told()
    cache = make_cache(16, SIZE, eviction=rule)
    cache.release(begin(cache, ids(16, 1)))
    rule.told.clear()
    cache.release(cache.lease(cache.match(pack([*ids(16, 1)[:8], *ids(5, 2)]))))  # cuts the edge
    cache.evict(1)
    cache.release(cache.lease(cache.match(pack([*ids(16, 1), 0]))))  # the last block is a ghost
    assert [told[:2] for told in rule.told] == [
        ("begun with 0, seen 8", 8),
        ("ended", 8),
        ("begun with 0, seen 16", 16),
        ("ended", 12),
    ]


def test_a_call_that_leaves_nothing_is_told_to_have_ended() -> None:
    rule = Told()
    cache = make_cache(16, SIZE, eviction=rule)
    cache.release(cache.lease(cache.match(pack(ids(3, 1)))))
    assert [told[0] for told in rule.told] == ["attached", "begun with 0, seen 0", "ended"]


def test_a_call_in_a_flushed_tree_is_told_to_have_ended() -> None:
    rule = Told()
    cache = make_cache(16, SIZE, eviction=rule)
    lease = hold(cache, ids(8, 1))
    cache.flush()
    cache.release(lease)
    assert rule.told[-1][:2] == ("ended", 8)
