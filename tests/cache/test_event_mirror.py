"""A mirror equals the plainest model of what is stored, over random uses."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given, settings
from hypothesis import strategies as st

from radix_engine.cache.event_hub import EventHub
from radix_engine.cache.events import ALL, EventsLost, EventStream, Snapshot
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.snapshot import Entry, snapshot
from radix_engine.cache.token_run import pack
from radix_engine.cache.tree_mirror import TreeMirror
from tests.cache.telling import (
    ALICE,
    BOB,
    PUBLIC,
    SIZE,
    expected_chain,
    follow,
)

# Whose, how many tokens of it are public, and all of its tokens.
Stretch = tuple[Namespace, int, tuple[int, ...]]


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
