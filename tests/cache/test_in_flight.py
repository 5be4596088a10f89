"""Blocks that a step announces before it has computed them."""

from __future__ import annotations

import pytest

from radix_engine.cache import (
    ALL,
    DEFAULT,
    Namespace,
    OwnershipError,
    Reason,
    Removed,
    TreeMirror,
    pack,
    token_array,
)
from radix_engine.cache.block_pool import PRIVATE, TREE
from radix_engine.cache.node import Node
from tests.cache.requests import Clock, reach, why
from tests.cache.steps import SIZE, announce, announce_after, owners
from tests.cache.trees import (
    assert_sound,
    covered,
    edges,
    hold,
    ids,
    lease_nothing,
    lease_of,
    make_cache,
    publish,
    store,
    stored,
    take,
)

# What becomes of announced blocks ----------------------------------------------------------------


def test_announced_blocks_are_found_by_others_of_the_same_step() -> None:
    cache = make_cache(8, SIZE)
    lease = lease_of(cache, ids(9, 1))
    blocks = take(cache, 2)
    version = cache.version
    assert cache.announce(lease, pack(ids(8, 1)), blocks)
    assert cache.version > version
    assert lease.num_tokens == 8
    assert list(lease.blocks()) == list(blocks)
    other = lease_of(cache, ids(13, 1))
    assert other.num_tokens == 8
    assert list(other.blocks()) == list(blocks)
    assert (cache.pool.in_flight_blocks, cache.pool.tree_blocks) == (2, 0)
    assert cache.available_blocks == 6
    assert_sound(cache, [lease, other])


def test_committed_blocks_stay_stored() -> None:
    cache = make_cache(8, SIZE)
    owner = announce(cache, ids(8, 1))
    other = lease_of(cache, ids(13, 1))
    cache.commit(owner)
    assert owners(cache, other) == [TREE, TREE]
    assert_sound(cache, [owner, other])
    cache.release(owner)
    cache.release(other)
    assert stored(cache, ids(8, 1)) == 8
    assert cache.evict(8) == 2
    assert_sound(cache)


def test_a_commit_keeps_matches_good() -> None:
    cache = make_cache(8, SIZE)
    owner = announce(cache, ids(8, 1))
    match = cache.match(pack(ids(13, 1)))
    cache.commit(owner)
    lease = cache.lease(match)
    assert lease.num_tokens == 8
    assert_sound(cache, [owner, lease])


def test_a_lease_that_announced_nothing_commits_and_withdraws_nothing() -> None:
    cache = make_cache(8, SIZE)
    lease = hold(cache, ids(8, 1))
    version = cache.version
    cache.commit(lease)
    cache.withdraw(lease)
    assert (lease.num_tokens, cache.version) == (8, version)
    assert owners(cache, lease) == [TREE, TREE]
    assert_sound(cache, [lease])


def test_what_is_committed_is_not_withdrawn_later() -> None:
    cache = make_cache(8, SIZE)
    lease = announce(cache, ids(8, 1))
    cache.commit(lease)
    cache.commit(lease)
    cache.withdraw(lease)
    assert lease.num_tokens == 8
    assert cache.counters.withdrawn_blocks == 0
    assert announce_after(cache, lease, ids(16, 1))
    cache.withdraw(lease)
    assert lease.num_tokens == 8
    assert cache.counters.withdrawn_blocks == 2
    assert stored(cache, ids(16, 1)) == 8
    assert_sound(cache, [lease])


@pytest.mark.parametrize("steps", [(4, 8), (8, 16), (4, 12, 16)])
def test_a_prompt_announced_in_chunks_is_stored_as_one_run(steps: tuple[int, ...]) -> None:
    cache = make_cache(8, SIZE)
    lease = lease_of(cache, ids(17, 1))
    for end in steps:
        assert announce_after(cache, lease, ids(end, 1))
        assert_sound(cache, [lease])
        cache.commit(lease)
        assert_sound(cache, [lease])
    assert edges(cache) == [ids(steps[-1], 1)]


def test_two_announcements_of_one_lease_are_committed_and_withdrawn_together() -> None:
    cache = make_cache(8, SIZE)
    for finish, left in ((cache.withdraw, 0), (cache.commit, 16)):
        lease = announce(cache, ids(4, 1))
        assert announce_after(cache, lease, ids(16, 1))
        assert cache.pool.in_flight_blocks == 4
        assert_sound(cache, [lease])
        finish(lease)
        assert cache.pool.in_flight_blocks == 0
        assert (lease.num_tokens, stored(cache, ids(16, 1))) == (left, left)
        assert_sound(cache, [lease])
        cache.release(lease)


