from __future__ import annotations

from random import Random

import pytest

from radix_engine.cache import Cause, Lease, MatchEnd, Namespace, PrefixCache, Reason, pack
from radix_engine.cache.ghosts import _unlink
from tests.cache.requests import Clock, begin, reach, serve, why
from tests.cache.trees import assert_sound, edges, hold, ids, make_cache, store, take

SIZE = 4


def test_by_default_three_times_the_pool_is_remembered() -> None:
    cache = make_cache(8, SIZE)
    for n in range(30):
        serve(cache, [1000 + n, *ids(3 + 4 * (n % 4), 1)])
        assert cache.ghost_tokens <= 3 * 8 * SIZE
    cache.evict(8)
    assert cache.ghost_tokens == 3 * 8 * SIZE
    assert_sound(cache)


@pytest.mark.parametrize("budget", [0, 1, 2, 3, 5, 8])
def test_of_one_long_run_the_head_is_remembered(budget: int) -> None:
    cache = make_cache(8, SIZE, ghost_blocks=budget)
    store(cache, ids(32, 1))
    for evicted in range(1, 9):
        cache.evict(1)
        assert cache.ghost_tokens == min(evicted, budget) * SIZE
        assert_sound(cache)
    expected = MatchEnd(Reason.EVICTED, 0, Cause.CAPACITY, budget * SIZE)
    assert why(cache, ids(33, 1)) == (expected if budget else MatchEnd(Reason.COLD, 0))


def test_what_was_evicted_first_is_forgotten_first() -> None:
    cache = make_cache(8, SIZE, ghost_blocks=4)
    for seed in (1, 2, 3):
        store(cache, ids(8, seed))
    for known in ([True, False, False], [True, True, False], [False, True, True]):
        cache.evict(2)
        reasons = [why(cache, ids(9, seed)).reason for seed in (1, 2, 3)]
        assert [reason is Reason.EVICTED for reason in reasons] == known
        assert_sound(cache)


def test_after_a_steps_housekeeping_the_next_evictions_forget_nothing() -> None:
    cache = make_cache(48, SIZE, ghost_blocks=32)
    for seed in range(1, 42):
        store(cache, ids(SIZE, seed))
    cache.evict(32)
    assert cache.ghost_tokens == 32 * SIZE
    cache.expire()
    assert cache.ghost_tokens == 30 * SIZE
    assert [why(cache, ids(5, seed)).reason for seed in (2, 3)] == [Reason.COLD, Reason.EVICTED]
    cache.expire()
    cache.evict(2)
    assert cache.ghost_tokens == 32 * SIZE
    assert why(cache, ids(5, 3)).reason is Reason.EVICTED
    cache.evict(1)
    assert why(cache, ids(5, 3)).reason is Reason.COLD
    assert_sound(cache)


