"""Any sequence of operations leaves the flat index sound and equal to the plain one."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from radix_engine.cache.block_pool import OwnershipError
from radix_engine.cache.flat import FlatCache, FlatLease, FlatMatch
from radix_engine.cache.interface import StaleMatch
from radix_engine.cache.mode import CacheMode
from radix_engine.cache.namespace import DEFAULT, Namespace
from radix_engine.cache.reason import Reason
from radix_engine.cache.token_run import pack, token_array
from tests.cache.flat.naive_flat import NaiveFlat, Owner
from tests.cache.flat.use import Clock

# A prompt is drawn as letters, one a block, so that prompts collide at any block size. The blocks
# of "a" and "b" differ only in their last token, those of "c" in the first.
LETTERS = st.lists(st.sampled_from("aaabc"), max_size=6)
NAMESPACES = st.sampled_from([DEFAULT, DEFAULT, Namespace(tenant="other")])
TTL = 5.0


def spell(letters: list[str], size: int) -> list[int]:
    blocks = {"a": [0] * size, "b": [0] * (size - 1) + [1], "c": [2] + [0] * (size - 1)}
    return [token for letter in letters for token in blocks[letter]]


class User:
    """A request as the index sees it: its tokens, its lease and its private blocks."""

    def __init__(self, tokens: list[int], lease: FlatLease, owner: Owner) -> None:
        self.tokens = tokens
        self.lease = lease
        self.owner = owner
        self.private: array[int] = token_array()


class FlatMachine(RuleBasedStateMachine):
    users = Bundle("users")

    @initialize(
        size=st.sampled_from([1, 4, 16]),
        blocks=st.integers(2, 16),
        hash_name=st.sampled_from(["sha256", "xxh3_128"]),
    )
    def start(self, size: int, blocks: int, hash_name: str) -> None:
        self.size = size
        self.clock = Clock()
        self.cache = FlatCache(blocks, size, self.clock, ttl=TTL, hash_name=hash_name)  # type: ignore[arg-type]
        self.naive = NaiveFlat(size)
        self.live: list[User] = []
        self.ended: list[FlatLease] = []
        self.kept: tuple[list[int], Namespace, FlatMatch] | None = None

    @rule(letters=LETTERS, more=st.integers(0, 15), namespace=NAMESPACES)
    def look_up(self, letters: list[str], more: int, namespace: Namespace) -> None:
        tokens = spell(letters, self.size) + [0] * (more % self.size)
        match = self.cache.match(pack(tokens), namespace)
        found = self.naive.matched(namespace, tokens)
        assert list(match.blocks) == [held.block for held in found]
        assert match.num_tokens == len(found) * self.size
        assert self.cache.unpinned_blocks(match) == sum(not held.pins for held in found)
        full = 0 < max(0, len(tokens) - 1) // self.size == len(found)
        reason = Reason.FULL if full else Reason.UNKNOWN
        assert self.cache.account(match, pack(tokens)) == (reason, match.num_tokens, None, 0, 0)
        self.kept = tokens, namespace, match

    @rule(
        target=users,
        letters=LETTERS,
        more=st.integers(0, 15),
        namespace=NAMESPACES,
        mode=st.sampled_from([CacheMode.DEFAULT] * 4 + [CacheMode.WRITE_ONLY, CacheMode.BYPASS]),
    )
    def lease(self, letters: list[str], more: int, namespace: Namespace, mode: CacheMode) -> User:
        return self._begin(spell(letters, self.size) + [0] * (more % self.size), namespace, mode)

    @precondition(lambda self: self.kept is not None)
    @rule(target=users)
    def lease_an_older_match(self) -> User:
        assert self.kept is not None
        tokens, namespace, match = self.kept
        if match.version != self.cache.version:
            with pytest.raises(StaleMatch):
                self.cache.lease(match)
            match = self.cache.match(pack(tokens), namespace)
        found = self.naive.matched(namespace, tokens)
        user = User(tokens, self.cache.lease(match), self.naive.lease(namespace, found))
        self.live.append(user)
        return user

    @rule(user=users, count=st.integers(0, 6))
    def allocate(self, user: User, count: int) -> None:
        free = self.cache.pool.free_blocks
        possible = count <= free + len(self.naive.queue)
        blocks = self.cache.allocate(count)
        assert (blocks is not None) == possible
        if blocks is not None:
            assert len(blocks) == count
            self.naive.evict(max(0, count - free))
            user.private.extend(blocks)

    @rule(user=users, count=st.integers(1, 6), letters=LETTERS)
    def publish(self, user: User, count: int, letters: list[str]) -> None:
        tokens, given = self._next(user, count, letters)
        run = pack(tokens[user.lease.num_tokens :])
        if user.owner.broken or user.owner.announced:
            with pytest.raises(OwnershipError):
                self.cache.publish(user.lease, run, given)
            return
        table = self.cache.publish(user.lease, run, given)
        del user.private[: len(table)]
        assert list(table) == self.naive.publish(user.owner, tokens, given)

    @rule(user=users, count=st.integers(1, 6), letters=LETTERS)
    def announce(self, user: User, count: int, letters: list[str]) -> None:
        tokens, given = self._next(user, count, letters)
        run = pack(tokens[user.lease.num_tokens :])
        if user.owner.broken:
            with pytest.raises(OwnershipError):
                self.cache.announce(user.lease, run, given)
            return
        expected = self.naive.announce(user.owner, tokens, given)
        assert self.cache.announce(user.lease, run, given) == expected
        if expected:
            del user.private[: len(given)]

    @rule(
        target=users,
        letters=LETTERS.filter(bool),
        more=LETTERS,
        namespace=NAMESPACES,
        computed=st.booleans(),
    )
    def share_a_step(
        self, letters: list[str], more: list[str], namespace: Namespace, computed: bool
    ) -> MultipleResults[User]:
        """A request announces its prompt, and another goes on from there in the same step."""
        first = self._begin(spell(letters, self.size), namespace)
        self.announce(first, len(letters) - len(first.owner.held), [])
        second = self._begin(spell([*letters, *more, "b"], self.size), namespace)
        self.announce(second, len(letters) + len(more) - len(second.owner.held), [])
        if computed:
            self.commit(first)
        else:
            self.withdraw(first)
        return multiple(first, second)

    @rule(letters=LETTERS.filter(bool), namespace=NAMESPACES)
    def come_and_go(self, letters: list[str], namespace: Namespace) -> None:
        """A request with nobody beside it."""
        user = self._begin(spell(letters, self.size), namespace)
        if not user.owner.broken:
            self.publish(user, len(letters) - len(user.owner.held), [])
        self.release(user)

    @rule(user=users)
    def commit(self, user: User) -> None:
        if user.owner.broken and user.owner.announced:
            with pytest.raises(OwnershipError):
                self.cache.commit(user.lease)
            return
        self.cache.commit(user.lease)
        self.naive.commit(user.owner)

    @rule(user=users)
    def withdraw(self, user: User) -> None:
        self.cache.withdraw(user.lease)
        self.naive.withdraw(user.owner)

    @rule(user=users, letters=LETTERS.filter(bool), data=st.data())
    def store_what_is_not_private(
        self, user: User, letters: list[str], data: st.DataObject
    ) -> None:
        pool = self.cache.pool
        others = set(range(pool.num_blocks)) - set(user.private)
        taken = [block for block in others if not any(block in u.private for u in self.live)]
        if not taken or pool.in_flight_blocks:  # what is not to be stored yet is not looked at
            return
        mine = list(user.private[: len(letters) - 1])
        at = data.draw(st.integers(0, len(mine)))
        blocks = token_array([*mine[:at], data.draw(st.sampled_from(taken)), *mine[at:]])
        run = pack(spell((letters * 6)[: len(blocks)], self.size))
        with pytest.raises(OwnershipError):  # and the invariants find nothing changed
            self.cache.publish(user.lease, run, blocks)

    @rule(user=users, count=st.integers(1, 3))
    def free(self, user: User, count: int) -> None:
        keep = max(0, len(user.private) - count)
        self.cache.free(user.private[keep:])
        user.private = user.private[:keep]

    @rule(user=consumes(users))
    def release(self, user: User) -> None:
        self.cache.free(user.private)
        self.cache.release(user.lease)
        self.naive.release(user.owner, self.clock.now)
        self.live.remove(user)
        self.ended.append(user.lease)

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def release_again(self, data: st.DataObject) -> None:
        self.cache.release(data.draw(st.sampled_from(self.ended)))
        self.naive.counters.repeated_releases += 1

    @rule(count=st.integers(0, 8))
    def evict(self, count: int) -> None:
        assert self.cache.evict(count) == self.naive.evict(count)

    @rule(seconds=st.sampled_from([0, 2, 5, 6]))
    def wait_and_expire(self, seconds: int) -> None:
        self.clock.now += seconds
        assert self.cache.expire() == self.naive.expire(self.clock.now - TTL)

    @rule(sure=st.sampled_from([False, False, True]))
    def flush(self, sure: bool) -> None:
        if sure:  # not too often: most sequences shall fill the index
            assert self.cache.flush() == self.naive.flush()

    def _begin(
        self, tokens: list[int], namespace: Namespace, mode: CacheMode = CacheMode.DEFAULT
    ) -> User:
        lease = self.cache.lease(self.cache.match(pack(tokens), namespace, mode))
        found = self.naive.matched(namespace, tokens) if mode.reads else []
        user = User(tokens, lease, self.naive.lease(namespace, found))
        self.live.append(user)
        return user

    def _next(self, user: User, count: int, letters: list[str]) -> tuple[list[int], array[int]]:
        """All tokens up to the end of the next ``count`` full blocks, and private blocks for these;
        fewer where there is no room. What is missing of the tokens is generated."""
        self.allocate(user, max(0, count - len(user.private)))
        given = user.private[:count]
        end = user.lease.num_tokens + len(given) * self.size
        if len(user.tokens) < end:
            fill = spell([*letters, *"aaaaaa"], self.size)
            user.tokens = [*user.tokens, *fill][: max(end, len(user.tokens))]
        return user.tokens[:end], given

    @invariant()
    def sound(self) -> None:
        private = [user.private for user in self.live]
        assert self.cache.audit(private, [user.lease for user in self.live]) == []
        assert self.cache.counters == self.naive.counters

    @invariant()
    def every_block_is_where_the_plain_index_has_it(self) -> None:
        stored = self.cache.stored
        found = {held.block: held.pins for held in self.naive.found.values()}
        assert {block: stored.pins[block] for block in stored.index.values()} == found
        queue = [held.block for held, _ in self.naive.queue]
        assert list(stored.queue) == queue
        assert self.cache.evictable_blocks == len(queue)
        assert self.cache.available_blocks == self.cache.pool.free_blocks + len(queue)
        held = {held.block for user in self.live for held in user.owner.held}
        private = sum(len(user.private) for user in self.live)
        blocks = self.cache.pool.num_blocks
        assert self.cache.pool.free_blocks == blocks - private - len(held | set(queue))

    @invariant()
    def every_lease_reads_its_own_blocks(self) -> None:
        for user in self.live:
            assert list(user.lease.blocks()) == [held.block for held in user.owner.held]
            assert user.lease.num_tokens == len(user.owner.held) * self.size
            assert self.cache.is_broken(user.lease) == user.owner.broken

    @invariant()
    def a_match_is_good_as_long_as_the_version_stays(self) -> None:
        if self.kept is not None and self.kept[2].version == self.cache.version:
            tokens, namespace, match = self.kept
            found = self.naive.matched(namespace, tokens)
            assert list(match.blocks) == [held.block for held in found]


TestRandomUse = FlatMachine.TestCase
TestRandomUse.settings = settings(
    max_examples=80, stateful_step_count=50, deadline=None, derandomize=True
)