# What cannot be announced ------------------------------------------------------------------------


def test_what_is_stored_or_in_flight_already_is_not_announced() -> None:
    cache = make_cache(16, SIZE)
    holders = [hold(cache, ids(8, 1)), announce(cache, ids(8, 2))]
    for seed in (1, 2):
        late = lease_nothing(cache)
        blocks = take(cache, 3)
        before = cache.version, edges(cache), cache.pool.in_flight_blocks
        assert not cache.announce(late, pack(ids(12, seed)), blocks)
        assert (cache.version, edges(cache), cache.pool.in_flight_blocks) == before
        assert late.num_tokens == 0
        assert_sound(cache, [*holders, late], [blocks])
        cache.free(blocks)


def test_nothing_is_no_announcement() -> None:
    cache = make_cache(8, SIZE)
    lease = lease_of(cache, ids(9, 1))
    version = cache.version
    assert not cache.announce(lease, b"", token_array())
    assert cache.version == version
    assert_sound(cache, [lease])


def test_a_run_across_the_end_of_a_public_path_is_not_announced() -> None:
    cache = make_cache(8, SIZE)
    cache.mark_public(pack(ids(4, 1)))
    lease = cache.lease(cache.match(pack(ids(9, 1)), Namespace(tenant="one")))
    blocks = take(cache, 2)
    assert not cache.announce(lease, pack(ids(8, 1)), blocks)
    assert_sound(cache, [lease], [blocks])
    assert cache.announce(lease, pack(ids(4, 1)), blocks[:1])
    cache.commit(lease)
    assert cache.announce(lease, pack(ids(8, 1)[4:]), blocks[1:])
    assert_sound(cache, [lease])
    assert reach(cache, ids(8, 1), Namespace(tenant="other")) == 4


def test_blocks_that_are_not_the_requests_own_are_refused_before_anything_changes() -> None:
    cache = make_cache(8, SIZE)
    holder = hold(cache, ids(4, 1))
    lease = lease_of(cache, ids(9, 2))
    mine = take(cache, 1)
    for wrong in ([*mine, *holder.blocks()], [*holder.blocks(), *mine], [*mine, *mine]):
        with pytest.raises(OwnershipError):
            cache.announce(lease, pack(ids(8, 2)), token_array(wrong))
        assert lease.num_tokens == 0
        assert edges(cache) == [ids(4, 1)]
        assert_sound(cache, [holder, lease], [mine])
    with pytest.raises(ValueError, match="do not fill 1 blocks"):
        cache.announce(lease, pack(ids(8, 2)), mine)
    cache.release(lease)
    with pytest.raises(OwnershipError, match="released"):
        cache.announce(lease, pack(ids(4, 2)), mine)
    assert_sound(cache, [holder], [mine])


# The order within a step -------------------------------------------------------------------------


def test_who_attached_to_a_prefix_commits_after_its_owner() -> None:
    cache = make_cache(16, SIZE)
    owner = announce(cache, ids(8, 1))
    middle = announce(cache, ids(16, 1))
    last = announce(cache, ids(24, 1))
    assert (middle.num_tokens, last.num_tokens) == (16, 24)
    for early in (last, middle):
        with pytest.raises(OwnershipError, match="in flight: commit that first"):
            cache.commit(early)
        assert cache.pool.in_flight_blocks == 6
        assert_sound(cache, [owner, middle, last])
    for lease in (owner, middle, last):
        cache.commit(lease)
        assert_sound(cache, [owner, middle, last])
    assert cache.pool.tree_blocks == 6


def test_who_announced_publishes_only_after_the_commit() -> None:
    cache = make_cache(8, SIZE)
    lease = announce(cache, ids(8, 1))
    reader = lease_of(cache, ids(13, 1))
    blocks = take(cache, 1)
    for early in (lease, reader):
        with pytest.raises(OwnershipError, match="commit"):
            cache.publish(early, pack(ids(4, 2)), blocks)
        assert_sound(cache, [lease, reader], [blocks])
    cache.commit(lease)
    assert list(cache.publish(reader, pack(ids(4, 2)), blocks)) == list(blocks)
    assert_sound(cache, [lease, reader])


def test_nothing_in_flight_is_evicted_or_expires() -> None:
    clock = Clock()
    cache = make_cache(8, SIZE, clock=clock, ttl=10.0)
    store(cache, ids(8, 2))
    owner = announce(cache, ids(8, 1))
    clock.now = 100.0
    assert cache.expire() == 2
    assert cache.evict(8) == 0
    assert cache.allocate(7) is None
    assert stored(cache, ids(8, 1)) == 8
    assert_sound(cache, [owner])


# Publishing next to blocks in flight -------------------------------------------------------------


