"""Which stored block the rows of a match that ends inside a block are copied from."""

from __future__ import annotations

import random

import pytest

from radix_engine.cache import (
    DEFAULT,
    Cause,
    Lease,
    Namespace,
    PrefixCache,
    Reason,
    dump,
    pack,
    token_array,
)
from radix_engine.cache.child_order import FEW
from tests.cache.naive import common
from tests.cache.partial import asked, parting, rows
from tests.cache.requests import Clock, begin, why
from tests.cache.trees import assert_sound, hold, ids, lease_of, store, stored, take

# Children of one node that all begin with the same two tokens, so that the third decides.
FORKS = [3, FEW, FEW + 1, 100]


# Which child -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", FORKS)
@pytest.mark.parametrize("head", [[], ids(8, 1)])
def test_at_a_fork_the_child_that_shares_most_is_the_source(count: int, head: list[int]) -> None:
    cache = PrefixCache(count + 8, 4)
    sources = [store(cache, [*head, 7, 7, child, child])[-1] for child in range(count)]
    start = len(head)
    for child in range(count):
        assert rows(cache, [*head, 7, 7, child, 1000, 0]) == (start + 3, 3, sources[child])
    covered, copied, source = rows(cache, [*head, 7, 7, 1000, 0])
    assert (covered, copied) == (start + 2, 2)
    assert source in sources
    assert rows(cache, [*head, 1000, 7, 7, 0]) == (start, 0, -1)


@pytest.mark.parametrize("count", FORKS)
def test_children_that_come_and_go_are_followed(count: int) -> None:
    cache = PrefixCache(count + 8, 4, ghost_blocks=0)
    head = ids(4, 1)
    for child in range(count):
        store(cache, [*head, 7, child, child, child])
    store(cache, [*head, 7, 1000, 1, 1])
    for _ in range(2):
        assert rows(cache, [*head, 7, 1000, 1, 0, 0])[:2] == (7, 3)
        for child in range(count):  # all but the odd one are used, which is then evicted
            cache.release(lease_of(cache, [*head, 7, child, child, child, 0]))
        cache.evict(1)
        assert rows(cache, [*head, 7, 1000, 1, 0, 0])[:2] == (5, 1)
        store(cache, [*head, 7, 1000, 1, 1])
        assert_sound(cache)


Held = dict[tuple[int, ...], tuple[int, bool]]


def held_blocks(cache: PrefixCache) -> Held:
    """Every prefix of whole blocks in the tree, with its last block and whether it is computed."""
    held: Held = {}
    paths: dict[int, tuple[int, ...]] = {}
    size = cache.block_size
    for node in dump(cache, 0.0, head_tokens=1000):
        before = () if node.parent is None else paths[node.parent]
        paths[node.index] = before + node.head
        for index, block in enumerate(node.blocks):
            computed = index < len(node.blocks) - node.in_flight
            held[paths[node.index][: len(before) + (index + 1) * size]] = block, computed
    return held


def check(cache: PrefixCache, prompt: list[int], held: Held) -> None:
    """The match is what looking at every block in the tree gives."""
    size, most = cache.block_size, len(prompt) - 1
    whole = 0
    while whole + size <= most and tuple(prompt[: whole + size]) in held:
        whole += size
    sources: dict[int, set[int]] = {}
    for prefix, (block, computed) in held.items():
        if computed and len(prefix) == whole + size and prefix[:whole] == tuple(prompt[:whole]):
            sources.setdefault(common(prefix[whole:], prompt[whole:most]), set()).add(block)
    best = max(sources, default=0)
    covered, copied, source = rows(cache, prompt)
    assert (covered, copied) == (whole + best, best)
    assert source in sources[best] if best else source == -1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("steps", [10, 120])
