"""What the cache tells is what it does: a mirror fed by its events alone equals it."""

from __future__ import annotations

import struct
from hashlib import sha256
from random import Random

import pytest

from radix_engine.cache import (
    ALL,
    Cleared,
    EventsLost,
    EventStream,
    Lease,
    Namespace,
    PrefixCache,
    Removed,
    Stored,
    TreeMirror,
    pack,
    unpack,
)
from radix_engine.cache.block_hash import split_hashes
from radix_engine.cache.node import Node
from tests.cache.requests import Clock, begin, reach, serve
from tests.cache.trees import assert_sound, ids, lease_of, make_cache, store, take

SIZE = 4
NOBODY, A, A_SALTED = Namespace(), Namespace(tenant="a"), Namespace(tenant="a", salt="s")
SPACES = [NOBODY, A, A_SALTED, Namespace(tenant="b")]


def chained(parent: bytes, tokens: list[int]) -> list[bytes]:
    hashes = []
    for start in range(0, len(tokens), SIZE):
        block = struct.pack(f"<{SIZE}i", *tokens[start : start + SIZE])
        parent = sha256(parent + block).digest()
        hashes.append(parent)
    return hashes


def truth(cache: PrefixCache) -> dict[bytes, tuple[int, Namespace]]:
    """Each computed block that can be found, by its hash, from the tree itself."""
    found: dict[bytes, tuple[int, Namespace]] = {}
    todo: list[tuple[Node, Namespace, bytes]] = [
        (child, NOBODY, b"") for child in cache.root.children.values()
    ]
    while todo:
        node, space, parent = todo.pop()
        if node.namespace is not None:
            space = node.namespace
            digest = space.digest()
            parent = sha256(parent + digest).digest() if parent else digest
        computed = len(node.blocks) - node.in_flight
        hashes = chained(parent, unpack(bytes(node.run))[: computed * SIZE])
        found.update(zip(hashes, ((b, space) for b in node.blocks), strict=False))
        if computed * SIZE == node.num_tokens:
            last = hashes[-1] if hashes else parent
            todo.extend((child, space, last) for child in node.children.values())
    return found


class Follower:
    """A mirror that follows one scope of a cache."""

    def __init__(self, cache: PrefixCache, stream: EventStream) -> None:
        self.cache, self.stream, self.mirror = cache, stream, TreeMirror(SIZE)

    def catch_up(self) -> None:
        for event in self.stream.since(self.mirror.next_sequence, self.mirror.stream):
            self.mirror.apply(event)

    def assert_equal(self) -> None:
        expected: dict[bytes, int | None] = {
            key: block if self.stream.scope is ALL else None
            for key, (block, space) in truth(self.cache).items()
            if self.stream.covers(space)
        }
        assert self.mirror.blocks() == expected


def event_cache(blocks: int = 32, **options: object) -> PrefixCache:
    return make_cache(blocks, SIZE, events=True, **options)