@pytest.mark.parametrize("computed", [0, 1, 2])
@pytest.mark.parametrize("split", [True, False])
def test_a_publish_that_runs_into_blocks_in_flight_stores_what_comes_before(
    computed: int, split: bool
) -> None:
    cache = make_cache(24, SIZE)
    prompt = ids(20, 1)
    owner = lease_of(cache, prompt)
    publish(cache, owner, prompt[: computed * 4])
    assert announce_after(cache, owner, prompt[:16])
    leases = [owner]
    if split:  # someone attached inside of what is in flight
        leases.append(lease_of(cache, ids(13, 1)))
    late = lease_nothing(cache)
    leases.append(late)
    blocks = take(cache, 5)
    table = cache.publish(late, pack(prompt), blocks)
    assert list(table) == list(owner.blocks()[:computed])
    assert late.num_tokens == computed * 4
    assert cache.counters.duplicate_blocks == computed
    rest = blocks[computed:]
    assert [cache.pool.owner_of(block) for block in rest] == [PRIVATE] * (5 - computed)
    assert_sound(cache, leases, [rest])

    cache.commit(owner)
    table = cache.publish(late, pack(prompt[computed * 4 :]), rest)
    assert list(table) == [*owner.blocks()[computed:], blocks[4]]
    assert late.num_tokens == 20
    assert list(late.blocks()[:4]) == list(owner.blocks())
    assert_sound(cache, leases)


def test_the_rest_is_stored_as_the_publishers_own_once_it_was_withdrawn() -> None:
    cache = make_cache(24, SIZE)
    owner = announce(cache, ids(16, 1))
    late = lease_nothing(cache)
    blocks = take(cache, 5)
    assert list(cache.publish(late, pack(ids(20, 1)), blocks)) == []
    cache.release(owner)
    assert list(cache.publish(late, pack(ids(20, 1)), blocks)) == list(blocks)
    assert cache.counters.duplicate_blocks == 0
    assert_sound(cache, [late])


def test_a_publish_that_parts_from_the_blocks_in_flight_is_stored_whole() -> None:
    cache = make_cache(24, SIZE)
    owner = hold(cache, ids(8, 1))
    assert announce_after(cache, owner, ids(16, 1))
    late = lease_nothing(cache)
    prompt = [*ids(8, 1), *ids(8, 2)]
    blocks = take(cache, 4)
    assert list(cache.publish(late, pack(prompt), blocks)) == [*owner.blocks()[:2], *blocks[2:]]
    assert_sound(cache, [owner, late])
    cache.release(owner)
    assert stored(cache, prompt) == 16
    assert stored(cache, ids(16, 1)) == 8
    assert_sound(cache, [late])


# What others are told ----------------------------------------------------------------------------


def test_a_prompt_whose_next_block_is_in_flight_is_told_so() -> None:
    cache = make_cache(24, SIZE)
    owner = announce(cache, ids(16, 1))
    asked = [*ids(6, 1), *ids(6, 2)]
    assert why(cache, asked) == (Reason.IN_FLIGHT, 4, None, 0, 0)
    cache.commit(owner)
    assert why(cache, asked) == (Reason.DIVERGED, 6, None, 0, 16)
    assert_sound(cache, [owner])


def test_events_tell_of_blocks_once_they_are_computed_and_of_withdrawn_ones_never() -> None:
    cache = make_cache(24, SIZE, events=True)
    stream = cache.subscribe(ALL)
    mirror = TreeMirror(SIZE)
    mirror.load(cache.snapshot(stream))
    owner = announce(cache, ids(8, 1))
    other = announce(cache, [*ids(8, 1), *ids(8, 2)])
    third = announce(cache, ids(8, 3))
    assert stream.next_sequence == 1
    cache.release(third)
    assert stream.next_sequence == 1
    cache.commit(owner)
    cache.release(other)
    for event in stream.since(1):
        assert not isinstance(event, Removed)
        mirror.apply(event)
    assert mirror.match(pack([*ids(8, 1), *ids(8, 2)]), DEFAULT) == 8
    assert mirror.match(pack(ids(8, 3)), DEFAULT) == 0
    assert covered(cache, ids(9, 1)) == 8
    assert_sound(cache, [owner])


def test_no_node_in_flight_has_a_hash_for_events() -> None:
    cache = make_cache(24, SIZE, events=True)
    owner = hold(cache, ids(8, 1))
    assert announce_after(cache, owner, ids(16, 1))
    node: Node = owner.node
    assert len(node.hashes) == 2 * 32
    cache.commit(owner)
    assert len(node.hashes) == 4 * 32
    assert_sound(cache, [owner])