@pytest.mark.parametrize("head", [[], ids(4, 1)])
def test_no_block_in_the_tree_shares_more_than_the_one_that_was_found(
    seed: int, steps: int, head: list[int]
) -> None:
    draw = random.Random(seed)
    cache = PrefixCache(200, 4, ghost_blocks=draw.choice([0, 30]))
    lease = hold(cache, [*head, 0, 0, 0, 0])
    flying: list[Lease] = []
    seen_forks = set()

    def block() -> list[int]:
        return [draw.choice([1, 2, 256, 2**24]) for _ in range(4)]

    for _ in range(steps):
        prompt = [*head, *block()]
        choice = draw.random()
        if choice < 0.1:
            cache.evict(draw.randrange(4))
        elif choice < 0.3 and flying:
            finish = draw.choice([cache.commit, cache.withdraw])
            finish(flying[0])
            cache.release(flying.pop(0))
        elif asked(cache, [*prompt, 0]).num_tokens < len(prompt):
            sibling = lease_of(cache, [*prompt, 0])
            assert cache.announce(sibling, pack(prompt[sibling.num_tokens :]), take(cache, 1))
            flying.append(sibling)
            if choice < 0.8:
                cache.commit(sibling)
                cache.release(flying.pop())
        assert_sound(cache, [lease, *flying])
        held = held_blocks(cache)
        seen_forks.add(sum(len(prefix) == len(head) + 4 for prefix in held) > FEW)
        for _ in range(5):
            check(cache, [*head, *block(), *block()][: draw.randrange(1, 13)], held)
    assert seen_forks == ({False, True} if steps > 10 else {False})


# What is no source -------------------------------------------------------------------------------


def test_a_ghost_is_no_source() -> None:
    cache = PrefixCache(16, 4)
    store(cache, ids(12, 1))
    cache.evict(1)
    asks = parting(ids(13, 1), 10, 13)
    assert rows(cache, asks) == (8, 0, -1)
    assert why(cache, ids(13, 1))[:3] == (Reason.EVICTED, 8, Cause.CAPACITY)
    cache.evict(2)
    assert rows(cache, ids(3, 1)) == (0, 0, -1)
    store(cache, ids(12, 1))
    assert rows(cache, asks)[:2] == (10, 2)


@pytest.mark.parametrize("count", FORKS)
def test_among_many_children_a_ghost_is_passed_over(count: int) -> None:
    cache = PrefixCache(count + 8, 4)
    head = ids(4, 1)
    store(cache, [*head, 7, 8, 9, 9])
    for child in range(count - 1):
        store(cache, [*head, 7, child + 100, 0, 0])
    assert rows(cache, [*head, 7, 8, 9, 0, 0])[:2] == (7, 3)
    cache.evict(1)
    assert rows(cache, [*head, 7, 8, 9, 0, 0])[:2] == (5, 1)
    assert_sound(cache)


@pytest.mark.parametrize("count", FORKS)
def test_blocks_in_flight_are_no_sources_until_they_are_computed(count: int) -> None:
    cache = PrefixCache(count + 8, 4)
    head = ids(4, 1)
    for child in range(count - 1):
        store(cache, [*head, 7, child + 100, 0, 0])
    wanted = [*head, 7, 8, 9, 0, 0]
    for computed in (False, True):
        owner = lease_of(cache, [*head, 7, 8, 9, 9, 0])
        assert cache.announce(owner, pack([7, 8, 9, 9]), take(cache, 1))
        assert rows(cache, wanted)[:2] == (5, 1)
        assert rows(cache, [*head, 7, 8, 9, 9, 0])[:2] == (8, 0), "whole, it can be attached to"
        if computed:
            cache.commit(owner)
            assert rows(cache, wanted) == (7, 3, owner.blocks()[-1])
        else:
            cache.withdraw(owner)
            assert rows(cache, wanted)[:2] == (5, 1)
        assert_sound(cache, [owner])
        cache.release(owner)


