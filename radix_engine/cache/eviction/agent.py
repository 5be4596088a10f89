"""Evicts what is least worth holding: for agents, whose calls come back after gaps of a kind.

LRU holds every branch to the same age. This rule learns how soon branches of a kind are called
again (see `returns`), and evicts the leaf whose next call is worth least for each second that it is
held for. Where sessions come round in turn and do not all fit, some of them stay and are hit where
LRU would lose all; where gaps are of all lengths it does as LRU does; and what has been away for
much longer than its kind usually is goes first.

A branch's kind is its usual gap between calls, as a moving average, and whether its last reply
called a tool, where that is told. What many branches share, such as a system prompt, is judged by
the pace at which it is used itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sortedcontainers import SortedList

from radix_engine.cache.eviction.by_worth import Interval, Item, LeavesByWorth
from radix_engine.cache.eviction.calls import Call, Calls
from radix_engine.cache.eviction.guard import Guard, GuardConfig
from radix_engine.cache.eviction.left_behind import LeftBehind, LeftBehindConfig
from radix_engine.cache.eviction.returns import Returns, ReturnsConfig
from radix_engine.cache.lease import Lease
from radix_engine.cache.node import Node

_SHARED = 1  # the rank of a node at which branches part, or of which nothing is known

# Of leaves of which nothing is known: an old branch's, whose call is forgotten.
_UNKNOWN_WORTH = -1.0


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """``gap_weight`` of the last gap in the average; between 0.2 and 0.5 all do as well.
    ``least_gap_s``: shorter ones count as this. ``most_calls`` are remembered: so many as 18 calls
    a second make in the time for which one may be away; with more, each is watched for less time,
    and the estimate knows that.
    """

    gap_weight: float = 0.3
    least_gap_s: float = 0.25
    most_calls: int = 16_384


class AgentLeaves:
    """The unpinned leaves, by what holding them is worth.

    Which call a call continues: the one that used its known prompt last, unless the prompt ends
    where branches part and that call's own path went on. That the branches part there is known once
    a second call has gone on further along that path.

    Costs: some microseconds a call and a leaf; every 32 calls, and at an eviction at most four
    times a second, some 0.3 milliseconds more.
    """

    def __init__(
        self,
        config: AgentConfig | None = None,
        returns: ReturnsConfig | None = None,
        guard: GuardConfig | None = None,
    ) -> None:
        self._config = config or AgentConfig()
        self._returns = Returns(returns or ReturnsConfig())
        self._calls = Calls(self._returns, self._config.most_calls)
        self._guard = Guard(guard or GuardConfig())
        self._left_behind = LeftBehind(LeftBehindConfig())
        # Per class those that no call has continued, then those that one has; and the unknown.
        self._unknown = 2 * self._returns.classes
        self._leaves = LeavesByWorth(self._unknown + 1)

    def attach(self, lru_hit_tokens: Callable[[], int], num_blocks: int) -> None:
        """The rule serves a cache of so many blocks from now on."""
        self._guard.attach(lru_hit_tokens, num_blocks)

    def begun(self, lease: Lease, seen: Node, reach: int, now: float) -> None:
        """Find the call that this one continues, and learn from it. Cost: O(1), now and then
        O(depth)."""
        if self._guard.served(lease.num_tokens):
            self._leaves.expire()
        if self._returns.due():
            self._calls.rebuild(now)
        before = self._continued(seen, reach)
        went_on = before is not None and self._calls.waits(before)
        if self._left_behind.called(went_on=went_on):
            self._leaves.expire()
        if before is None:
            call = Call(now, None, 0)
            _share(seen)
        else:
            gap = math.log2(max(now - before.began, self._config.least_gap_s))
            if before.log_gap is not None:
                weight = self._config.gap_weight
                gap = (1 - weight) * before.log_gap + weight * gap
            call = Call(now, gap, self._returns.gap_class(gap))
            self._go_on(before, seen, reach, now)
        self._calls.enter(call, now, waits=True)
        lease.note = call

    def forked(self, lease: Lease, origin: Lease, now: float) -> None:
        """A branch is of its request's kind; as one call, they come back once."""
        of = origin.note
        if of is not None:
            lease.note = Call(of.began, of.log_gap, of.gap_class)  # entered when it is filed

    def stored(self, lease: Lease, now: float) -> None:
        """Nothing to note: the path is looked at when the call ends."""

    def called_tool(self, lease: Lease, now: float) -> None:
        """Its kind of branch is another one from now on."""
        call: Call | None = lease.note
        if call is not None and not call.stop:
            self._calls.note_tool(call)
            self._again(call, now)

    def ended(self, lease: Lease, now: float) -> None:
        """Its age counts from now on."""
        self.given_back(lease, now)
        if lease.note is not None:
            self.replied(lease.note, now, now)

    def given_back(self, lease: Lease, now: float) -> None:
        """Its path has a new tick, by which the next call finds it."""
        call: Call | None = lease.note
        if call is None:
            return
        if lease.num_tokens:
            self._calls.file(call, lease.node.tick, lease.num_tokens, now)
        else:
            self._calls.give_up(call)

    def replied(self, call: Call, ended: float, now: float) -> None:
        """The reply of a call has ended, now or before."""
        self._calls.note_end(call, ended)
        self._again(call, now)

    def add(self, leaf: Node, now: float) -> None:
        """A leaf may be evicted from now on."""
        call = self._calls.at(leaf.tick)
        group, since = self._group(leaf, call)
        self._leaves.add(leaf, group, since, call, self._worth, now)

    def discard(self, leaf: Node) -> None:
        """A leaf may no longer be evicted."""
        self._leaves.discard(leaf)

    def victim(self, now: float) -> Node | None:
        """The leaf that is least worth holding; of equals the oldest."""
        return self._leaves.victim(now, self._survey)

    def removed(self, leaf: Node, now: float) -> None:
        """A leaf is no more."""
        self._guard.evicted(len(leaf.blocks))
        self._leaves.discard(leaf)

    def leaves(self) -> list[Node]:
        """All of them."""
        return self._leaves.leaves()

    def clear(self) -> None:
        """Forget all leaves and calls; what was learnt of returns stays."""
        self._leaves.clear()
        self._calls.clear()

    def _continued(self, seen: Node, reach: int) -> Call | None:
        before = self._calls.at(seen.tick)
        if before is not None and seen.rank & _SHARED and before.length != reach:
            return None
        return before

    def _go_on(self, before: Call, seen: Node, reach: int, now: float) -> None:
        """A call goes on from an earlier one, whose path it shares up to ``reach`` tokens."""
        parted = before.parted_at
        if self._calls.waits(before):
            self._calls.came_back(before, now)
        elif parted is not None and reach > parted:
            self._left_behind.used()
            node = seen  # the first one to go on had parted from what goes on here
            while node.end > parted and node.parent is not None:
                node = node.parent
            _share(node)
        if parted is None:
            before.parted_at = reach
            if reach < before.length:
                self._left_behind.left()
        if not before.is_continued:
            before.is_continued = True
            self._again(before, now)

    def _group(self, leaf: Node, call: Call | None) -> tuple[int, float]:
        """The group of a leaf, and the time that its age counts from."""
        returns = self._returns
        if leaf.rank & _SHARED:
            pace = None
            if leaf.hits > 1 and leaf.last_used > leaf.born:
                gap = (leaf.last_used - leaf.born) / (leaf.hits - 1)
                pace = math.log2(max(gap, self._config.least_gap_s))
            return returns.running(returns.gap_class(pace)), leaf.last_used
        if call is None:
            return self._unknown, leaf.last_used
        if call.ended is None:
            number, since = returns.running(call.gap_class), call.began
        else:
            number, since = returns.replied(call.gap_class, call.stop), call.ended
        return number + (returns.classes if call.is_continued else 0), since

    def _again(self, call: Call, now: float) -> None:
        """Something has changed about a call: its leaf belongs elsewhere."""
        leaf = call.leaf
        if leaf is not None:
            self._leaves.discard(leaf)
            group, since = self._group(leaf, call)
            self._leaves.add(leaf, group, since, call, self._worth, now)

    def _survey(self, now: float) -> Iterator[Interval]:
        """What each group's leaves are worth, by their age now."""
        for group, items in self._leaves.groups():
            if group == self._unknown:
                yield Interval(_UNKNOWN_WORTH, -math.inf, math.inf, items)
            else:
                yield from self._by_age(group, items, now)

    def _by_age(self, group: int, items: SortedList[Item], now: float) -> Iterator[Interval]:
        """A group's leaves, oldest first, cut where their ages cross from one bin to the next."""
        returns = self._returns
        first = next(items.irange(), None)
        while first is not None:
            low = first[0]
            number = returns.bin(now - low)
            # What was put in since counts as young; rounding must not leave the first one out.
            high = max(low, now - returns.edges[number]) if number else math.inf
            yield Interval(self._worth(group, now - low), low, high, items)
            first = next(items.irange((high, math.inf)), None)

    def _worth(self, group: int, age: float) -> float:
        """What a second of holding a leaf of this group and age is worth, in returns."""
        returns, classes = self._returns, self._returns.classes
        if group == self._unknown:
            return _UNKNOWN_WORTH
        if group < classes:
            return returns.rows[group][returns.bin(age)]
        factor = 1.0 if self._left_behind.is_used else self._guard.factor
        return returns.rows[group - classes][returns.bin(age)] * factor


def _share(node: Node) -> None:
    """Branches part at this node, so what is above it is theirs together, too."""
    at: Node | None = node
    while at is not None and at.run and not at.rank & _SHARED:
        at.rank |= _SHARED
        at = at.parent