def act(cache: PrefixCache, clock: Clock, draw: Random, leases: list[Lease]) -> None:
    tokens = [draw.randrange(2) for _ in range(SIZE * draw.randrange(1, 6) + 1)]
    kind = draw.randrange(20)
    if kind < 13 and cache.available_blocks >= 5:
        lease = cache.lease(cache.match(pack(tokens), draw.choice(SPACES)))
        run = tokens[lease.num_tokens : -1]
        leases.append(lease)
        blocks = cache.allocate(len(run) // SIZE)
        if blocks is None:
            return
        if kind < 8:
            cache.publish(lease, pack(run), blocks)
        elif cache.announce(lease, pack(run), blocks):
            (cache.commit if draw.random() < 0.6 else cache.withdraw)(lease)
        else:
            cache.free(blocks)
    elif kind < 16:
        cache.evict(draw.randrange(1, 6))
    elif kind == 16:
        clock.now += 4.0
        cache.expire()
    elif kind == 17 and draw.random() < 0.3:
        cache.flush()
    elif kind == 18:
        path = pack(draw.choice([[0] * 8, [0] * 4, [0, 1, 0, 1]]))
        (cache.mark_public if draw.random() < 0.6 else cache.unmark_public)(path)
    while leases and draw.random() < 0.6:
        cache.release(leases.pop(draw.randrange(len(leases))))


@pytest.mark.parametrize("seed", range(4))
def test_a_mirror_equals_the_cache_after_any_use(seed: int) -> None:
    draw, clock, leases = Random(seed), Clock(), list[Lease]()
    cache = event_cache(24, clock=clock, ttl=10.0, ghost_blocks=20)
    followers = [Follower(cache, cache.subscribe(scope)) for scope in (ALL, "a", None)]
    stored = 0
    for _ in range(200):
        act(cache, clock, draw, leases)
        assert_sound(cache, leases)
        for follower in followers:
            follower.catch_up()
            follower.assert_equal()
        stored = max(stored, len(followers[1].mirror.blocks()))
    assert stored > 4


@pytest.mark.parametrize("seed", range(3))
def test_a_subscriber_that_comes_late_or_lost_events_goes_on_from_a_snapshot(seed: int) -> None:
    draw, clock, leases = Random(seed), Clock(), list[Lease]()
    cache = event_cache(24, clock=clock, ttl=10.0)
    cache.mark_public(pack([0] * 8))
    for _ in range(60):
        act(cache, clock, draw, leases)
    late = [Follower(cache, cache.subscribe(scope)) for scope in (ALL, "a")]
    for round_ in range(20):
        for follower in late:
            if round_ % 3 == 0:  # the others' events are taken as they come
                follower.mirror.load(cache.snapshot(follower.stream))
            follower.catch_up()
            follower.assert_equal()
        for _ in range(15):
            act(cache, clock, draw, leases)
    assert_sound(cache, leases)


def test_a_stream_that_dropped_events_says_so_and_a_snapshot_mends_it() -> None:
    cache = event_cache()
    cache.subscribe(ALL)
    hub = cache._tree.events
    assert hub is not None
    small = EventStream(ALL, 3)
    hub._streams[ALL] = small
    follower = Follower(cache, small)
    for seed in range(6):
        store(cache, ids(8, seed))
    with pytest.raises(EventsLost):
        follower.catch_up()
    follower.mirror.load(cache.snapshot(small))
    follower.assert_equal()
    cache.evict(3)
    follower.catch_up()
    follower.assert_equal()


def test_stored_tells_the_run_its_blocks_and_what_it_follows() -> None:
    cache = event_cache()
    stream = cache.subscribe(ALL)
    lease = begin(cache, ids(8, 1), A)
    cache.publish(lease, pack(ids(16, 1)[8:]), take(cache, 2))
    hashes = chained(A.digest(), ids(16, 1))
    blocks, name = tuple(lease.blocks()), stream.identity
    assert stream.since(1) == [
        Stored(1, A, A.digest(), pack(ids(8, 1)), blocks[:2], b"".join(hashes[:2]), stream=name),
        Stored(
            *(2, A, hashes[1], pack(ids(16, 1)[8:]), blocks[2:], b"".join(hashes[2:])), stream=name
        ),
    ]


def test_what_was_stored_already_is_not_told_again() -> None:
    cache = event_cache()
    stream = cache.subscribe(ALL)
    one, two = lease_of(cache, ids(16, 1)), lease_of(cache, ids(24, 1))
    cache.publish(one, pack(ids(16, 1)), take(cache, 4))
    cache.publish(two, pack(ids(24, 1)), take(cache, 6))
    told = stream.since(1)
    assert [event.run for event in told if isinstance(event, Stored)] == [
        pack(ids(16, 1)),
        pack(ids(24, 1)[16:]),
    ]
    assert_sound(cache, [one, two])


@pytest.mark.parametrize("how", ["evict", "expire"])
def test_removed_names_the_hashes_of_what_left_and_of_nothing_else(how: str) -> None:
    clock = Clock()
    cache = event_cache(clock=clock, ttl=10.0)
    stream = cache.subscribe(ALL)
    serve(cache, ids(16, 1))
    serve(cache, [*ids(8, 1), *ids(8, 2)], NOBODY)  # which splits the first
    hashes = chained(NOBODY.digest(), ids(16, 1))
    asked = stream.next_sequence
    if how == "evict":
        cache.evict(1)
        cache.evict(1)
        gone = [hashes[3:4], hashes[2:3]]
    else:
        clock.now = 8.0
        cache.release(lease_of(cache, [*ids(8, 1), *ids(8, 2), 0]))
        clock.now = 11.0
        assert cache.expire() == 2
        gone = [hashes[2:]]
    told = stream.since(asked)
    assert all(isinstance(event, Removed) for event in told)
    assert [split_hashes(e.hashes) for e in told if isinstance(e, Removed)] == gone


def test_an_evicted_run_is_told_again_when_it_is_stored_again() -> None:
    cache = event_cache()
    follower = Follower(cache, cache.subscribe(ALL))
    for evicted in (1, 4, 2):
        serve(cache, ids(17, 1))
        cache.evict(evicted)
        follower.catch_up()
        follower.assert_equal()
    serve(cache, ids(17, 1))
    follower.catch_up()
    follower.assert_equal()
    assert follower.mirror.match(pack(ids(17, 1)), NOBODY) == 16


def test_a_flush_tells_that_everything_is_gone_and_nothing_of_the_old_tree_after_it() -> None:
    cache = event_cache()
    streams = [cache.subscribe(scope) for scope in (ALL, "a", "b")]
    running = begin(cache, ids(8, 1), A)
    before = [stream.next_sequence for stream in streams]
    cache.flush()
    cache.publish(running, pack(ids(16, 1)[8:]), take(cache, 2))
    cache.release(running)
    assert [s.since(n) for s, n in zip(streams, before, strict=True)] == [
        [Cleared(n, stream=s.identity)] for s, n in zip(streams, before, strict=True)
    ]
    follower = Follower(cache, streams[0])
    follower.catch_up()
    assert follower.mirror.blocks() == {}
    serve(cache, ids(8, 1), A)
    follower.catch_up()
    follower.assert_equal()
    assert len(follower.mirror.blocks()) == 2


def test_blocks_in_flight_tell_nothing_before_their_commit_and_nothing_when_withdrawn() -> None:
    cache = event_cache()
    stream = cache.subscribe(ALL)
    lease = begin(cache, ids(8, 1))
    seen = stream.next_sequence
    run = pack(ids(16, 1)[8:])
    assert cache.announce(lease, run, take(cache, 2))
    assert reach(cache, ids(16, 1)) == 16
    assert stream.since(seen) == []
    follower = Follower(cache, stream)
    follower.mirror.load(cache.snapshot(stream))
    assert len(follower.mirror.blocks()) == 2
    cache.withdraw(lease)
    assert stream.since(seen) == []
    assert cache.announce(lease, run, take(cache, 2))
    cache.commit(lease)
    (told,) = stream.since(seen)
    assert isinstance(told, Stored)
    assert (told.run, told.blocks) == (run, tuple(lease.blocks()[2:]))
    follower.catch_up()
    follower.assert_equal()
    assert_sound(cache, [lease])


def test_those_who_attached_are_told_after_what_they_stand_on() -> None:
    cache = event_cache()
    follower = Follower(cache, cache.subscribe(ALL))
    cache.mark_public(pack(ids(8, 1)))
    owner = cache.lease(cache.match(pack([*ids(8, 1), 0]), A))
    assert cache.announce(owner, pack(ids(8, 1)), take(cache, 2))
    other = cache.lease(cache.match(pack([*ids(8, 1), *ids(8, 2), 0]), Namespace(tenant="b")))
    assert other.num_tokens == 8
    assert cache.announce(other, pack(ids(8, 2)), take(cache, 2))
    cache.commit(owner)
    cache.commit(other)
    follower.catch_up()
    follower.assert_equal()
    prompt = pack([*ids(8, 1), *ids(8, 2), 0])
    assert follower.mirror.match(prompt, Namespace(tenant="b"), public_tokens=8) == 16
    assert_sound(cache, [owner, other])


def test_mirror_and_cache_agree_on_every_match() -> None:
    draw, clock, leases = Random(3), Clock(), list[Lease]()
    cache = event_cache(48, clock=clock)
    cache.mark_public(pack([0] * 8))
    follower = Follower(cache, cache.subscribe(ALL))
    for _ in range(80):
        act(cache, clock, draw, leases)
    follower.catch_up()
    for _ in range(200):
        tokens = [draw.randrange(2) for _ in range(SIZE * draw.randrange(0, 6) + 1)]
        space = draw.choice(SPACES)
        public = cache.match(pack(tokens), space).public_tokens
        mirrored = follower.mirror.match(pack(tokens), space, public)
        assert mirrored == cache.match(pack(tokens), space).num_tokens


def test_a_cache_without_events_refuses_subscribers_and_keeps_no_hashes() -> None:
    cache = make_cache(16, SIZE)
    with pytest.raises(ValueError, match="make it with events=True"):
        cache.subscribe(ALL)
    store(cache, ids(16, 1))
    assert cache.root.children[NOBODY.key].children[pack(ids(4, 1))].hashes == b""
