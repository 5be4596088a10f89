from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_engine.cache.reuse_curve import ReuseCurve

BLOCK = 16
SIZES = tuple(range(1, 21))

Path = tuple[int, ...]  # block contents from the root; a block is told by the path that ends in it


def prefixes(path: Path) -> list[Path]:
    return [path[:end] for end in range(1, len(path) + 1)]


def leading(known: Iterable[bool]) -> int:
    count = 0
    for one in known:
        if not one:
            break
        count += 1
    return count


class Memory:
    """An LRU memory: the block used longest ago goes first, among those without a child."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.used: dict[Path, int] = {}

    def use(self, path: Path, time: int) -> None:
        self.used.update(dict.fromkeys(prefixes(path), time))
        while len(self.used) > self.size:
            parents = {block[:-1] for block in self.used}
            leaves = [block for block in self.used if block not in parents]
            del self.used[min(leaves, key=self.used.__getitem__)]

    def drop(self, block: Path) -> None:
        self.used.pop(block, None)

    def served(self, path: Path) -> int:
        return leading(block in self.used for block in prefixes(path))


class Stack:
    """All memories at once, one block at a time: a block that is dropped leaves a hole, which the
    next block that comes to the top from below it fills."""

    def __init__(self) -> None:
        self.blocks: list[Path | None] = []

    def use(self, path: Path) -> None:
        for block in reversed(prefixes(path)):
            if block in self.blocks:
                self.drop(block)
            if None in self.blocks:
                self.blocks.remove(None)  # the uppermost
            self.blocks.insert(0, block)

    def drop(self, block: Path) -> None:
        self.blocks[self.blocks.index(block)] = None

    def served(self, path: Path, size: int) -> int:
        return leading(block in self.blocks[:size] for block in prefixes(path))


class Tree:
    """Feeds a curve as a tree of blocks would, and both simulations with the same uses."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.curve = ReuseCurve(SIZES)
        self.memories = [Memory(size) for size in SIZES]
        self.stack = Stack()
        self.ticks: dict[Path, int] = {}
        self.now = 0
        self.prompt_tokens = 0
        self.hit_tokens = [0] * len(SIZES)

    def chain(self, tick: int) -> list[Path]:
        return sorted((block for block, at in self.ticks.items() if at == tick), key=len)

    def known(self, path: Path) -> list[Path]:
        return [block for block in prefixes(path) if block in self.ticks]

    def groups(self, blocks: list[Path]) -> list[tuple[int, int]]:
        """From the root downwards; a tick may come in several pieces, as it does with nodes."""
        groups: list[tuple[int, int]] = []
        for block in blocks:
            tick = self.ticks[block]
            if groups and groups[-1][0] == tick and self.random.random() < 0.7:
                groups[-1] = (tick, groups[-1][1] + 1)
            else:
                groups.append((tick, 1))
        return groups

    def use(self, path: Path) -> None:
        known = self.known(path)
        groups = self.groups(known)
        new = len(path) - len(known)
        if new and known and self.random.random() < 0.5:
            tick, count = groups[-1]
            if self.chain(tick)[-1] == known[-1]:
                groups[-1] = (tick, count + new)  # the node grew in place
        elif new and self.random.random() < 0.5:
            groups.append((0, new))
        self.random.shuffle(groups)
        self.now += self.random.choice((1, 1, 1, 2, 5))
        self.curve.touch(groups, self.now, len(path))
        self.ticks.update(dict.fromkeys(prefixes(path), self.now))
        for memory in self.memories:
            memory.use(path, self.now)
        self.stack.use(path)

    def forget(self, path: Path, count: int) -> None:
        """The lower end of the branch that goes on from this path, up to where another leaves."""
        known = self.known(path)
        leaf = known[-1] if known else ()
        while children := sorted(
            block for block in self.ticks if len(block) == len(leaf) + 1 and block[:-1] == leaf
        ):
            leaf = children[0]
        if not leaf:
            return
        tick = self.ticks[leaf]
        chain = self.chain(tick)
        gone: list[Path] = []
        while chain and len(gone) < count:
            if any(block[:-1] == chain[-1] for block in self.ticks if block not in gone):
                break
            gone.append(chain.pop())
        self.curve.forget(tick, len(gone) if chain else count)
        for block in gone:
            del self.ticks[block]
            for memory in self.memories:
                memory.drop(block)
            self.stack.drop(block)

    def clear(self) -> None:
        self.curve.clear()
        self.ticks.clear()
        self.memories = [Memory(size) for size in SIZES]
        self.stack = Stack()

    def record(self, path: Path, in_use: int) -> None:
        known = self.known(path)
        # The blocks in use end where a chain ends, or the path does.
        ends = [
            end
            for end, (upper, lower) in enumerate(pairwise(known), 1)
            if self.ticks[upper] != self.ticks[lower]
        ]
        pinned = min((end for end in [*ends, len(known)] if end >= in_use), default=0)
        if not in_use:
            pinned = 0
        self.curve.record(len(path) * BLOCK + 3, BLOCK, pinned, self.groups(known[pinned:]))
        self.prompt_tokens += len(path) * BLOCK + 3
        for place, (size, memory) in enumerate(zip(SIZES, self.memories, strict=True)):
            served = memory.served(path)
            assert served == self.stack.served(path, size), "the two simulations differ"
            self.hit_tokens[place] += max(pinned, served) * BLOCK

    def check(self) -> None:
        assert self.curve.prompt_tokens == self.prompt_tokens
        assert self.curve.hit_tokens == self.hit_tokens


paths = st.lists(st.integers(0, 2), max_size=9).map(tuple)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("use"), paths, st.just(0)),
        st.tuples(st.just("use"), paths, st.just(0)),
        st.tuples(st.just("record"), paths, st.integers(0, 3)),
        st.tuples(st.just("forget"), paths, st.integers(0, 4)),
        st.tuples(st.just("clear"), st.just(()), st.just(0)),
    ),
    max_size=40,
)


def run(tree: Tree, kind: str, path: Path, count: int) -> None:
    if kind == "use":
        tree.use(path)
    elif kind == "record":
        tree.record(path, count)
    elif kind == "forget":
        tree.forget(path, count)
    else:
        tree.clear()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(operations=operations, seed=st.integers(0, 2**32))
def test_every_size_hits_what_its_lru_memory_would_hit(
    operations: list[tuple[str, Path, int]], seed: int
) -> None:
    tree = Tree(Random(seed))
    for kind, path, count in operations:
        run(tree, kind, path, count)
        tree.check()
    for path in list(tree.ticks):
        tree.record(path, 0)
        tree.check()


@pytest.mark.parametrize("forgets", [0, 5, 25])
def test_every_size_hits_what_its_lru_memory_would_hit_over_a_long_time(forgets: int) -> None:
    random = Random(forgets)
    tree = Tree(random)
    for _ in range(500):
        path: Path = tuple(random.choices((0, 1, 2), (6, 3, 1), k=random.randrange(1, 10)))
        kinds = ("use", "record", "forget", "clear")
        kind = random.choices(kinds, (40, 60, forgets, 0.2))[0]
        run(tree, kind, path, random.choice((0, 0, 1, 2, 3)))
        tree.check()
