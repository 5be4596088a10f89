"""The flat index said again in the plainest way: a dictionary of whole prefixes, no hashes.

Slow. The random tests hold the real index against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from radix_engine.cache.interface import CacheCounters
from radix_engine.cache.namespace import Namespace

Prefix = tuple[Namespace, tuple[int, ...]]


@dataclass(eq=False)
class Held:
    """A block of the index. ``prefix`` is what it is found by, None where nobody finds it."""

    block: int
    prefix: Prefix | None
    computed: bool
    pins: int = 1
    withdrawn: bool = False


@dataclass(eq=False)
class Owner:
    """A request's lease: what it holds, and how much of that is not computed yet."""

    namespace: Namespace
    epoch: int
    held: list[Held]
    announced: int = 0

    @property
    def broken(self) -> bool:
        return any(held.withdrawn for held in self.held)


@dataclass
class NaiveFlat:
    """``found``: what each prefix of whole blocks finds. ``queue``: cached blocks that nobody pins,
    each with the time since which it is idle, the first to go in front."""

    size: int
    found: dict[Prefix, Held] = field(default_factory=dict)
    queue: list[tuple[Held, float]] = field(default_factory=list)
    epoch: int = 0
    counters: CacheCounters = field(default_factory=CacheCounters)

    def prefixes(self, namespace: Namespace, tokens: Sequence[int]) -> list[Prefix]:
        """All prefixes of whole blocks, shortest first."""
        ends = range(self.size, len(tokens) + 1, self.size)
        return [(namespace, tuple(tokens[:end])) for end in ends]

    def matched(self, namespace: Namespace, tokens: Sequence[int]) -> list[Held]:
        """What is found of a prompt without its last token."""
        blocks = []
        for prefix in self.prefixes(namespace, tokens[:-1]):
            if prefix not in self.found:
                break
            blocks.append(self.found[prefix])
        return blocks

    def lease(self, namespace: Namespace, found: list[Held]) -> Owner:
        for held in found:
            self._pin(held)
        return Owner(namespace, self.epoch, found)

    def publish(self, owner: Owner, tokens: Sequence[int], blocks: Sequence[int]) -> list[int]:
        """``tokens`` are all up to the end of the last of ``blocks``."""
        table = []
        new = self.prefixes(owner.namespace, tokens)[len(owner.held) :]
        for prefix, block in zip(new, blocks, strict=True):
            other = self.found.get(prefix) if owner.epoch == self.epoch else None
            if other is not None and not other.computed:
                break
            if other is not None:
                self._pin(other)
                self.counters.duplicate_blocks += 1
                held = other
            else:
                held = self._new(owner, prefix, block, computed=True)
            owner.held.append(held)
            table.append(held.block)
        return table

    def announce(self, owner: Owner, tokens: Sequence[int], blocks: Sequence[int]) -> bool:
        new = self.prefixes(owner.namespace, tokens)[len(owner.held) :]
        if owner.epoch != self.epoch or not new or new[0] in self.found:
            return False
        for prefix, block in zip(new, blocks, strict=True):
            owner.held.append(self._new(owner, prefix, block, computed=False))
        owner.announced += len(blocks)
        return True

    def commit(self, owner: Owner) -> None:
        for held in owner.held[len(owner.held) - owner.announced :]:
            held.computed = True
        owner.announced = 0

    def withdraw(self, owner: Owner) -> None:
        for _ in range(owner.announced):
            held = owner.held.pop()
            self._forget(held)
            held.withdrawn = True
            held.pins -= 1
            self.counters.withdrawn_blocks += 1
        owner.announced = 0

    def release(self, owner: Owner, now: float) -> None:
        self.withdraw(owner)
        for held in reversed(owner.held):
            held.pins -= 1
            if not held.pins and held.prefix is not None:
                self.queue.append((held, now))
        owner.held = []

    def evict(self, count: int) -> int:
        taken, self.queue = self.queue[:count], self.queue[count:]
        for held, _ in taken:
            self._forget(held)
        self.counters.evicted_blocks += len(taken)
        return len(taken)

    def expire(self, before: float) -> int:
        idle = [held for held, since in self.queue if since < before]
        self.queue = [entry for entry in self.queue if entry[1] >= before]
        for held in idle:
            self._forget(held)
        self.counters.expired_blocks += len(idle)
        return len(idle)

    def flush(self) -> int:
        freed = len(self.queue)
        self.queue = []
        for held in list(self.found.values()):
            self._forget(held)
        self.epoch += 1
        self.counters.flushes += 1
        return freed

    def _new(self, owner: Owner, prefix: Prefix, block: int, *, computed: bool) -> Held:
        finds = owner.epoch == self.epoch and prefix not in self.found
        held = Held(block, prefix if finds else None, computed)
        if finds:
            self.found[prefix] = held
        return held

    def _pin(self, held: Held) -> None:
        held.pins += 1
        self.queue = [entry for entry in self.queue if entry[0] is not held]

    def _forget(self, held: Held) -> None:
        if held.prefix is not None:
            del self.found[held.prefix]
            held.prefix = None