def test_a_run_in_flight_is_no_source_behind_its_computed_part() -> None:
    cache = PrefixCache(16, 4)
    owner = hold(cache, ids(8, 1))
    assert cache.announce(owner, pack(ids(16, 1)[8:]), take(cache, 2))
    assert rows(cache, parting(ids(16, 1), 6, 12)) == (6, 2, owner.blocks()[1])
    assert rows(cache, parting(ids(16, 1), 10, 16)) == (8, 0, -1)
    assert rows(cache, parting(ids(16, 1), 14, 16)) == (12, 0, -1)
    cache.commit(owner)
    assert rows(cache, parting(ids(16, 1), 10, 16)) == (10, 2, owner.blocks()[2])
    assert rows(cache, parting(ids(16, 1), 14, 16)) == (14, 2, owner.blocks()[3])
    assert_sound(cache, [owner])


def test_what_was_flushed_is_no_source_even_while_a_request_holds_it() -> None:
    cache = PrefixCache(16, 4)
    lease = hold(cache, ids(8, 1))
    cache.flush()
    assert rows(cache, parting(ids(8, 1), 6, 8)) == (0, 0, -1)
    assert_sound(cache, [lease])


def test_what_expired_is_no_source() -> None:
    clock = Clock()
    cache = PrefixCache(16, 4, clock=clock, ttl=10.0)
    store(cache, ids(8, 1))
    assert rows(cache, parting(ids(8, 1), 6, 8))[:2] == (6, 2)
    clock.now = 11.0
    cache.expire()
    assert rows(cache, parting(ids(8, 1), 6, 8)) == (0, 0, -1)


NAMESPACES = [
    DEFAULT,
    Namespace(tenant="one"),
    Namespace(tenant="one", salt="s"),
    Namespace(tenant="other"),
    Namespace(adapter="a"),
    Namespace(weights=1),
]


@pytest.mark.parametrize("public", [0, 8])
@pytest.mark.parametrize("stored_by", NAMESPACES)
def test_rows_come_out_of_the_requests_own_namespace_alone(
    stored_by: Namespace, public: int
) -> None:
    cache = PrefixCache(64, 4)
    cache.mark_public(pack(ids(public, 1)))
    cache.release(begin(cache, ids(16, 1), stored_by))
    wanted = parting(ids(16, 1), 10, 16)
    for namespace in NAMESPACES:
        match = asked(cache, wanted, namespace)
        if namespace == stored_by:
            assert (match.num_tokens, match.copy_rows) == (10, 2)
        else:
            shares = namespace.shared == stored_by.shared
            assert (match.num_tokens, match.copy_rows, match.copy_source) == (
                public if shares else 0,
                0,
                -1,
            )
    assert_sound(cache)


@pytest.mark.parametrize("count", FORKS)
def test_other_namespaces_below_a_public_path_are_no_children_to_copy_from(count: int) -> None:
    cache = PrefixCache(2 * count + 16, 4)
    cache.mark_public(pack(ids(8, 1)))
    cache.release(begin(cache, [*ids(8, 1), 7, 7, 5, 5]))  # the shared namespace goes on as well
    for number in range(count):
        cache.release(begin(cache, [*ids(8, 1), 7, 7, 7, 7], Namespace(tenant=f"t{number}")))
    mine = Namespace(tenant="mine")
    wanted = [*ids(8, 1), 7, 7, 7, 0, 0]
    assert asked(cache, wanted, mine).num_tokens == 8
    assert asked(cache, wanted).num_tokens == 10
    cache.release(begin(cache, [*ids(8, 1), 7, 6, 6, 6], mine))
    assert asked(cache, wanted, mine).num_tokens == 9
    assert_sound(cache)


def test_a_match_that_names_a_source_is_stale_once_that_could_be_gone() -> None:
    cache = PrefixCache(4, 4)
    store(cache, ids(16, 1))
    match = asked(cache, parting(ids(16, 1), 14, 16))
    assert match.copy_rows == 2
    cache.free(take(cache, 1))
    assert match.version != cache.version
    assert stored(cache, ids(16, 1)) == 12
    assert cache.allocate(5) is None
    assert list(token_array([match.copy_source])) == cache.pool.free_list().tolist()
