"""From the events alone, another process knows which prefixes are stored, and no more than it may.

The hashes that are expected here are computed by themselves, with struct and hashlib.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_engine.cache.block_hash import block_hashes, chain_start, continuation_start
from radix_engine.cache.event_json import from_json, to_json
from radix_engine.cache.events import (
    ALL,
    Cleared,
    Entry,
    Event,
    EventHub,
    EventsLost,
    EventStream,
    Removed,
    Snapshot,
    Stored,
    snapshot,
)
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.token_run import TOKEN_BYTES, pack, unpack
from radix_engine.cache.tree_mirror import OutOfStep, TreeMirror

ROOT = Path(__file__).resolve().parents[2]
SIZE = 2
PUBLIC = Namespace()
ALICE, BOB = Namespace(tenant="alice"), Namespace(tenant="bob")


def expected_chain(parent: bytes, tokens: list[int], size: int = SIZE) -> list[bytes]:
    hashes = []
    for start in range(0, len(tokens), size):
        parent = sha256(parent + struct.pack(f"<{size}i", *tokens[start : start + size])).digest()
        hashes.append(parent)
    return hashes


def store(
    hub: EventHub, namespace: Namespace, tokens: list[int], first_block: int = 0
) -> list[bytes]:
    """Store a namespace's first blocks; their hashes, one by one."""
    count = len(tokens) // hub.block_size
    blocks = range(first_block, first_block + count)
    joined = hub.stored(namespace, chain_start(namespace), pack(tokens), blocks)
    assert len(joined) == 32 * count
    return [joined[32 * i : 32 * i + 32] for i in range(count)]


def follow(mirror: TreeMirror, stream: EventStream) -> None:
    for event in stream.since(mirror.next_sequence):
        mirror.apply(event)


def mirror_of(stream: EventStream, size: int = SIZE) -> TreeMirror:
    mirror = TreeMirror(size)
    follow(mirror, stream)
    return mirror


