"""Random use of the cache beside the dictionary of prefixes, as a state machine for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from radix_engine.cache import Namespace, RetentionRefused, pack
from tests.cache.flight_machine import FlightMachine
from tests.cache.machine_user import entries_of, path_tokens, spell, values_of
from tests.cache.naive import NaiveTree, Prefix, Stored, common
from tests.cache.request_machine import LETTERS, NAMESPACES, TTL
from tests.cache.trees import assert_sound


class CacheMachine(FlightMachine):
    """With what is done to the whole tree, and what must hold after every operation."""

    operations = 0

    @rule(count=st.integers(0, 8))
    def evict(self, count: int) -> None:
        expected = min(count, self.tree.evictable())
        assert self.cache.evict(count) == expected
        self.evict_as_the_cache_did(expected)

    @precondition(lambda self: self.tree.entries)
    @rule(
        picked=st.lists(st.integers(0, 63), max_size=3), stale=st.sampled_from([False] * 4 + [True])
    )
    def spare(self, picked: list[int], stale: bool) -> None:
        """The end of each match is spared to the end of its node, which only the tree knows."""
        stored = list(self.tree.entries)
        matches = []
        spared: list[Prefix] = []
        for index in picked:
            (namespace, _), run = stored[index % len(stored)]
            tokens = [*run, 0]
            match = self.cache.match(pack(tokens), namespace)
            node = match.node
            while node.parent is not None and node.in_flight == len(node.blocks):
                node = node.parent
            end = node.start + len(node.blocks) * self.size
            known = path_tokens(node)[:end] if node.parent is not None else []
            assert common(known, tokens) >= min(len(known), match.num_tokens - match.copy_rows)
            top = node
            while top.namespace is None and top.parent is not None:
                top = top.parent
            if top.namespace is not None:  # whose node it is: others' reaches beyond what is public
                spared += self.tree.prefixes(known, top.namespace, top.start)
            matches.append(match)
        if stale:
            self.cache._tree.version += 1
            spared = []
        self.cache.spare(matches)
        self.tree.spare(spared)

    @rule(seconds=st.sampled_from([1.0, 4.0, 11.0]))
    def expire(self, seconds: float) -> None:
        self.time += seconds
        for retention, entries in self.retentions:
            if retention.until is not None and retention.until <= self.time:
                self.unretain(entries)
        self.retentions = [
            held for held in self.retentions if held[0].until is None or held[0].until > self.time
        ]
        freed = 0
        while count := self.cache.expire():  # each call is a bounded piece of work
            freed += count
        assert freed == self.tree.expire(self.time - TTL)

    @rule(letters=LETTERS.filter(bool), namespace=NAMESPACES, long=st.booleans())
    def retain(self, letters: list[str], namespace: Namespace, long: bool) -> None:
        tokens = spell(letters, self.size)
        public = self.public(tokens, namespace)
        found = self.tree.matched([*tokens, 0], namespace, public)
        held = {prefix for prefix, entry in self.tree.entries.items() if entry.retained}
        most = self.cache.pool.num_blocks // 2
        number = sum(not retention.ended for retention, _ in self.retentions)
        assert len(self.cache.retentions) == number
        fits = len(held | set(found)) <= most and number < most
        if any(self.tree.entries[prefix].in_flight for prefix in found):
            return
        try:
            retention = self.cache.retain(pack(tokens), None if long else 8.0, namespace)
        except RetentionRefused:
            assert not found or not fits
            return
        assert fits
        assert found
        entries = [self.tree.entries[prefix] for prefix in found]
        for entry in entries:
            entry.retained += 1
        self.retentions.append((retention, entries))

    def unretain(self, entries: list[Stored]) -> None:
        for entry in entries:  # some may have been evicted and stored anew, unretained, since
            entry.retained -= 1

    @precondition(lambda self: self.retentions)
    @rule(data=st.data())
    def release_retention(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.retentions) - 1))
        retention, entries = self.retentions.pop(index)
        self.cache.release_retention(retention)
        self.cache.release_retention(retention)
        self.unretain(entries)

    @rule()
    def flush(self) -> None:
        freed = self.tree.evictable()
        assert self.cache.flush() == freed
        self.tree.drop_unpinned()
        for entry in self.tree.entries.values():
            entry.retained = 0
        self.tree.spare([])
        self.retentions = []
        self.others.append(self.tree)
        self.tree = NaiveTree(self.size)

    @rule(letters=st.lists(st.sampled_from("ab"), min_size=1, max_size=3), namespace=NAMESPACES)
    def mark_public(self, letters: list[str], namespace: Namespace) -> None:
        path = spell(letters, self.size)
        self.cache.mark_public(pack(path), namespace)
        if path not in self.marked:
            self.marked.append(path)
        for letter in "ab":
            self.look_up([*letters, letter], 1, Namespace(tenant="u"))

    @precondition(lambda self: self.marked)
    @rule(data=st.data())
    def unmark_public(self, data: st.DataObject) -> None:
        path = self.marked.pop(data.draw(st.integers(0, len(self.marked) - 1)))
        assert self.cache.unmark_public(pack(path))

    @invariant()
    def sound(self) -> None:
        CacheMachine.operations += 1
        private = [user.private for user in self.live]
        assert_sound(self.cache, [user.lease for user in self.live], private)
        assert self.cache.counters.repeated_releases == self.repeated

    @invariant()
    def equal_to_the_dictionary_of_prefixes(self) -> None:
        expected = {prefix: values_of(entry) for prefix, entry in self.tree.entries.items()}
        assert entries_of(self.cache.root, self.size) == expected
        apart = [sorted(map(values_of, tree.entries.values())) for tree in self.others]
        detached = [sorted(entries_of(root, self.size).values()) for root in self.cache.detached]
        assert sorted(filter(None, detached)) == sorted(filter(None, apart))
        assert self.cache.evictable_blocks == self.tree.evictable()

    @invariant()
    def every_lease_reads_its_own_blocks(self) -> None:
        for user in self.live:
            expected = [user.tree.entries[prefix].block for prefix in user.leased]
            assert list(user.lease.blocks()) == expected
