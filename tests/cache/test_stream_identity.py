"""A subscriber is never left with what an earlier stream told: each stream has its own identity,
and ends with its last subscriber."""

from __future__ import annotations

import pytest

from radix_engine.cache import (
    ALL,
    Cleared,
    EventsLost,
    EventStream,
    PrefixCache,
    Snapshot,
    Stored,
    TreeMirror,
    pack,
)
from radix_engine.cache.event_hub import EventHub
from radix_engine.cache.snapshot import Entry, snapshot
from radix_engine.cache.tree_mirror import OutOfStep
from tests.cache.telling import ALICE, PUBLIC, SIZE, follow, named
from tests.cache.telling import store as tell
from tests.cache.trees import ids, make_cache, store

RUN = pack([1, 2, 3, 4])


def process(tokens: list[list[int]]) -> tuple[EventHub, EventStream, Snapshot]:
    """A newly started one that stores these runs, its stream, and what is stored."""
    hub = EventHub(SIZE)
    stream = hub.subscribe(ALL)
    entries: list[Entry] = []
    for block, run in enumerate(tokens):
        (joined,) = tell(hub, PUBLIC, run, block)
        entries.append((PUBLIC, PUBLIC.digest(), pack(run), [block], joined))
    return hub, stream, snapshot(stream, entries)


# Identity


def test_no_two_streams_have_one_identity() -> None:
    streams = [EventHub(SIZE).subscribe(scope) for scope in (ALL, "alice", None) for _ in range(20)]
    assert len({stream.identity for stream in streams}) == 60
    assert all(streams[0].identity)
    hub = EventHub(SIZE, new_identity=named())
    assert [hub.subscribe(scope).identity for scope in (ALL, "a", ALL, None)] == [
        *("s1", "s2", "s1", "s3")
    ]


def test_every_event_and_snapshot_names_its_stream() -> None:
    hub = EventHub(SIZE, new_identity=named())
    everything, alice = hub.subscribe(ALL), hub.subscribe("alice")
    (joined,) = tell(hub, ALICE, [1, 2])
    hub.removed(ALICE, joined)
    hub.cleared()
    for stream, name in ((everything, "s1"), (alice, "s2")):
        assert [event.stream for event in stream.since(1)] == [name] * 3
        taken = snapshot(stream, [(ALICE, ALICE.digest(), pack([1, 2]), [0], joined)])
        assert (taken.stream, [entry.stream for entry in taken.stored]) == (name, [name])


@pytest.mark.parametrize("again", [[[5, 6], [7, 8]], [[5, 6], [7, 8], [9, 9]], [[5, 6]]])
def test_a_mirror_of_a_process_that_was_started_anew_asks_for_a_snapshot(
    again: list[list[int]],
) -> None:
    _, old, _ = process([[1, 2], [3, 4]])
    mirror = TreeMirror(SIZE)
    follow(mirror, old)
    assert (mirror.next_sequence, mirror.stream) == (3, old.identity)
    # The new process may be behind, just as far, or further on: the numbers alone do not tell.
    _, new, whole = process(again)
    with pytest.raises(EventsLost, match=f"event 3 of stream {old.identity} was asked for") as lost:
        follow(mirror, new)
    assert lost.value.first_kept == 1
    assert mirror.match(pack([1, 2]), PUBLIC) == 2, "it goes on with what it knows until then"
    mirror.load(whole)
    assert mirror.stream == new.identity
    assert set(mirror.blocks()) == {entry.hashes for entry in whole.stored}
    assert mirror.match(pack([1, 2]), PUBLIC) == 0
    follow(mirror, new)
    assert mirror.next_sequence == len(again) + 1


def test_a_mirror_refuses_the_next_number_of_another_stream() -> None:
    mirror = TreeMirror(SIZE)
    mirror.apply(Cleared(1, stream="one"))
    with pytest.raises(OutOfStep, match="of stream two, but one was followed so far"):
        mirror.apply(Cleared(2, stream="two"))
    assert (mirror.next_sequence, mirror.stream) == (2, "one")
    mirror.apply(Cleared(2, stream="one"))


def test_a_mirror_that_knows_nothing_takes_up_whichever_stream_comes_from_its_start() -> None:
    mirror = TreeMirror(SIZE)
    assert mirror.stream is None
    _, stream, _ = process([[1, 2]])
    follow(mirror, stream)
    assert mirror.stream == stream.identity


def test_a_refused_event_gives_a_mirror_no_stream() -> None:
    mirror = TreeMirror(SIZE)
    with pytest.raises(ValueError, match="use the cache's block size"):
        mirror.apply(Stored(1, ALICE, bytes(32), pack([1]), (), bytes(32), stream="one"))
    assert mirror.stream is None


# Unsubscribing


def test_a_stream_lasts_until_each_of_its_subscribers_has_left() -> None:
    hub = EventHub(SIZE, new_identity=named())
    one, two = hub.subscribe("alice"), hub.subscribe("alice")
    hub.unsubscribe(one)
    tell(hub, ALICE, [1, 2])
    assert [event.sequence for event in two.since(1)] == [1]
    assert not two.ended
    hub.unsubscribe(two)
    assert two.ended
    with pytest.raises(EventsLost, match="has ended: subscribe again"):
        two.since(1)
    with pytest.raises(EventsLost, match="has ended"):
        two.since(2, "s1")
    with pytest.raises(ValueError, match="has ended"):
        snapshot(two, [])
    assert one is two


def test_nothing_is_kept_for_a_scope_that_nobody_listens_to_any_more() -> None:
    hub = EventHub(SIZE)
    left, stays = hub.subscribe("alice"), hub.subscribe(ALL)
    tell(hub, ALICE, [1, 2])
    hub.unsubscribe(left)
    (joined,) = tell(hub, ALICE, [3, 4])
    hub.removed(ALICE, joined)
    hub.cleared()
    assert left.next_sequence == 2
    assert not left._events
    assert [event.sequence for event in stays.since(1)] == [1, 2, 3, 4]


def test_who_subscribes_again_gets_another_stream_and_leaves_it_once() -> None:
    hub = EventHub(SIZE, new_identity=named())
    first = hub.subscribe(ALL)
    tell(hub, ALICE, [1, 2])
    mirror = TreeMirror(SIZE)
    follow(mirror, first)
    hub.unsubscribe(first)
    second = hub.subscribe(ALL)
    assert (first.identity, second.identity, second.next_sequence) == ("s1", "s2", 1)
    with pytest.raises(EventsLost, match="of stream s1 was asked for"):
        follow(mirror, second)
    hub.unsubscribe(first)  # again: it has ended, and the new one is none of its business
    assert not second.ended
    hub.cleared()
    assert second.since(1) == [Cleared(1, stream="s2")]


def test_a_cache_lets_its_subscribers_go() -> None:
    cache = make_cache(16, SIZE, events=True)
    stream = cache.subscribe(ALL)
    store(cache, [1, 2, 3, 4])
    cache.unsubscribe(stream)
    assert stream.ended
    with pytest.raises(ValueError, match="subscribe again"):
        cache.snapshot(stream)
    again = cache.subscribe(ALL)
    mirror = TreeMirror(SIZE)
    mirror.load(cache.snapshot(again))
    store(cache, ids(4, 9))
    follow(mirror, again)
    assert [mirror.match(run, PUBLIC) for run in (RUN, pack(ids(4, 9)))] == [4, 4]
    PrefixCache(4).unsubscribe(stream)  # one without events has nobody to let go
