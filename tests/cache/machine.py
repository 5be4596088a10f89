"""Random use of the cache beside the dictionary of prefixes, as a state machine for hypothesis."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from radix_engine.cache import (
    DEFAULT,
    Lease,
    Namespace,
    OwnershipError,
    PrefixCache,
    Reason,
    Retention,
    RetentionRefused,
    pack,
    token_array,
    unpack,
)
from radix_engine.cache.node import Node
from tests.cache.naive import NaiveTree, Prefix, Stored
from tests.cache.trees import (
    assert_sound,
    lease_nothing,
)

# A prompt is drawn as letters, one a block, so that prompts collide at any block size. The blocks
# of "a" and "b" differ only in their last token, those of "c" in the first.
LETTERS = st.lists(st.sampled_from("aabc"), max_size=6)
NAMESPACES = st.sampled_from([DEFAULT, DEFAULT, Namespace(tenant="t", salt="s")])
TTL = 10.0


def spell(letters: list[str], size: int) -> list[int]:
    blocks = {"a": [0] * size, "b": [0] * (size - 1) + [1], "c": [2] + [0] * (size - 1)}
    return [token for letter in letters for token in blocks[letter]]


class User:
    """A request as the cache sees it: its tokens, its lease and its private blocks."""

    def __init__(
        self, tokens: list[int], namespace: Namespace, lease: Lease, tree: NaiveTree
    ) -> None:
        self.tokens = tokens
        self.namespace = namespace
        self.lease = lease
        self.tree = tree
        self.private: array[int] = token_array()
        self.announced: list[Prefix] = []

    @property
    def leased(self) -> list[Prefix]:
        """What it pins; of a broken lease only what was withdrawn."""
        prefixes = self.tree.prefixes(self.tokens[: self.lease.num_tokens], self.namespace)
        return [prefix for prefix in prefixes if prefix in self.tree.entries]

    def grow(self, end: int, letters: list[str], size: int) -> None:
        """Generate what is missing up to token ``end``."""
        if len(self.tokens) < end:
            fill = spell([*letters, *"aaaaaa"], size)
            self.tokens = [*self.tokens, *fill][: max(end, len(self.tokens))]


class CacheMachine(RuleBasedStateMachine):
    users = Bundle("users")
    operations = 0

    @initialize(
        size=st.sampled_from([1, 4, 16]), blocks=st.integers(1, 16), ghosts=st.integers(0, 40)
    )
    def start(self, size: int, blocks: int, ghosts: int) -> None:
        self.size = size
        self.time = 0.0
        self.cache = PrefixCache(
            blocks, size, lambda: self.time, ttl=TTL, ghost_blocks=ghosts, most_retained=0.5
        )
        self.tree = NaiveTree(size)
        self.others: list[NaiveTree] = []  # flushed and withdrawn ones
        self.live: list[User] = []
        self.broken: list[User] = []
        self.ended: list[Lease] = []
        self.retentions: list[tuple[Retention, list[Stored]]] = []
        self.repeated = 0

    def prompt(self, letters: list[str], more: int) -> list[int]:
        return spell(letters, self.size) + [0] * (more % self.size)

    @rule(letters=LETTERS, more=st.integers(0, 15), namespace=NAMESPACES)
    def look_up(self, letters: list[str], more: int, namespace: Namespace) -> None:
        tokens = self.prompt(letters, more)
        version = self.cache.version
        match = self.cache.match(pack(tokens), namespace)
        found = self.tree.matched(tokens, namespace)
        assert match.num_tokens - match.copy_rows == len(found) * self.size
        assert match.copy_rows == self.tree.rows(tokens, namespace)
        if match.copy_rows:
            sources = {entry.block for entry in self.tree.entries.values() if not entry.in_flight}
            assert match.copy_source in sources
        unpinned = sum(not self.tree.entries[prefix].pins for prefix in found)
        assert self.cache.unpinned_blocks(match) == unpinned
        end = self.cache.explain(match, pack(tokens))
        whole = max(0, len(tokens) - 1) // self.size * self.size
        assert (end.reason is Reason.FULL) == (0 < whole <= match.num_tokens)
        assert end.position >= match.num_tokens
        assert self.cache.version == version

    @rule(target=users, letters=LETTERS, more=st.integers(0, 15), namespace=NAMESPACES)
    def lease(self, letters: list[str], more: int, namespace: Namespace) -> User:
        tokens = self.prompt(letters, more)
        match = self.cache.match(pack(tokens), namespace)
        self.cache.account(match, pack(tokens))
        lease = self.cache.lease(match)
        user = User(tokens, namespace, lease, self.tree)
        found = self.tree.matched(tokens, namespace)
        assert lease.num_tokens == len(found) * self.size
        self.tree.pin(found, 1)
        self.live.append(user)
        return user

    def began(self, letters: list[str], more: int, namespace: Namespace, count: int) -> User | None:
        """A request with room for ``count`` blocks, if there are so many."""
        user: User = self.lease(letters, more, namespace)  # type: ignore[assignment]
        self.allocate(user, count)
        if len(user.private) == count:
            return user
        self.release(user)
        return None

    @rule(
        target=users,
        letters=LETTERS.filter(bool),
        more=st.integers(0, 15),
        namespace=NAMESPACES,
        answer=LETTERS,
    )
    def serve(
        self, letters: list[str], more: int, namespace: Namespace, answer: list[str]
    ) -> object:
        """A request that stores its prompt, and some of its answer, and goes on."""
        user = self.began(letters, more, namespace, len(letters))
        if user is None:
            return multiple()
        self.publish(user, len(letters), answer)
        return user

    @rule(letters=LETTERS.filter(bool), namespace=NAMESPACES, answer=LETTERS)
    def serve_to_the_end(self, letters: list[str], namespace: Namespace, answer: list[str]) -> None:
        user = self.began(letters, 1, namespace, len(letters))
        if user is not None:
            self.publish(user, len(letters), answer)
            self.release(user)

    @rule(
        target=users,
        letters=LETTERS.filter(bool),
        namespace=NAMESPACES,
        answer=LETTERS,
        count=st.integers(1, 4),
    )
    def start_a_step(
        self, letters: list[str], namespace: Namespace, answer: list[str], count: int
    ) -> object:
        """A request that announces what the coming step will compute for it."""
        user = self.began(letters, 1, namespace, count)
        if user is None:
            return multiple()
        self.announce(user, count, answer)
        return user

    @rule(target=users, letters=LETTERS, namespace=NAMESPACES)
    def lease_nothing(self, letters: list[str], namespace: Namespace) -> User:
        tokens = spell(letters, self.size)
        user = User(tokens, namespace, lease_nothing(self.cache, namespace), self.tree)
        self.live.append(user)
        return user

    @rule(user=users, count=st.integers(0, 6))
    def allocate(self, user: User, count: int) -> None:
        free = self.cache.pool.free_blocks
        possible = count <= free + self.tree.evictable()
        blocks = self.cache.allocate(count)
        assert (blocks is not None) == possible
        if blocks is not None:
            assert len(blocks) == count
            self.tree.evict(max(0, count - free))
            user.private.extend(blocks)

    @rule(user=users, count=st.integers(1, 6), letters=LETTERS)
    def publish(self, user: User, count: int, letters: list[str]) -> None:
        if user in self.broken or user.announced:
            return
        start = user.lease.num_tokens
        count = min(count, len(user.private))
        end = start + count * self.size
        user.grow(end, letters, self.size)
        given = user.private[:count]
        if any(user.tree.entries[prefix].in_flight for prefix in user.leased):
            with pytest.raises(OwnershipError):
                self.cache.publish(user.lease, pack(user.tokens[start:end]), given)
            return
        table = self.cache.publish(user.lease, pack(user.tokens[start:end]), given)
        new = user.tree.prefixes(user.tokens[:end], user.namespace)[start // self.size :]
        assert list(table) == user.tree.publish(new, given)
        user.private = user.private[len(table) :]
        assert user.lease.num_tokens == start + len(table) * self.size

    @rule(user=users, count=st.integers(1, 4), letters=LETTERS)
    def announce(self, user: User, count: int, letters: list[str]) -> None:
        count = min(count, len(user.private))
        if user in self.broken or not count:
            return
        start = user.lease.num_tokens
        end = start + count * self.size
        user.grow(end, letters, self.size)
        new = user.tree.prefixes(user.tokens[:end], user.namespace)[start // self.size :]
        given = user.private[:count]
        done = self.cache.announce(user.lease, pack(user.tokens[start:end]), given)
        assert done == (user.tree is self.tree and new[0] not in self.tree.entries)
        if done:
            assert user.tree.publish(new, given, in_flight=True) == list(given)
            user.announced += new
            user.private = user.private[count:]
            assert user.lease.num_tokens == end

    @rule(user=users)
    def commit(self, user: User) -> None:
        if user in self.broken:
            return
        others = [prefix for prefix in user.leased if prefix not in user.announced]
        if user.announced and any(user.tree.entries[prefix].in_flight for prefix in others):
            with pytest.raises(OwnershipError):
                self.cache.commit(user.lease)
            return
        self.cache.commit(user.lease)
        for prefix in user.announced:
            user.tree.entries[prefix].in_flight = False
        user.announced = []

    @rule(user=users)
    def withdraw(self, user: User) -> None:
        if user in self.broken:
            return
        self.cache.withdraw(user.lease)
        self.take_back(user)

    def take_back(self, user: User) -> None:
        """What the user announced leaves the tree; others on it are broken."""
        gone = user.announced
        if not gone:
            return
        tree, user.announced = user.tree, []
        tree.pin(gone, -1)
        cut = gone[0]
        below = [
            prefix
            for prefix in tree.entries
            if prefix[0] == cut[0] and prefix[1][: len(cut[1])] == cut[1]
        ]
        apart = NaiveTree(self.size)
        for prefix in below:
            entry = tree.entries.pop(prefix)
            if entry.pins:
                apart.entries[prefix] = entry
        if not apart.entries:
            return
        self.others.append(apart)
        for other in self.live:
            run = tuple(other.tokens[: other.lease.num_tokens])
            if other is user or other.tree is not tree or other.namespace != cut[0]:
                continue
            if run[: len(cut[1])] == cut[1]:
                assert self.cache.is_broken(other.lease)
                tree.pin([p for p in tree.prefixes(run, cut[0]) if p in tree.entries], -1)
                other.tree = apart
                if other not in self.broken:
                    self.broken.append(other)

    @precondition(lambda self: self.cache.pool.tree_blocks)
    @rule(user=users, letters=LETTERS.filter(bool), data=st.data())
    def publish_what_is_not_private(
        self, user: User, letters: list[str], data: st.DataObject
    ) -> None:
        if self.cache.pool.in_flight_blocks:
            return
        taken = [entry.block for tree in self.trees for entry in tree.entries.values()]
        mine = list(user.private[: len(letters) - 1])
        at = data.draw(st.integers(0, len(mine)))
        blocks = token_array([*mine[:at], data.draw(st.sampled_from(taken)), *mine[at:]])
        run = pack(spell((letters * 6)[: len(blocks)], self.size))
        try:
            self.cache.publish(user.lease, run, blocks)
        except OwnershipError:
            return  # and the invariants find nothing changed
        raise AssertionError("the tree took a block that it owned already")

    @rule(user=users, count=st.integers(1, 3))
    def free(self, user: User, count: int) -> None:
        keep = max(0, len(user.private) - count)
        self.cache.free(user.private[keep:])
        user.private = user.private[:keep]

    @rule(user=consumes(users))
    def release(self, user: User) -> None:
        self.cache.free(user.private)
        user.private = token_array()
        self.cache.release(user.lease)  # which withdraws what it announced
        self.take_back(user)
        leased = user.leased
        user.tree.pin(leased, -1)
        if user.tree is not self.tree:
            user.tree.drop_unpinned()
        elif leased:
            user.tree.use(leased, self.time)
        self.live.remove(user)
        self.ended.append(user.lease)

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def release_again(self, data: st.DataObject) -> None:
        self.cache.release(data.draw(st.sampled_from(self.ended)))
        self.repeated += 1

    @rule(count=st.integers(0, 8))
    def evict(self, count: int) -> None:
        expected = min(count, self.tree.evictable())
        assert self.cache.evict(count) == expected
        self.tree.evict(count)

    @rule(seconds=st.sampled_from([1.0, 4.0, 11.0]))
    def expire(self, seconds: float) -> None:
        self.time += seconds
        for retention, entries in self.retentions:
            if retention.until is not None and retention.until <= self.time:
                self.unretain(entries)
        self.retentions = [
            held for held in self.retentions if held[0].until is None or held[0].until > self.time
        ]
        assert self.cache.expire() == self.tree.expire(self.time - TTL)

    @rule(letters=LETTERS.filter(bool), namespace=NAMESPACES, long=st.booleans())
    def retain(self, letters: list[str], namespace: Namespace, long: bool) -> None:
        tokens = spell(letters, self.size)
        found = self.tree.matched([*tokens, 0], namespace)
        held = {prefix for prefix, entry in self.tree.entries.items() if entry.retained}
        fits = len(held | set(found)) <= self.cache.pool.num_blocks // 2
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

    @rule(target=users)
    def flush(self) -> object:
        if self.cache.pool.in_flight_blocks:
            return multiple()  # only between steps
        freed = self.tree.evictable()
        assert self.cache.flush() == freed
        self.tree.drop_unpinned()
        for entry in self.tree.entries.values():
            entry.retained = 0
        self.retentions = []
        self.others.append(self.tree)
        self.tree = NaiveTree(self.size)
        return multiple()

    @property
    def trees(self) -> list[NaiveTree]:
        return [self.tree, *self.others]

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
        assert sorted(detached) == sorted(values for values in apart if values)
        assert self.cache.evictable_blocks == self.tree.evictable()

    @invariant()
    def every_lease_reads_its_own_blocks(self) -> None:
        for user in self.live:
            expected = [user.tree.entries[prefix].block for prefix in user.leased]
            assert list(user.lease.blocks()) == expected


Values = tuple[int, int, bool, int]


def values_of(entry: Stored) -> Values:
    return entry.block, entry.pins, entry.in_flight, entry.retained


def entries_of(root: Node, size: int) -> dict[Prefix, Values]:
    """Each stored prefix of whole blocks, with its block, its pins, whether it is in flight, and
    by how many it is retained. What was withdrawn lacks the tokens before it."""
    entries: dict[Prefix, Values] = {}
    todo: list[tuple[Node, Namespace, list[int]]] = [(root, DEFAULT, [])]
    while todo:
        node, namespace, before = todo.pop()
        namespace = node.namespace or namespace
        tokens = before + unpack(bytes(node.run))
        for index, block in enumerate(node.blocks, start=1):
            in_flight = index > len(node.blocks) - node.in_flight
            prefix = namespace, tuple(tokens[: len(before) + index * size])
            entries[prefix] = block, node.pins, in_flight, node.retained
        todo.extend((child, namespace, tokens) for child in node.children.values())
    return entries