# Hashes


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
    hub = EventHub(SIZE)
    stream = hub.subscribe(ALL)
    one, two = store(hub, ALICE, [1, 2, 3, 4], first_block=8)
    more = hub.stored(ALICE, two, pack([5, 6]), [3])
    hub.removed(ALICE, two + more)
    hub.cleared()
    assert more == expected_chain(two, [5, 6])[0]
    assert stream.since(1) == [
        Stored(1, ALICE, ALICE.digest(), pack([1, 2, 3, 4]), (8, 9), one + two),
        Stored(2, ALICE, two, pack([5, 6]), (3,), more),
        Removed(3, ALICE, two + more),
        Cleared(4),
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
        hub = EventHub(SIZE)
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
    mirror.load(Snapshot(2, []))
    with pytest.raises(OutOfStep, match=f"event {number} came, but 3 is the next: {why}"):
        mirror.apply(Cleared(number))
    mirror.apply(Cleared(3))
    assert mirror.next_sequence == 4


def test_a_mirror_refuses_what_contradicts_it_and_stays_as_it_was() -> None:
    hub = EventHub(SIZE)
    stream = hub.subscribe(ALL)
    hashes = store(hub, ALICE, [1, 2, 3, 4])
    mirror = mirror_of(stream)
    before = mirror.blocks()
    one, two = hashes
    third = expected_chain(two, [5, 6])[0]
    with pytest.raises(OutOfStep, match="stored already"):
        mirror.apply(Stored(2, ALICE, one, pack([3, 4, 5, 6]), (1, 2), two + third))
    with pytest.raises(OutOfStep, match="removed that is not stored"):
        mirror.apply(Removed(2, ALICE, two + third))
    with pytest.raises(ValueError, match="4 tokens for 1 hashes, and this mirror's blocks have 2"):
        mirror.apply(Stored(2, ALICE, two, pack([5, 6, 7, 8]), (1,), third))
    with pytest.raises(ValueError, match="2 blocks do not belong to 1 hashes"):
        mirror.apply(Stored(2, ALICE, two, pack([5, 6]), (1, 2), third))
    entry = Stored(0, ALICE, ALICE.digest(), pack([1, 2]), (0,), one)
    with pytest.raises(OutOfStep, match="stored already"):
        mirror.load(Snapshot(9, [entry, entry]))
    with pytest.raises(ValueError, match="sequence 0, not 1"):
        mirror.load(Snapshot(9, [Stored(1, ALICE, ALICE.digest(), pack([1, 2]), (0,), one)]))
    assert mirror.blocks() == before
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


# A mirror against the plainest model, over random uses

Stretch = tuple[
    Namespace, int, tuple[int, ...]
]  # whose, how many tokens of it are public, all tokens


class FakeTree:
    """Stored prefixes of whole blocks, each with its block; tells a hub as a cache would."""

    def __init__(self, hub: EventHub) -> None:
        self.hub = hub
        self.entries: dict[Stretch, tuple[int, bytes]] = {}
        self.next_block = 0

    @staticmethod
    def parent_of(path: Stretch) -> Stretch:
        namespace, public, tokens = path
        if public and len(tokens) - SIZE == public:
            return namespace.shared, 0, tokens[:public]
        return namespace, public, tokens[:-SIZE]

    def start_after(self, path: Stretch, namespace: Namespace) -> bytes:
        """The parent hash of what ``namespace`` stores after ``path``."""
        owner, _, tokens = path
        if not tokens:
            return namespace.digest()
        last = self.entries[path][1]
        return last if owner == namespace else sha256(last + namespace.digest()).digest()

    def store(self, path: Stretch, namespace: Namespace, more: list[int]) -> None:
        """Store what is new of ``more``, in the namespace, after ``path``."""
        public = path[1] if path[0] == namespace else len(path[2])
        while more:
            after: Stretch = (namespace, public, (*path[2], *more[:SIZE]))
            if after not in self.entries:
                break
            path, more = after, more[SIZE:]
        parent = self.start_after(path, namespace)
        blocks = list(range(self.next_block, self.next_block + len(more) // SIZE))
        self.next_block += len(blocks)
        expected = expected_chain(parent, more)
        joined = self.hub.stored(namespace, parent, pack(more), blocks)
        assert joined == b"".join(expected)
        for index, entry in enumerate(zip(blocks, expected, strict=True), start=1):
            self.entries[namespace, public, (*path[2], *more[: index * SIZE])] = entry

    def remove(self, choice: int, count: int) -> None:
        """Remove up to ``count`` blocks from an end upwards, as far as one namespace's go."""
        inner = {self.parent_of(path) for path in self.entries}
        ends = [path for path in self.entries if path not in inner]
        if not ends:
            return
        path = ends[choice % len(ends)]
        namespace, gone = path[0], b""
        while count and path in self.entries and path[0] == namespace and path not in inner:
            gone = self.entries.pop(path)[1] + gone
            inner = {self.parent_of(other) for other in self.entries}
            path, count = self.parent_of(path), count - 1
        self.hub.removed(namespace, gone)

    def clear(self) -> None:
        self.entries.clear()
        self.hub.cleared()

    def blocks(self) -> dict[bytes, int]:
        return {block_hash: block for block, block_hash in self.entries.values()}

    def hashes_of(self, tenant: str | None) -> set[bytes]:
        return {entry[1] for path, entry in self.entries.items() if path[0].tenant == tenant}

    def matched(self, tokens: list[int], namespace: Namespace, public: int) -> int:
        public = 0 if namespace == namespace.shared else min(public, len(tokens)) // SIZE * SIZE
        found = 0
        for end in range(SIZE, len(tokens) + 1, SIZE):
            path: Stretch = (namespace, public, tuple(tokens[:end]))
            if end <= public:
                path = (namespace.shared, 0, path[2])
            if path not in self.entries:
                break
            found = end
        return found

    def snapshot(self, stream: EventStream) -> Snapshot:
        paths = sorted(self.entries, key=lambda path: len(path[2]))
        return snapshot(stream, (self.entry(path) for path in paths))

    def entry(self, path: Stretch) -> Entry:
        block, block_hash = self.entries[path]
        above = self.parent_of(path)
        return path[0], self.start_after(above, path[0]), pack(path[2][-SIZE:]), [block], block_hash


NAMESPACES = [PUBLIC, ALICE, Namespace("alice", salt="s"), BOB]
TOKENS = st.lists(st.sampled_from([0, 1]), min_size=SIZE, max_size=3 * SIZE)
OPERATIONS = st.one_of(
    st.tuples(st.just("store"), st.integers(0, 30), st.sampled_from(NAMESPACES), TOKENS),
    st.tuples(st.just("remove"), st.integers(0, 30), st.integers(1, 3)),
    st.tuples(st.sampled_from(["clear", "read", "read"])),
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    operations=st.lists(OPERATIONS, max_size=40),
    prompts=st.lists(
        st.tuples(TOKENS, st.sampled_from(NAMESPACES), st.integers(0, 7)), min_size=5, max_size=5
    ),
)
def test_a_mirror_equals_the_dictionary_of_prefixes_after_any_use(
    operations: list[tuple[object, ...]],
    prompts: list[tuple[list[int], Namespace, int]],
) -> None:
    hub = EventHub(SIZE, capacity=6)
    tree = FakeTree(hub)
    streams = [hub.subscribe(scope) for scope in (ALL, "alice", None)]
    mirrors = [TreeMirror(SIZE) for _ in streams]

    def read() -> None:
        for stream, mirror in zip(streams, mirrors, strict=True):
            try:
                follow(mirror, stream)
            except EventsLost:
                mirror.load(tree.snapshot(stream))
        operator, alice, nobody = mirrors
        assert operator.blocks() == tree.blocks()
        assert alice.blocks() == dict.fromkeys(tree.hashes_of("alice"))
        assert nobody.blocks() == dict.fromkeys(tree.hashes_of(None))
        for tokens, namespace, public in prompts:
            matched = tree.matched(tokens, namespace, public)
            assert operator.match(pack(tokens), namespace, public) == matched
            if namespace.tenant == "alice" and matched > public:
                assert alice.match(pack(tokens), namespace, public) == matched

    for operation in operations:
        match operation:
            case ("store", int(choice), Namespace() as namespace, [*tokens]):
                # After what it has stored already, or after something public, or from its root.
                places: list[Stretch] = [(namespace, 0, ())]
                places += [p for p in tree.entries if p[0] in (namespace, namespace.shared)]
                more = [int(str(token)) for token in tokens[: len(tokens) // SIZE * SIZE]]
                tree.store(places[choice % len(places)], namespace, more)
            case ("remove", int(choice), int(count)):
                tree.remove(choice, count)
            case ("clear",):
                tree.clear()
            case ("read",):
                read()
            case _:
                raise AssertionError(operation)
    read()


# JSON

HASH = st.binary(min_size=32, max_size=32)
NAMES = st.none() | st.text(min_size=1, max_size=4)
ANY_NAMESPACE = st.builds(Namespace, NAMES, NAMES, NAMES, st.integers(0, 2**40))
NUMBERS = st.integers(0, 2**62)


@st.composite
def stored_events(draw: st.DrawFn) -> Stored:
    hashes = draw(st.lists(HASH, min_size=1, max_size=3))
    ids = st.integers(-(2**31), 2**31 - 1)
    tokens = draw(st.lists(ids, min_size=len(hashes) * SIZE, max_size=len(hashes) * SIZE))
    blocks = draw(st.just(()) | st.just(tuple(range(7, 7 + len(hashes)))))
    namespace, parent = draw(ANY_NAMESPACE), draw(HASH)
    return Stored(draw(NUMBERS), namespace, parent, pack(tokens), blocks, b"".join(hashes))


REMOVED = st.builds(Removed, NUMBERS, ANY_NAMESPACE, st.lists(HASH, min_size=1).map(b"".join))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(event=st.one_of(stored_events(), REMOVED, st.builds(Cleared, NUMBERS)))
def test_an_event_is_the_same_after_a_way_through_json(event: Event) -> None:
    assert from_json(json.loads(json.dumps(to_json(event)))) == event


def test_events_in_json_are_plain_for_readers_in_other_languages() -> None:
    hub = EventHub(SIZE)
    stream = hub.subscribe(ALL)
    one, two = store(hub, ALICE, [1, 2, 300, 4], first_block=6)
    hub.removed(ALICE, two)
    hub.cleared()
    namespace = {"tenant": "alice", "salt": None, "adapter": None, "weights": 0}
    assert [to_json(event) for event in stream.since(1)] == [
        {
            "type": "stored",
            "sequence": 1,
            "namespace": namespace,
            "parent": ALICE.digest().hex(),
            "tokens": [1, 2, 300, 4],
            "blocks": [6, 7],
            "hashes": [one.hex(), two.hex()],
        },
        {"type": "removed", "sequence": 2, "namespace": namespace, "hashes": [two.hex()]},
        {"type": "cleared", "sequence": 3},
    ]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"type": "moved"}, "type must be stored, removed or cleared, not 'moved'"),
        ({"sequence": "1"}, "sequence must be"),
        ({"sequence": True}, "sequence must be"),
        ({"sequence": -1}, "sequence must be"),
        ({"namespace": None}, "namespace must be"),
        ({"namespace": {"tenant": "t", "salt": None, "weights": 0}}, "adapter must be"),
        ({"parent": "00"}, "parent must be hashes of 64 hex digits"),
        ({"parent": "zz" * 32}, "parent must be"),
        ({"hashes": []}, "hashes must name at least one block"),
        ({"hashes": [7]}, "hashes must be"),
        ({"hashes": "ab" * 32}, "hashes must be a list"),
        ({"tokens": [1]}, "1 tokens do not fill 2 blocks"),
        ({"tokens": [1, 2, 3, 2**31]}, "tokens must be int32"),
        ({"tokens": [1, 2, 3, "4"]}, "tokens must be whole numbers"),
        ({"blocks": [1]}, "blocks has 1 ids for 2 hashes"),
    ],
)
def test_json_that_is_no_event_is_refused_with_the_fields_name(
    changes: dict[str, object], complaint: str
) -> None:
    joined = block_hashes(ALICE.digest(), pack([1, 2, 3, 4]), SIZE)
    event = Stored(1, ALICE, ALICE.digest(), pack([1, 2, 3, 4]), (0, 1), joined)
    assert from_json(to_json(event)) == event
    assert len(event.run) // TOKEN_BYTES == len(unpack(event.run)) == 4
    with pytest.raises(ValueError, match=complaint):
        from_json({**to_json(event), **changes})
