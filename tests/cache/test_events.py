"""From the events alone, another process knows which prefixes are stored, and no more than it may.

The hashes that are expected here are computed by themselves, with struct and hashlib.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from radix_engine.cache.block_hash import block_hashes, chain_start, continuation_start
from radix_engine.cache.event_hub import EventHub
from radix_engine.cache.events import ALL, Cleared, Event, EventsLost, Removed, Snapshot, Stored
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.snapshot import Entry, snapshot
from radix_engine.cache.token_run import pack
from radix_engine.cache.tree_mirror import OutOfStep, TreeMirror
from tests.cache.telling import (
    ALICE,
    BOB,
    PUBLIC,
    SIZE,
    expected_chain,
    follow,
    mirror_of,
    named,
    store,
)

ROOT = Path(__file__).resolve().parents[2]


def test_a_block_hash_is_sha256_over_its_parents_hash_and_its_little_endian_tokens() -> None:
    # A namespace's digest: each field as its kind, its length in 8 bytes and its text.
    nobody = b"-" + bytes(8)
    digest = sha256(nobody * 3 + b"s" + struct.pack("<q", 1) + b"0").digest()
    first = sha256(digest + b"\x01\0\0\0" + b"\x00\x01\0\0").digest()
    second = sha256(first + b"\xff\xff\xff\x7f" + b"\x05\0\0\0").digest()
    assert store(EventHub(2), PUBLIC, [1, 256, 2**31 - 1, 5]) == [first, second]


def test_the_same_tokens_have_other_hashes_in_another_namespace_or_after_another_parent() -> None:
    run = pack([7, 8])
    namespaces = [PUBLIC, ALICE, BOB, Namespace("alice", salt="s"), Namespace(weights=1)]
    parents = [chain_start(namespace) for namespace in namespaces]
    parents += [block_hashes(parents[0], run, SIZE), continuation_start(parents[0], ALICE)]
    assert len({block_hashes(parent, run, SIZE) for parent in parents}) == len(parents)


def test_a_namespace_below_a_public_path_starts_from_the_paths_last_hash_and_its_own_digest() -> (
    None
):
    last = expected_chain(chain_start(PUBLIC), [1, 2, 3, 4])[-1]
    assert continuation_start(last, ALICE) == sha256(last + ALICE.digest()).digest()


def test_two_processes_with_different_hash_seeds_compute_equal_hashes() -> None:
    code = (
        "from radix_engine.cache.block_hash import *\n"
        "from radix_engine.cache.namespace import Namespace\n"
        "from radix_engine.cache.token_run import pack\n"
        "n = Namespace('alice', 'salt', 'adapter', 3)\n"
        "path = block_hashes(chain_start(n.shared), pack(range(32)), 16)\n"
        "print((path + block_hashes(continuation_start(path[-32:], n), pack(range(64)), 16)).hex())"
    )
    answers = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    namespace = Namespace("alice", "salt", "adapter", 3)
    public = Namespace(adapter="adapter", weights=3)
    hashes = expected_chain(public.digest(), list(range(32)), 16)
    start = sha256(hashes[-1] + namespace.digest()).digest()
    hashes += expected_chain(start, list(range(64)), 16)
    assert answers == [b"".join(hashes).hex()] * 2


def test_a_big_endian_machine_computes_the_same_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    other = "big" if sys.byteorder == "little" else "little"
    mark = ">" if sys.byteorder == "little" else "<"
    tokens = [1, 256, 70_000, 5]
    swapped = struct.pack(f"{mark}4i", *tokens)
    if other == "little":
        pytest.skip("this machine is the big-endian one, and every other test has shown it")
    monkeypatch.setattr(sys, "byteorder", other)
    joined = block_hashes(chain_start(ALICE), swapped, SIZE)
    assert joined == b"".join(expected_chain(ALICE.digest(), tokens))


# The hub and its streams


def test_events_tell_what_was_stored_removed_and_cleared_in_order() -> None:
    hub = EventHub(SIZE, new_identity=named())
    stream = hub.subscribe(ALL)
    one, two = store(hub, ALICE, [1, 2, 3, 4], first_block=8)
    more = hub.stored(ALICE, two, pack([5, 6]), [3])
    hub.removed(ALICE, two + more)
    hub.cleared()
    assert more == expected_chain(two, [5, 6])[0]
    assert stream.since(1) == [
        Stored(1, ALICE, ALICE.digest(), pack([1, 2, 3, 4]), (8, 9), one + two, stream="s1"),
        Stored(2, ALICE, two, pack([5, 6]), (3,), more, stream="s1"),
        Removed(3, ALICE, two + more, stream="s1"),
        Cleared(4, stream="s1"),
    ]
    assert stream.since(3) == stream.since(1)[2:]
    assert stream.since(5) == []
    assert stream.next_sequence == 5


def test_an_event_keeps_its_block_ids_when_the_caller_reuses_the_list() -> None:
    hub = EventHub(SIZE)
    stream = hub.subscribe(ALL)
    blocks = [4, 5]
    hub.stored(PUBLIC, chain_start(PUBLIC), pack([1, 2, 3, 4]), blocks)
    blocks[0] = 9
    assert mirror_of(stream).match(pack([1, 2, 3, 4]), PUBLIC) == 4
    assert list(mirror_of(stream).blocks().values()) == [4, 5]


def test_nothing_to_tell_is_not_told() -> None:
    hub = EventHub(SIZE)
    stream = hub.subscribe(ALL)
    assert hub.stored(PUBLIC, chain_start(PUBLIC), b"", []) == b""
    hub.removed(PUBLIC, b"")
    assert stream.next_sequence == 1


def test_subscribers_of_one_scope_share_a_stream_and_a_late_scope_starts_empty() -> None:
    hub = EventHub(SIZE)
    store(hub, ALICE, [1, 2])
    alice = hub.subscribe("alice")
    assert alice.next_sequence == 1
    assert hub.subscribe("alice") is alice
    assert hub.subscribe(ALL) is hub.subscribe(ALL)
    others = [hub.subscribe(scope) for scope in (ALL, None, "ALL", "everything", "bob")]
    assert len({id(stream) for stream in [alice, *others]}) == 6


def test_a_tenants_stream_tells_nothing_of_others_not_even_by_numbers_or_block_ids() -> None:
    def of_alice(others: bool) -> list[Event]:
        hub = EventHub(SIZE, new_identity=named())
        alice, nobody = hub.subscribe("alice"), hub.subscribe(None)
        block = 0
        for turn in range(3):
            if others:
                theirs = store(hub, BOB, [turn, 1], block)
                store(hub, PUBLIC, [turn, 2], block + 1)
                hub.removed(BOB, theirs[0])
                block += 2
            ours = store(hub, Namespace("alice", salt=f"s{turn}"), [turn, 3], block)
            block += 1
        hub.removed(Namespace("alice", salt="s2"), ours[0])
        hub.cleared()
        assert nobody.next_sequence == (5 if others else 2)
        return alice.since(1)

    events = of_alice(others=True)
    assert events == of_alice(others=False)
    assert [event.sequence for event in events] == [1, 2, 3, 4, 5]
    assert all(isinstance(e, Cleared) or e.namespace.tenant == "alice" for e in events)


def test_a_tenants_snapshot_tells_nothing_of_others() -> None:
    hub = EventHub(SIZE)
    alice = hub.subscribe("alice")
    entries: list[Entry] = []
    for block, namespace in enumerate([PUBLIC, BOB, ALICE, Namespace("alice", salt="s")]):
        joined = store(hub, namespace, [1, 2], block)[0]
        entries.append((namespace, namespace.digest(), pack([1, 2]), [block], joined))
    taken = snapshot(alice, iter(entries))
    assert taken.sequence == 2
    assert [entry.namespace for entry in taken.stored] == [ALICE, Namespace("alice", salt="s")]
    assert [entry.blocks for entry in taken.stored] == [(), ()]
    whole = snapshot(hub.subscribe(ALL), entries)
    assert [entry.namespace for entry in whole.stored] == [entry[0] for entry in entries]
    assert [entry.blocks for entry in whole.stored] == [(0,), (1,), (2,), (3,)]
    assert whole.sequence == 0


def test_a_run_that_does_not_fill_its_blocks_is_refused_and_not_told() -> None:
    hub = EventHub(SIZE)
    stream = hub.subscribe(ALL)
    start = chain_start(PUBLIC)
    with pytest.raises(ValueError, match="run has 3 tokens, which do not fill 2 blocks of 2"):
        hub.stored(PUBLIC, start, pack([1, 2, 3]), [0, 1])
    with pytest.raises(ValueError, match="parent must be a hash of 32 bytes, not 31"):
        hub.stored(PUBLIC, start[1:], pack([1, 2]), [0])
    with pytest.raises(ValueError, match="hashes are 32 bytes each"):
        hub.removed(PUBLIC, start + b"x")
    assert stream.next_sequence == 1


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="block_size"):
        EventHub(0)
    with pytest.raises(ValueError, match="capacity"):
        EventHub(16, capacity=0)
    with pytest.raises(ValueError, match="empty name"):
        EventHub(16).subscribe("")
    with pytest.raises(ValueError, match="block_size"):
        TreeMirror(0)
    with pytest.raises(ValueError, match="start at 1"):
        EventHub(16).subscribe(ALL).since(0)


# Loss and resynchronisation


def test_a_subscriber_that_was_too_slow_recovers_by_a_snapshot() -> None:
    hub = EventHub(SIZE, capacity=3)
    stream = hub.subscribe(ALL)
    mirror = TreeMirror(SIZE)
    entries: list[Entry] = []
    for turn in range(5):
        joined = store(hub, ALICE, [turn, turn], turn)[0]
        entries.append((ALICE, ALICE.digest(), pack([turn, turn]), [turn], joined))
    hub.removed(ALICE, entries.pop(0)[4])  # event 6
    with pytest.raises(EventsLost, match=r"event 1 .* has number 4: take a snapshot") as lost:
        follow(mirror, stream)
    assert lost.value.first_kept == 4
    assert [event.sequence for event in stream.since(4)] == [4, 5, 6]
    mirror.load(snapshot(stream, entries))
    assert mirror.blocks() == {entry[4]: entry[3][0] for entry in entries}
    last = store(hub, BOB, [9, 9], 77)[0]
    follow(mirror, stream)
    assert mirror.blocks() == {**{entry[4]: entry[3][0] for entry in entries}, last: 77}
    assert mirror.next_sequence == stream.next_sequence == 8


def test_a_number_of_another_stream_is_answered_with_a_loss_too() -> None:
    hub = EventHub(SIZE)
    stream = hub.subscribe(ALL)
    store(hub, ALICE, [1, 2])
    assert stream.since(2) == []
    with pytest.raises(EventsLost, match="not from this stream") as lost:
        stream.since(3)
    assert lost.value.first_kept == 1


@pytest.mark.parametrize(("number", "why"), [(4, "some were lost"), (2, "it was applied before")])
def test_a_mirror_refuses_a_gap_and_a_repetition(number: int, why: str) -> None:
    mirror = TreeMirror(SIZE)
    mirror.load(Snapshot(2, [], stream="s"))
    with pytest.raises(OutOfStep, match=f"event {number} came, but 3 is the next: {why}"):
        mirror.apply(Cleared(number, stream="s"))
    mirror.apply(Cleared(3, stream="s"))
    assert mirror.next_sequence == 4


def test_a_mirror_refuses_what_contradicts_it_and_stays_as_it_was() -> None:
    hub = EventHub(SIZE, new_identity=named())
    stream = hub.subscribe(ALL)
    hashes = store(hub, ALICE, [1, 2, 3, 4])
    mirror = mirror_of(stream)
    before = mirror.blocks()
    one, two = hashes
    third = expected_chain(two, [5, 6])[0]
    with pytest.raises(OutOfStep, match="stored already"):
        mirror.apply(Stored(2, ALICE, one, pack([3, 4, 5, 6]), (1, 2), two + third, stream="s1"))
    with pytest.raises(OutOfStep, match="removed that is not stored"):
        mirror.apply(Removed(2, ALICE, two + third, stream="s1"))
    with pytest.raises(ValueError, match="4 tokens for 1 hashes, and this mirror's blocks have 2"):
        mirror.apply(Stored(2, ALICE, two, pack([5, 6, 7, 8]), (1,), third, stream="s1"))
    with pytest.raises(ValueError, match="2 blocks do not belong to 1 hashes"):
        mirror.apply(Stored(2, ALICE, two, pack([5, 6]), (1, 2), third, stream="s1"))
    entry = Stored(0, ALICE, ALICE.digest(), pack([1, 2]), (0,), one, stream="s1")
    with pytest.raises(OutOfStep, match="stored already"):
        mirror.load(Snapshot(9, [entry, entry], stream="s1"))
    with pytest.raises(ValueError, match="sequence 0, not 1"):
        mirror.load(Snapshot(9, [replace(entry, sequence=1)], stream="s1"))
    with pytest.raises(ValueError, match="an entry is of stream s1, its snapshot of s2"):
        mirror.load(Snapshot(9, [entry], stream="s2"))
    assert mirror.blocks() == before
    assert mirror.stream == "s1"
    assert mirror.next_sequence == 2


# Matching


def test_a_match_counts_whole_blocks_up_to_the_first_that_is_missing() -> None:
    hub = EventHub(SIZE)
    stream = hub.subscribe(ALL)
    hashes = store(hub, ALICE, [1, 2, 3, 4, 5, 6])
    hub.removed(ALICE, hashes[2])
    mirror = mirror_of(stream)
    assert mirror.match(pack([1, 2, 3, 4, 5, 6]), ALICE) == 4
    assert mirror.match(pack([1, 2, 3]), ALICE) == 2
    assert mirror.match(pack([1, 2, 3, 9]), ALICE) == 2
    assert mirror.match(pack([2, 2]), ALICE) == 0
    assert mirror.match(b"", ALICE) == 0
    assert mirror.match(pack([1, 2, 3, 4]), BOB) == 0


def test_a_match_goes_on_below_a_public_path() -> None:
    hub = EventHub(SIZE)
    everything, alice = hub.subscribe(ALL), hub.subscribe("alice")
    path = store(hub, PUBLIC, [1, 2, 3, 4])
    own = hub.stored(ALICE, continuation_start(path[1], ALICE), pack([5, 6]), [2])
    prompt = pack([1, 2, 3, 4, 5, 6, 7])
    operator, tenant = mirror_of(everything), mirror_of(alice)
    for mirror in (operator, tenant):
        assert mirror.match(prompt, ALICE, public_tokens=4) == 6
        assert mirror.match(prompt, ALICE, public_tokens=5) == 6  # whole blocks are public
        assert mirror.match(prompt, ALICE) == 0  # not asked to share anything
        assert mirror.match(prompt, ALICE, public_tokens=2) == (2 if mirror is operator else 0)
        assert mirror.match(pack([9, 2, 3, 4, 5, 6]), ALICE, public_tokens=4) == 0
    assert operator.match(prompt, BOB, public_tokens=4) == 4
    assert operator.match(prompt, BOB, public_tokens=99) == 4
    assert operator.match(prompt, PUBLIC, public_tokens=4) == 4
    hub.removed(ALICE, own)
    hub.removed(PUBLIC, path[1])
    follow(operator, everything)
    follow(tenant, alice)
    assert operator.match(prompt, ALICE, public_tokens=4) == 2
    assert tenant.match(prompt, ALICE, public_tokens=4) == 0
