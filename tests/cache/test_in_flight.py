"""Blocks that a step announces before it has computed them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from radix_engine.cache import (
    ALL,
    DEFAULT,
    Cause,
    Lease,
    Namespace,
    OwnershipError,
    PrefixCache,
    Reason,
    Removed,
    TreeMirror,
    pack,
    token_array,
)
from radix_engine.cache.block_pool import FREE, IN_FLIGHT, PRIVATE, TREE
from radix_engine.cache.node import Node
from tests.cache.requests import Clock, reach, why
from tests.cache.trees import (
    assert_sound,
    covered,
    edges,
    hold,
    ids,
    lease_of,
    make_cache,
    publish,
    store,
    stored,
    take,
)

SIZE = 4


def announce_after(cache: PrefixCache, lease: Lease, tokens: list[int]) -> bool:
    """Announce the full blocks of ``tokens`` that follow the lease, in new private blocks."""
    run = tokens[lease.num_tokens : len(tokens) // SIZE * SIZE]
    blocks = take(cache, len(run) // SIZE)
    done = cache.announce(lease, pack(run), blocks)
    if not done:
        cache.free(blocks)
    return done


def announce(cache: PrefixCache, tokens: list[int]) -> Lease:
    """A request that enters the coming step with a whole number of blocks."""
    lease = lease_of(cache, [*tokens, 0])
    assert announce_after(cache, lease, tokens)
    return lease


def owners(cache: PrefixCache, lease: Lease) -> list[int]:
    return [cache.pool.owner_of(block) for block in lease.blocks()]


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
        late = cache.lease_nothing()
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


# Withdrawing: each place in the tree where an announcement can begin, each kind of sibling --------

HEAD = ids(8, 1)
RUN = ids(12, 3)
ALL_OF_IT = [*HEAD, *RUN]


def in_a_fresh_namespace(cache: PrefixCache) -> tuple[Lease, int]:
    lease = lease_of(cache, [*ALL_OF_IT, 0])
    return lease, 0


def at_the_end_of_a_node(cache: PrefixCache) -> tuple[Lease, int]:
    """The node has children, so that the announcement becomes another one."""
    store(cache, [*HEAD, *ids(4, 8)])
    store(cache, [*HEAD, *ids(4, 9)])
    return lease_of(cache, [*ALL_OF_IT, 0]), len(HEAD)


def inside_a_node(cache: PrefixCache) -> tuple[Lease, int]:
    store(cache, [*HEAD, *ids(8, 2)])
    return lease_of(cache, [*ALL_OF_IT, 0]), len(HEAD)


def grown_in_place(cache: PrefixCache) -> tuple[Lease, int]:
    return hold(cache, HEAD), len(HEAD)


def on_a_ghost(cache: PrefixCache) -> tuple[Lease, int]:
    store(cache, ALL_OF_IT)
    cache.evict(3)
    return lease_of(cache, [*ALL_OF_IT, 0]), len(HEAD)


STARTS = [in_a_fresh_namespace, at_the_end_of_a_node, inside_a_node, grown_in_place, on_a_ghost]

# What others of the same step hold of it: how many tokens they attach to, and announce themselves.
SIBLINGS: list[list[tuple[int, list[int]]]] = [
    [],
    [(20, [])],
    [(12, [])],
    [(20, ids(4, 7))],
    [(12, ids(4, 7)), (16, []), (20, ids(8, 8)), (20, [])],
]


def attach(cache: PrefixCache, tokens: int, more: list[int]) -> Lease:
    lease = lease_of(cache, [*ALL_OF_IT[:tokens], *more, 0])
    assert lease.num_tokens == tokens
    assert not more or announce_after(cache, lease, [*ALL_OF_IT[:tokens], *more])
    return lease


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("siblings", SIBLINGS)
@pytest.mark.parametrize("aborted", [True, False])
def test_a_withdrawn_run_is_found_by_nobody_and_its_blocks_come_back_with_the_last_that_holds_it(
    start: Callable[[PrefixCache], tuple[Lease, int]],
    siblings: list[tuple[int, list[int]]],
    aborted: bool,
) -> None:
    cache = make_cache(40, SIZE)
    owner, computed = start(cache)
    tree_blocks = cache.pool.tree_blocks
    kept = list(owner.blocks())
    assert announce_after(cache, owner, ALL_OF_IT)
    others = [attach(cache, *sibling) for sibling in siblings]
    untouched = [lease_of(cache, [*HEAD[:4], 0])] if computed else []
    assert_sound(cache, [owner, *untouched, *others])

    if aborted:
        cache.release(owner)
        leases = untouched
    else:
        cache.withdraw(owner)
        assert owner.num_tokens == computed
        assert list(owner.blocks()) == kept
        leases = [owner, *untouched]
    assert not any(cache.is_broken(lease) for lease in leases)
    assert all(cache.is_broken(lease) for lease in others)
    assert stored(cache, ALL_OF_IT) == computed
    assert cache.pool.tree_blocks == tree_blocks, "what was computed stays"
    assert_sound(cache, [*leases, *others])

    # Whoever comes next computes it anew, while broken siblings still hold the old blocks.
    again = announce(cache, ALL_OF_IT)
    cache.commit(again)
    assert_sound(cache, [*leases, *others, again])
    assert stored(cache, ALL_OF_IT) == 20

    while others:
        cache.release(others.pop(len(others) // 2))
        assert_sound(cache, [*leases, *others, again])
    assert cache.pool.in_flight_blocks == 0
    assert cache.detached == []
    assert stored(cache, ALL_OF_IT) == 20
    for lease in (again, *leases):
        cache.release(lease)
    cache.evict(40)
    assert cache.pool.free_blocks == 40
    assert_sound(cache)


def test_withdrawn_blocks_are_counted_and_free_at_once_where_nobody_else_holds_them() -> None:
    cache = make_cache(8, SIZE)
    owner = announce(cache, ids(12, 1))
    blocks = owner.blocks()
    sibling = lease_of(cache, ids(5, 1))
    cache.withdraw(owner)
    assert [cache.pool.owner_of(block) for block in blocks] == [IN_FLIGHT, FREE, FREE]
    assert cache.counters.withdrawn_blocks == 2
    assert cache.detached != []
    cache.release(sibling)
    assert [cache.pool.owner_of(block) for block in blocks] == [FREE, FREE, FREE]
    assert cache.counters.withdrawn_blocks == 3
    assert_sound(cache, [owner])


def test_a_withdrawal_makes_matches_stale_and_leaves_a_fresh_namespace_out_of_the_tree() -> None:
    cache = make_cache(8, SIZE)
    owner = announce(cache, ids(8, 1))
    match = cache.match(pack(ids(9, 1)))
    assert cache.root.children
    cache.withdraw(owner)
    assert cache.root.children == {}
    assert match.version != cache.version
    assert_sound(cache, [owner])


def test_a_withdrawn_run_below_a_public_path_leaves_the_path_alone() -> None:
    cache = make_cache(16, SIZE)
    cache.mark_public(pack(ids(8, 1)))
    store(cache, ids(8, 1))
    one, other = Namespace(tenant="one"), Namespace(tenant="other")
    for attached in (0, 1):
        owner = cache.lease(cache.match(pack(ids(17, 1)), one))
        assert owner.num_tokens == 8
        assert announce_after(cache, owner, ids(16, 1))
        siblings = [cache.lease(cache.match(pack(ids(17, 1)), one)) for _ in range(attached)]
        stranger = cache.lease(cache.match(pack(ids(17, 1)), other))
        assert [lease.num_tokens for lease in siblings] == [16] * attached
        assert stranger.num_tokens == 8
        assert_sound(cache, [owner, stranger, *siblings])
        cache.withdraw(owner)
        assert owner.num_tokens == 8
        assert not cache.is_broken(stranger)
        assert [reach(cache, ids(16, 1), who) for who in (one, other)] == [8, 8]
        assert_sound(cache, [owner, stranger, *siblings])
        for lease in (stranger, owner, *siblings):
            cache.release(lease)
    assert cache.pool.tree_blocks == 2
    assert_sound(cache)


def test_a_broken_lease_stores_and_announces_nothing_and_gives_its_own_back() -> None:
    cache = make_cache(16, SIZE)
    owner = announce(cache, ids(8, 1))
    other = announce(cache, ids(16, 1))
    cache.withdraw(owner)
    blocks = take(cache, 1)
    with pytest.raises(OwnershipError, match="in flight"):
        cache.commit(other)
    with pytest.raises(OwnershipError, match="withdrawn"):
        cache.announce(other, pack(ids(4, 2)), blocks)
    with pytest.raises(OwnershipError, match="withdrawn"):
        cache.publish(other, pack(ids(4, 2)), blocks)
    assert_sound(cache, [owner, other], [blocks])
    cache.withdraw(other)
    assert other.num_tokens == 8
    assert cache.is_broken(other)
    with pytest.raises(OwnershipError, match="withdrawn"):
        cache.publish(other, pack(ids(4, 2)), blocks)
    assert_sound(cache, [owner, other], [blocks])
    cache.release(other)
    cache.free(blocks)
    assert cache.pool.free_blocks == 16
    assert_sound(cache, [owner])


def test_one_that_attached_withdraws_its_own_part_alone() -> None:
    cache = make_cache(16, SIZE)
    owner = announce(cache, ids(8, 1))
    other = announce(cache, ids(16, 1))
    cache.release(other)
    assert stored(cache, ids(16, 1)) == 8
    assert_sound(cache, [owner])
    cache.commit(owner)
    cache.release(owner)
    assert stored(cache, ids(16, 1)) == 8
    assert_sound(cache)


def test_a_chain_of_siblings_is_broken_from_the_one_that_withdrew_on() -> None:
    cache = make_cache(32, SIZE)
    chain = [announce(cache, ids(8 * turn, 1)) for turn in range(1, 5)]
    cache.release(chain[1])
    assert [cache.is_broken(lease) for lease in (chain[0], *chain[2:])] == [False, True, True]
    cache.commit(chain[0])
    assert stored(cache, ids(32, 1)) == 8
    left = [chain[0], *chain[2:]]
    for index in (1, 1, 0):
        cache.release(left.pop(index))
        assert_sound(cache, left)
    assert (cache.pool.tree_blocks, cache.pool.free_blocks) == (2, 30)


def test_blocks_computed_in_earlier_chunks_survive_an_abort_and_the_rest_comes_back() -> None:
    cache = make_cache(8, SIZE)
    prompt = ids(24, 1)
    for chunks in (1, 2):
        lease = lease_of(cache, prompt)
        at_first = lease.num_tokens
        for chunk in range(1, chunks + 1):
            assert announce_after(cache, lease, prompt[: at_first + 8 * chunk])
            if chunk < chunks:
                cache.commit(lease)
        private = take(cache, 1)
        assert_sound(cache, [lease], [private])
        cache.free(private)
        cache.release(lease)
        assert stored(cache, prompt) == at_first + 8 * (chunks - 1)
        assert_sound(cache)
    for seed in range(20):  # others come and go through all blocks
        blocks = take(cache, 8)
        assert sorted(blocks) == list(range(8)), "each block is handed out once"
        cache.free(blocks)
        store(cache, ids(12, 100 + seed))
        assert_sound(cache)
    assert list(hold(cache, prompt).blocks()) != []


# Flushed trees -----------------------------------------------------------------------------------


@pytest.mark.parametrize("computed", [True, False])
@pytest.mark.parametrize("attached", [0, 2])
@pytest.mark.parametrize("start", STARTS)
def test_a_step_ends_in_the_old_tree_when_it_is_flushed_in_between(
    start: Callable[[PrefixCache], tuple[Lease, int]], attached: int, computed: bool
) -> None:
    cache = make_cache(40, SIZE)
    owner, before = start(cache)
    assert announce_after(cache, owner, ALL_OF_IT)
    others = [lease_of(cache, [*ALL_OF_IT, 0]) for _ in range(attached)]
    cache.flush()
    assert stored(cache, ALL_OF_IT) == 0
    assert_sound(cache, [owner, *others])
    if computed:
        cache.commit(owner)
    else:
        cache.withdraw(owner)
    assert owner.num_tokens == (20 if computed else before)
    assert [cache.is_broken(lease) for lease in others] == [not computed] * attached
    assert stored(cache, ALL_OF_IT) == 0
    assert_sound(cache, [owner, *others])
    new = hold(cache, ALL_OF_IT)
    while others:
        cache.release(others.pop())
        assert_sound(cache, [owner, *others, new])
    cache.release(owner)
    assert cache.detached == []
    assert cache.pool.tree_blocks == 5
    assert_sound(cache, [new])


def test_a_lease_from_before_a_flush_announces_nothing() -> None:
    cache = make_cache(8, SIZE)
    leases = [hold(cache, ids(4, 1)), lease_of(cache, ids(9, 2))]
    cache.flush()
    blocks = take(cache, 1)
    for lease in leases:
        assert not cache.announce(lease, pack(ids(4, 3)), blocks)
        assert_sound(cache, leases, [blocks])


def test_what_is_in_flight_at_a_flush_is_no_ghost_and_what_was_computed_is() -> None:
    cache = make_cache(16, SIZE)
    owner = hold(cache, ids(8, 1))
    assert announce_after(cache, owner, ids(16, 1))
    cache.flush()
    assert cache.ghost_tokens == 8
    end = why(cache, ids(17, 1))
    assert (end.reason, end.cause, end.position, end.lost_tokens) == (
        Reason.EVICTED,
        Cause.FLUSH,
        0,
        8,
    )
    assert_sound(cache, [owner])


# Ghosts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored_blocks", [0, 1, 2, 3])
def test_a_ghost_that_was_announced_and_withdrawn_is_a_ghost_again(stored_blocks: int) -> None:
    clock = Clock()
    cache = make_cache(8, SIZE, clock=clock, ttl=10.0)
    store(cache, ids(16, 1))
    if stored_blocks:
        cache.evict(4 - stored_blocks)
        cause = Cause.CAPACITY
    else:
        clock.now = 20.0
        cache.expire()
        cause = Cause.TTL
    before = why(cache, ids(17, 1))
    assert before == (Reason.EVICTED, stored_blocks * 4, cause, 16 - stored_blocks * 4, 0)
    assert cache.ghost_tokens == before.lost_tokens
    owner = announce(cache, ids(16, 1))
    assert cache.ghost_tokens == 0
    assert_sound(cache, [owner])
    cache.withdraw(owner)
    assert why(cache, ids(17, 1)) == before
    assert cache.ghost_tokens == before.lost_tokens
    assert_sound(cache, [owner])
    cache.release(owner)
    assert_sound(cache)
    lease = announce(cache, ids(16, 1))
    cache.commit(lease)
    assert why(cache, ids(17, 1)).reason is Reason.FULL
    assert_sound(cache, [lease])


def test_of_a_ghost_that_the_run_leaves_only_the_common_part_is_stored_again() -> None:
    cache = make_cache(16, SIZE)
    store(cache, ids(16, 1))
    cache.evict(4)
    other = [*ids(8, 1), *ids(8, 2)]
    owner = announce(cache, other)
    assert cache.ghost_tokens == 8
    assert_sound(cache, [owner])
    cache.withdraw(owner)
    assert cache.ghost_tokens == 16
    assert why(cache, [*ids(16, 1), 0]).lost_tokens == 16
    assert why(cache, [*other, 0]).lost_tokens == 8, "the rest was never computed"
    assert_sound(cache, [owner])


def test_ghosts_below_a_withdrawn_run_that_others_hold_are_gone_and_counted_so() -> None:
    cache = make_cache(16, SIZE)
    store(cache, ids(24, 1))
    cache.evict(6)
    owner = announce(cache, ids(16, 1))
    sibling = lease_of(cache, ids(9, 1))
    assert cache.ghost_tokens == 8
    cache.withdraw(owner)
    assert cache.ghost_tokens == 0
    assert_sound(cache, [owner, sibling])
    cache.release(sibling)
    assert_sound(cache, [owner])


@pytest.mark.parametrize("ghost_blocks", [0, 1, 2, 3])
def test_a_withdrawn_ghost_stays_within_the_budget(ghost_blocks: int) -> None:
    cache = make_cache(8, SIZE, ghost_blocks=ghost_blocks)
    store(cache, ids(16, 1))
    cache.evict(3)
    kept = cache.ghost_tokens
    assert kept <= ghost_blocks * 4
    owner = announce(cache, ids(16, 1))
    assert_sound(cache, [owner])
    cache.withdraw(owner)
    assert cache.ghost_tokens == kept
    assert stored(cache, ids(16, 1)) == 4
    assert_sound(cache, [owner])


def forget_all_ghosts(cache: PrefixCache) -> None:
    """Let others' ghosts push the present ones out."""
    for seed in range(50, 58):
        store(cache, ids(8, seed))
        cache.evict(2)


def test_what_was_never_computed_is_no_ghost_where_a_ghost_was_before() -> None:
    cache = make_cache(8, SIZE, ghost_blocks=4)
    store(cache, ids(16, 1))
    cache.evict(2)
    lease = lease_of(cache, ids(9, 1))
    forget_all_ghosts(cache)
    prompt = [*ids(8, 1), *ids(8, 2)]
    assert announce_after(cache, lease, prompt)
    cache.withdraw(lease)
    assert why(cache, [*prompt, 0]).reason is Reason.COLD
    assert_sound(cache, [lease])


def test_what_was_announced_after_a_ghost_is_not_remembered_with_it() -> None:
    cache = make_cache(8, SIZE)
    store(cache, ids(8, 1))
    cache.evict(1)
    owner = announce(cache, ids(8, 1))
    assert announce_after(cache, owner, ids(16, 1))
    assert_sound(cache, [owner])
    cache.withdraw(owner)
    assert why(cache, ids(17, 1)).lost_tokens == 4
    assert cache.ghost_tokens == 4
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
    late = cache.lease_nothing()
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
    late = cache.lease_nothing()
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
    late = cache.lease_nothing()
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
