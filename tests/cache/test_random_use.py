"""Any sequence of operations leaves the cache sound and equal to the dictionary of prefixes."""

from __future__ import annotations

from array import array

from hypothesis import settings
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

from radix_engine.cache import Lease, OwnershipError, PrefixCache, pack, token_array, unpack
from radix_engine.cache.node import Node
from tests.cache.naive import NaiveTree, Prefix
from tests.cache.trees import assert_sound

# A prompt is drawn as letters, one a block, so that prompts collide at any block size. The blocks
# of "a" and "b" differ only in their last token, those of "c" in the first.
LETTERS = st.lists(st.sampled_from("aabc"), max_size=6)


def spell(letters: list[str], size: int) -> list[int]:
    blocks = {"a": [0] * size, "b": [0] * (size - 1) + [1], "c": [2] + [0] * (size - 1)}
    return [token for letter in letters for token in blocks[letter]]


class User:
    """A request as the cache sees it: its tokens, its lease and its private blocks."""

    def __init__(self, tokens: list[int], lease: Lease, tree: NaiveTree) -> None:
        self.tokens = tokens
        self.lease = lease
        self.tree = tree
        self.private: array[int] = token_array()

    @property
    def leased(self) -> list[Prefix]:
        return self.tree.prefixes(self.tokens[: self.lease.num_tokens])


class CacheMachine(RuleBasedStateMachine):
    users = Bundle("users")

    @initialize(size=st.sampled_from([1, 4, 16]), blocks=st.integers(1, 16))
    def start(self, size: int, blocks: int) -> None:
        self.size = size
        self.cache = PrefixCache(blocks, size)
        self.tree = NaiveTree(size)
        self.flushed: list[NaiveTree] = []
        self.live: list[User] = []
        self.ended: list[Lease] = []
        self.repeated = 0

    @rule(letters=LETTERS, more=st.integers(0, 15))
    def look_up(self, letters: list[str], more: int) -> None:
        tokens = spell(letters, self.size) + [0] * (more % self.size)
        version = self.cache.version
        match = self.cache.match(pack(tokens))
        found = self.tree.matched(tokens)
        assert match.num_tokens == len(found) * self.size
        unpinned = sum(not self.tree.entries[prefix].pins for prefix in found)
        assert self.cache.unpinned_blocks(match) == unpinned
        assert self.cache.version == version

    @rule(target=users, letters=LETTERS, more=st.integers(0, 15))
    def lease(self, letters: list[str], more: int) -> User:
        tokens = spell(letters, self.size) + [0] * (more % self.size)
        lease = self.cache.lease(self.cache.match(pack(tokens)))
        user = User(tokens, lease, self.tree)
        found = self.tree.matched(tokens)
        assert lease.num_tokens == len(found) * self.size
        assert user.leased == found
        self.tree.pin(found, 1)
        self.tree.use(found)
        self.live.append(user)
        return user

    @rule(target=users, letters=LETTERS)
    def lease_nothing(self, letters: list[str]) -> User:
        user = User(spell(letters, self.size), self.cache.lease_nothing(), self.tree)
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
        start = user.lease.num_tokens
        count = min(count, len(user.private))
        end = start + count * self.size
        if len(user.tokens) < end:  # generate the rest
            fill = spell([*letters, *"aaaaaa"], self.size)
            user.tokens = [*user.tokens, *fill][: max(end, len(user.tokens))]
        given, user.private = user.private[:count], user.private[count:]
        table = self.cache.publish(user.lease, pack(user.tokens[start:end]), given)
        if count:
            assert list(table) == user.tree.publish(user.tokens[:end], start, given)
        assert user.lease.num_tokens == end

    @precondition(lambda self: self.cache.pool.tree_blocks)
    @rule(user=users, letters=LETTERS.filter(bool), data=st.data())
    def publish_what_is_not_private(
        self, user: User, letters: list[str], data: st.DataObject
    ) -> None:
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
        leased = user.leased
        self.cache.release(user.lease)
        user.tree.pin(leased, -1)
        if user.tree is self.tree:
            user.tree.use(leased)
        else:
            user.tree.drop_unpinned()
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

    @rule(target=users)
    def flush(self) -> object:
        freed = self.tree.evictable()
        assert self.cache.flush() == freed
        self.tree.drop_unpinned()
        self.flushed.append(self.tree)
        self.tree = NaiveTree(self.size)
        return multiple()

    @property
    def trees(self) -> list[NaiveTree]:
        return [self.tree, *self.flushed]

    @invariant()
    def sound(self) -> None:
        private = [user.private for user in self.live]
        assert_sound(self.cache, [user.lease for user in self.live], private)
        assert self.cache.counters.repeated_releases == self.repeated

    @invariant()
    def equal_to_the_dictionary_of_prefixes(self) -> None:
        assert entries_of(self.cache.root, self.size) == described(self.tree)
        flushed = [described(tree) for tree in self.flushed if tree.entries]
        detached = [entries_of(root, self.size) for root in self.cache.detached]
        assert len(detached) == len(flushed)
        assert all(tree in flushed for tree in detached)
        assert self.cache.evictable_blocks == self.tree.evictable()

    @invariant()
    def every_lease_reads_its_own_blocks(self) -> None:
        for user in self.live:
            expected = [user.tree.entries[prefix].block for prefix in user.leased]
            assert list(user.lease.blocks()) == expected


def described(tree: NaiveTree) -> dict[Prefix, tuple[int, int]]:
    return {prefix: (entry.block, entry.pins) for prefix, entry in tree.entries.items()}


def entries_of(root: Node, size: int) -> dict[Prefix, tuple[int, int]]:
    """Each stored prefix of whole blocks, with its block and its pins."""
    entries: dict[Prefix, tuple[int, int]] = {}
    todo: list[tuple[Node, list[int]]] = [(root, [])]
    while todo:
        node, before = todo.pop()
        tokens = before + unpack(node.run)
        for index, block in enumerate(node.blocks, start=1):
            entries[tuple(tokens[: len(before) + index * size])] = (block, node.pins)
        todo.extend((child, tokens) for child in node.children.values())
    return entries


TestRandomUse = CacheMachine.TestCase
TestRandomUse.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, derandomize=True
)
