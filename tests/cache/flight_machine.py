"""Random use of the cache: what requests do with blocks in flight."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import multiple, precondition, rule

from radix_engine.cache import Namespace, OwnershipError, pack, token_array
from tests.cache.machine_user import User, spell
from tests.cache.request_machine import LETTERS, NAMESPACES, RequestMachine


class FlightMachine(RequestMachine):
    """With announcing, committing and withdrawing."""

    users = RequestMachine.users

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

    @rule(user=users, count=st.integers(1, 4), letters=LETTERS)
    def announce(self, user: User, count: int, letters: list[str]) -> None:
        count = min(count, len(user.private))
        if user in self.broken or not count:
            return
        start = user.lease.num_tokens
        end = start + count * self.size
        user.grow(end, letters, self.size)
        new = user.prefixes(end)[start // self.size :]
        given = user.private[:count]
        done = self.cache.announce(user.lease, pack(user.tokens[start:end]), given)
        crosses = start < user.public < end
        known = user.tree is not self.tree or new[0] in self.tree.entries
        assert done == (not known and not crosses)
        if done:
            assert user.tree.publish(new, given, in_flight=True) == list(given)
            self.note_growth_of_spared_nodes(user)
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
