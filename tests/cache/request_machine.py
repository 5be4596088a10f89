"""Random use of the cache beside the dictionary of prefixes: what requests do with it."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    multiple,
    precondition,
    rule,
)

from radix_engine.cache import (
    DEFAULT,
    CacheMode,
    Lease,
    Match,
    Namespace,
    OwnershipError,
    PrefixCache,
    Reason,
    Retention,
    pack,
    token_array,
)
from radix_engine.cache.child_order import FEW
from radix_engine.cache.node import Node
from tests.cache.machine_user import User, entries_of, spell
from tests.cache.naive import NaiveTree, Stored, common
from tests.cache.trees import lease_nothing

# A prompt is drawn as letters, one a block.
LETTERS = st.lists(st.sampled_from("aabc"), max_size=6)
NAMESPACES = st.sampled_from(
    [DEFAULT, DEFAULT, Namespace(tenant="t", salt="s"), Namespace(tenant="u")]
)
MODES = st.sampled_from(
    [CacheMode.DEFAULT] * 3 + [CacheMode.READ_ONLY, CacheMode.WRITE_ONLY, CacheMode.BYPASS]
)
EVICTION = st.sampled_from(
    ["lru", "lru", "lru", "lfu", "slru", "fifo", "priority", "agent", "agent"]
)
TTL = 10.0


class RequestMachine(RuleBasedStateMachine):
    users = Bundle("users")
    only: str | None = None  # the one eviction rule to play with; None: all

    @initialize(
        size=st.sampled_from([1, 4, 16]),
        blocks=st.integers(1, 16) | st.just(40),
        ghosts=st.integers(0, 40),
        eviction=EVICTION,
    )
    def start(self, size: int, blocks: int, ghosts: int, eviction: str) -> None:
        self.size = size
        self.time = 0.0
        eviction = self.only or eviction
        self.lru = eviction == "lru"
        self.cache = PrefixCache(
            blocks,
            size,
            lambda: self.time,
            ttl=TTL,
            ghost_blocks=ghosts,
            most_retained=0.5,
            most_retained_each=0.5,
            eviction=eviction,
        )
        self.tree = NaiveTree(size)
        self.others: list[NaiveTree] = []  # flushed and withdrawn ones
        self.marked: list[list[int]] = []
        self.looked_up: list[tuple[list[int], Match, Namespace]] = []
        self.live: list[User] = []
        self.broken: list[User] = []
        self.ended: list[Lease] = []
        self.retentions: list[tuple[Retention, list[Stored]]] = []
        self.repeated = 0

    @property
    def trees(self) -> list[NaiveTree]:
        return [self.tree, *self.others]

    def prompt(self, letters: list[str], more: int) -> list[int]:
        return spell(letters, self.size) + [0] * (more % self.size)

    def public(self, tokens: list[int], namespace: Namespace) -> int:
        """How many tokens of a prompt are public to this namespace."""
        if namespace == DEFAULT:
            return 0
        most = max((common(tokens, path) for path in self.marked), default=0)
        return most - most % self.size

    def evict_as_the_cache_did(self, count: int) -> None:
        """What a rule other than LRU chose is read off the tree, and judged."""
        if self.lru:
            self.tree.evict(count)
        else:
            self.tree.follow_eviction(count, entries_of(self.cache.root, self.size))

    @rule(letters=LETTERS, more=st.integers(0, 15), namespace=NAMESPACES, mode=MODES)
    def look_up(
        self,
        letters: list[str],
        more: int,
        namespace: Namespace,
        mode: CacheMode = CacheMode.DEFAULT,
    ) -> None:
        tokens = self.prompt(letters, more)
        version = self.cache.version
        match = self.cache.match(pack(tokens), namespace, mode)
        if not mode.reads:
            assert (match.num_tokens, match.copy_rows) == (0, 0)
            assert self.cache.explain(match, pack(tokens)).reason is Reason.BYPASSED
            return
        public = self.public(tokens, namespace)
        for earlier, other, space in self.looked_up[-3:]:
            if space == namespace:
                shared = common(earlier, tokens)
                again = self.cache.match(
                    pack(tokens), namespace, mode, near=other, shared_tokens=shared
                )
                assert again == match
        self.looked_up.append((tokens, match, namespace))
        found = self.tree.matched(tokens, namespace, public)
        assert match.num_tokens - match.copy_rows == len(found) * self.size
        assert match.copy_rows == self.tree.rows(tokens, namespace, public)
        if match.copy_rows:
            sources = {entry.block for entry in self.tree.entries.values() if not entry.in_flight}
            assert match.copy_source in sources
        unpinned = sum(not self.tree.entries[prefix].pins for prefix in found)
        assert self.cache.unpinned_blocks(match) == unpinned
        end = self.cache.explain(match, pack(tokens))
        most, whole = max(0, len(tokens) - 1), len(tokens) // self.size * self.size
        if public == len(tokens):
            most -= most % self.size  # public blocks are shared whole
        full = most > 0 and (match.num_tokens >= most or 0 < whole <= match.num_tokens)
        assert (end.reason is Reason.FULL) == full
        assert end.position >= match.num_tokens
        assert self.cache.version == version

    @rule(
        target=users,
        letters=LETTERS,
        more=st.integers(0, 15),
        namespace=NAMESPACES,
        mode=st.sampled_from([CacheMode.DEFAULT, CacheMode.READ_ONLY]),
        priority=st.integers(0, 2),
    )
    def lease(
        self,
        letters: list[str],
        more: int,
        namespace: Namespace,
        mode: CacheMode = CacheMode.DEFAULT,
        priority: int = 0,
    ) -> User:
        """The cache itself stores for whoever asks it to: what is read-only says the scheduler."""
        tokens = self.prompt(letters, more)
        public = self.public(tokens, namespace)
        match = self.cache.match(pack(tokens), namespace, mode)
        self.cache.account(match, pack(tokens))
        lease = self.cache.lease(match, priority)
        user = User(tokens, namespace, public, lease, self.tree)
        found = self.tree.matched(tokens, namespace, public)
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

    @precondition(lambda self: self.cache.pool.num_blocks >= 40)
    @rule(letters=st.lists(st.sampled_from("ab"), max_size=2), namespace=NAMESPACES)
    def branch_out(self, letters: list[str], namespace: Namespace) -> None:
        """So many branches of one head that they are found by their order."""
        for branch in range(FEW + 2):
            self.serve_to_the_end([*letters, str(branch)], namespace, [])
        for letter in "abc":
            self.serve_to_the_end([*letters, letter], namespace, [])
            self.look_up([*letters, "b" if letter == "a" else "a"], 1, namespace)

    @rule(target=users, letters=LETTERS, namespace=NAMESPACES)
    def lease_nothing(self, letters: list[str], namespace: Namespace) -> User:
        tokens = spell(letters, self.size)
        user = User(tokens, namespace, 0, lease_nothing(self.cache, namespace), self.tree)
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
            self.evict_as_the_cache_did(max(0, count - free))
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
        new = user.prefixes(end)[start // self.size :]
        assert list(table) == user.tree.publish(new, given)
        self.note_growth_of_spared_nodes(user)
        user.private = user.private[len(table) :]
        assert user.lease.num_tokens == start + len(table) * self.size

    def take_back(self, user: User) -> None:
        """What the user announced leaves the tree; others on it are broken."""
        gone = user.announced
        if not gone:
            return
        tree, user.announced = user.tree, []
        tree.pin(gone, -1)
        apart = NaiveTree(self.size)
        below = tree.from_on(gone[0])
        for prefix in below:
            entry = tree.entries.pop(prefix)
            if entry.pins:
                apart.entries[prefix] = entry
        if not apart.entries:
            return
        self.others.append(apart)
        for other in self.live:
            held = other.prefixes(other.lease.num_tokens)
            if other is not user and other.tree is tree and gone[0] in held:
                assert self.cache.is_broken(other.lease)
                tree.pin([prefix for prefix in held if prefix in tree.entries], -1)
                other.tree = apart
                if other not in self.broken:
                    self.broken.append(other)

    @rule(user=users, count=st.integers(1, 3))
    def free(self, user: User, count: int) -> None:
        keep = max(0, len(user.private) - count)
        self.cache.free(user.private[keep:])
        user.private = user.private[:keep]

    @rule(user=users)
    def note_tool_call(self, user: User) -> None:
        self.cache.note_tool_call(user.lease)  # changes nothing but a rule's order

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

    def note_growth_of_spared_nodes(self, user: User) -> None:
        """What makes a spared node longer is spared with it."""
        node: Node | None = user.lease.node
        while node is not None:
            end = node.start + len(node.blocks) * self.size
            if node.spared:
                for prefix in user.prefixes(end):
                    if len(prefix[1]) > node.start:
                        user.tree.entries[prefix].spared = True
            node = node.parent