def test_one_steps_housekeeping_is_a_bounded_piece_of_work() -> None:
    cache = make_cache(8192, SIZE, ghost_blocks=8192)
    for seed in range(8192):
        store(cache, [seed, 0, 0, 0])
    cache.evict(8192)
    dropped = []
    while (excess := cache.ghost_tokens // SIZE - 7680) > 0:  # a 16th of 8192 is kept free: 512
        cache.expire()
        dropped.append(excess - (cache.ghost_tokens // SIZE - 7680))
    assert 1 <= max(dropped) <= 256
    assert sum(dropped) == 512
    cache.expire()
    assert cache.ghost_tokens // SIZE == 7680
    assert_sound(cache)


def test_nothing_of_a_ghost_is_served_or_copied() -> None:
    cache = make_cache(16, SIZE, partial_blocks=True)
    store(cache, ids(24, 1))
    cache.evict(4)
    for length in range(9, 30):
        match = cache.match(pack([*ids(24, 1)[:length], *ids(3, 9)]))
        assert (match.num_tokens, match.copy_rows) == (8, 0)
    lease = cache.lease(cache.match(pack(ids(25, 1))))
    assert (lease.num_tokens, len(lease.blocks())) == (8, 2)
    assert_sound(cache, [lease])


def test_an_evicted_run_that_is_stored_again_is_served_as_before() -> None:
    cache = make_cache(16, SIZE)
    store(cache, ids(24, 1))
    for left in (0, 1, 3, 5):
        cache.evict(6 - left)
        assert cache.ghost_tokens == (6 - left) * SIZE
        lease = begin(cache, ids(24, 1))
        assert list(lease.blocks()) == list(dict.fromkeys(lease.blocks()))
        assert len(lease.blocks()) == 6
        assert cache.ghost_tokens == 0
        assert_sound(cache, [lease])
        cache.release(lease)
        assert reach(cache, ids(24, 1)) == 24
    assert cache.counters.duplicate_blocks == 0


def test_a_ghost_that_is_stored_again_in_pieces_comes_back_piece_by_piece() -> None:
    cache = make_cache(16, SIZE)
    store(cache, ids(24, 1))
    cache.evict(6)
    lease = cache.lease(cache.match(pack(ids(25, 1))))
    for count in range(1, 7):
        at = lease.num_tokens
        cache.publish(lease, pack(ids(24, 1)[at : at + SIZE]), take(cache, 1))
        assert cache.ghost_tokens == (6 - count) * SIZE
        assert reach(cache, ids(24, 1)) == count * SIZE
        assert_sound(cache, [lease])


@pytest.mark.parametrize("common", [0, 3, 4, 6, 8, 11])
@pytest.mark.parametrize("left", [0, 1])
def test_a_prompt_that_parts_inside_a_ghost_leaves_the_rest_of_it_known(
    common: int, left: int
) -> None:
    cache = make_cache(16, SIZE)
    store(cache, ids(16, 1))
    cache.evict(4 - left)
    other = [*ids(common, 1), *ids(16 - common, 2)]
    serve(cache, other)
    whole = max(common // SIZE, left) * SIZE
    assert reach(cache, other) == 16
    assert reach(cache, ids(16, 1)) == whole
    assert cache.pool.tree_blocks == 4 if common >= left * SIZE else 5
    assert why(cache, ids(17, 1)) == MatchEnd(Reason.EVICTED, whole, Cause.CAPACITY, 16 - whole)
    serve(cache, ids(16, 1))
    assert reach(cache, ids(16, 1)) == reach(cache, other) == 16
    assert cache.ghost_tokens == 0


def test_a_ghost_below_a_stored_run_is_told_whatever_hangs_beside_it() -> None:
    cache = make_cache(32, SIZE)
    head = ids(8, 1)
    for seed in (2, 3, 4):
        serve(cache, [*head, *ids(8, seed)])
    cache.evict(2)
    prompt = [*head, *ids(8, 2), 0]
    assert why(cache, prompt) == MatchEnd(Reason.EVICTED, 8, Cause.CAPACITY, 8)
    assert reach(cache, [*head, *ids(8, 3)]) == 16
    cache.evict(6)
    assert why(cache, prompt) == MatchEnd(Reason.EVICTED, 0, Cause.CAPACITY, 16)


def test_a_flush_leaves_ghosts_within_the_budget_and_of_running_requests_too() -> None:
    cache = make_cache(16, SIZE, ghost_blocks=5)
    store(cache, ids(16, 1))
    lease = hold(cache, ids(16, 2))
    cache.evict(1)
    assert cache.flush() == 3
    assert 0 < cache.ghost_tokens <= 5 * SIZE
    assert_sound(cache, [lease])
    roomy = make_cache(16, SIZE)
    store(roomy, ids(16, 1))
    running = hold(roomy, ids(16, 2))
    roomy.evict(1)
    roomy.flush()
    assert roomy.ghost_tokens == 8 * SIZE
    for seed in (1, 2):
        assert why(roomy, ids(17, seed)) == MatchEnd(Reason.EVICTED, 0, Cause.FLUSH, 16)
    roomy.release(running)
    assert_sound(roomy)
    for seed in (1, 2):
        serve(roomy, ids(16, seed))
        assert reach(roomy, ids(16, seed)) == 16
    assert roomy.ghost_tokens == 0


def test_a_second_flush_keeps_the_first_ones_ghosts() -> None:
    cache = make_cache(16, SIZE)
    store(cache, ids(16, 1))
    cache.evict(2)
    cache.flush()
    assert cache.flush() == 0
    assert why(cache, ids(17, 1)) == MatchEnd(Reason.EVICTED, 0, Cause.FLUSH, 16)
    assert_sound(cache)


def test_expired_runs_are_ghosts_with_their_own_cause() -> None:
    clock = Clock()
    cache = make_cache(16, SIZE, clock=clock, ttl=10.0)
    store(cache, ids(16, 1))
    clock.now = 11.0
    assert cache.expire() == 4
    assert cache.ghost_tokens == 16
    assert why(cache, ids(17, 1)) == MatchEnd(Reason.EVICTED, 0, Cause.TTL, 16)
    store(cache, ids(16, 1))
    cache.evict(1)
    assert why(cache, ids(17, 1)) == MatchEnd(Reason.EVICTED, 12, Cause.CAPACITY, 4)
    assert_sound(cache)


def test_a_payload_comes_back_with_its_run() -> None:
    cache = make_cache(16, SIZE)
    tokens = ids(16, 1)
    payload = b"".join(bytes([n] * 4) for n in range(16))
    for evicted in (0, 1, 3, 4):
        cache.evict(evicted)
        lease = cache.lease(cache.match(pack([*tokens, 0])))
        at = lease.num_tokens
        blocks = take(cache, (16 - at) // SIZE)
        cache.publish(lease, pack(tokens[at:]), blocks, payload[4 * at :])
        assert lease.payload() == payload
        assert_sound(cache, [lease])
        cache.release(lease)


def act(cache: PrefixCache, clock: Clock, draw: Random, leases: list[Lease]) -> None:
    """One operation of those that make, move or drop ghosts."""
    tokens = [draw.randrange(2) for _ in range(SIZE * draw.randrange(1, 7) + 1)]
    space = draw.choice([Namespace(), Namespace(), Namespace(tenant="a")])
    kind = draw.randrange(12)
    if kind < 6:
        need = len(tokens) // SIZE
        if cache.available_blocks >= need:
            lease = cache.lease(cache.match(pack(tokens), space))
            run = tokens[lease.num_tokens : need * SIZE]
            blocks = cache.allocate(len(run) // SIZE)
            if blocks is None:
                cache.release(lease)
                return
            leases.append(lease)
            if kind < 4:
                cache.publish(lease, pack(run), blocks)
            elif cache.announce(lease, pack(run), blocks):
                (cache.commit if draw.random() < 0.5 else cache.withdraw)(lease)
            else:
                cache.free(blocks)
    elif kind < 9:
        cache.evict(draw.randrange(1, 8))
    elif kind == 9:
        clock.now += draw.choice([1.0, 6.0])
        cache.expire()
    elif kind == 10 and draw.random() < 0.2:
        cache.flush()
    if leases and draw.random() < 0.8:
        cache.release(leases.pop(draw.randrange(len(leases))))


@pytest.mark.parametrize("budget", [0, 1, 3, 7, 20])
@pytest.mark.parametrize("seed", range(3))
def test_the_budget_holds_after_every_operation(budget: int, seed: int) -> None:
    draw, clock, leases = Random(seed), Clock(), list[Lease]()
    cache = make_cache(16, SIZE, clock=clock, ttl=10.0, ghost_blocks=budget)
    cache.mark_public(pack([0] * 8))
    most = 0
    for _ in range(400):
        act(cache, clock, draw, leases)
        assert cache.ghost_tokens <= budget * SIZE
        assert_sound(cache, leases)
        most = max(most, cache.ghost_tokens)
    assert most == budget * SIZE  # it was reached, and nothing but ghosts is lost by it
    for lease in leases:
        cache.release(lease)
    cache.evict(16)
    assert edges(cache) == []
    assert_sound(cache)


def unlist(cache: PrefixCache, *, but: int = 0) -> None:
    """Take ghosts out of their list, as no operation should."""
    for node in cache._tree.ghosts.listed()[but:]:
        _unlink(node)


@pytest.mark.parametrize("budget", [0, 1, 3])
def test_a_budget_that_is_exceeded_with_nothing_listed_is_kept_all_the_same(budget: int) -> None:
    cache = make_cache(16, SIZE, ghost_blocks=8)
    for seed in range(4):
        serve(cache, [*ids(4, 1), *ids(4, 10 + seed)])
    lease = hold(cache, ids(8, 30))
    cache.evict(5)
    unlist(cache)
    cache._tree.ghosts.budget = budget
    assert cache.expire() == 0  # looks at the list, too
    cache.release(lease)
    cache.evict(2)
    assert cache.ghost_tokens == budget * SIZE
    assert_sound(cache)


def test_more_ghosts_counted_than_there_are_are_no_reason_to_stop() -> None:
    cache = make_cache(16, SIZE, ghost_blocks=2)
    serve(cache, ids(8, 1))
    cache._tree.ghosts.blocks = 5  # wrong
    cache.evict(2)
    assert cache.ghost_tokens == 0  # two were dropped, then none was left
    assert_sound(cache)


def test_an_unlisted_ghost_above_a_namespace_goes_with_the_last_one_below_it() -> None:
    cache = make_cache(16, SIZE, ghost_blocks=8)
    cache.mark_public(pack(ids(8, 1)))
    serve(cache, [*ids(8, 1), *ids(4, 2)], Namespace(tenant="a"))
    cache.evict(3)
    unlist(cache, but=1)  # the public path, which was evicted last
    cache._tree.ghosts.budget = 2
    cache._tree.ghosts.keep_budget()
    assert cache.ghost_tokens == 0
    assert cache.root.children == {}
    assert_sound(cache)
