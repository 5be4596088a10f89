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


def hits(curve: ReuseCurve, groups: list[tuple[int, int]], in_use: int = 0) -> list[int]:
    """The blocks that each size serves."""
    before = list(curve.hit_tokens)
    curve.record(1_000, BLOCK, in_use, groups)
    counts = zip(curve.hit_tokens, before, strict=True)
    return [(after - earlier) // BLOCK for after, earlier in counts]


def test_nothing_is_hit_before_anything_was_recorded() -> None:
    curve = ReuseCurve([2, 4])
    assert curve.hit_rates() == [0.0, 0.0]
    curve.touch([], 1, 3)
    assert curve.hit_rates() == [0.0, 0.0]
    assert curve.prompt_tokens == 0


def test_rates_are_shares_of_all_prompt_tokens() -> None:
    curve = ReuseCurve([1, 2, 4])
    curve.record(60, 16, 0, [])
    curve.touch([(0, 3)], 1, 3)
    curve.record(68, 16, 0, [(1, 3)])
    assert curve.prompt_tokens == 128
    assert curve.hit_tokens == [16, 32, 48]
    assert curve.hit_rates() == [0.125, 0.25, 0.375]


def test_a_path_longer_than_a_memory_keeps_its_upper_end() -> None:
    curve = ReuseCurve([0, 1, 3, 5, 9])
    curve.touch([], 1, 5)
    assert hits(curve, [(1, 5)]) == [0, 1, 3, 5, 5]
    assert hits(curve, [(1, 2)]) == [0, 1, 2, 2, 2]


def test_the_oldest_path_leaves_first_and_its_deepest_blocks_first() -> None:
    curve = ReuseCurve([3, 5, 6, 8])
    curve.touch([], 1, 4)
    curve.touch([], 2, 3)
    assert hits(curve, [(2, 3)]) == [3, 3, 3, 3]
    assert hits(curve, [(1, 4)]) == [0, 2, 3, 4]
    curve.touch([], 3, 2)
    assert hits(curve, [(3, 2)]) == [2, 2, 2, 2]
    assert hits(curve, [(2, 3)]) == [1, 3, 3, 3]
    assert hits(curve, [(1, 4)]) == [0, 0, 1, 3]


def test_a_path_in_several_chains_is_hit_down_to_where_the_memory_ends() -> None:
    curve = ReuseCurve([1, 2, 3, 4, 5, 6])
    curve.touch([], 1, 6)
    curve.touch([(1, 4)], 2, 4)
    curve.touch([(2, 1)], 3, 1)
    assert hits(curve, [(3, 1), (2, 3), (1, 2)]) == [1, 2, 3, 4, 5, 6]
    assert hits(curve, [(3, 1), (2, 1), (2, 2), (1, 1), (1, 1)]) == [1, 2, 3, 4, 5, 6]


def test_a_block_that_returns_from_outside_pushes_one_out() -> None:
    curve = ReuseCurve([2, 4])
    curve.touch([], 1, 2)
    curve.touch([], 2, 2)
    assert hits(curve, [(1, 2)]) == [0, 2]
    curve.touch([(1, 1)], 3, 1)  # the first path's upper block
    assert hits(curve, [(3, 1), (1, 1)]) == [1, 2]
    assert hits(curve, [(2, 2)]) == [1, 2]


def test_a_block_that_was_inside_pushes_nothing_out() -> None:
    curve = ReuseCurve([3])
    curve.touch([], 1, 2)
    curve.touch([], 2, 2)
    assert hits(curve, [(1, 2)]) == [1]
    curve.touch([(1, 1)], 3, 1)
    assert hits(curve, [(2, 2)]) == [2]
    assert hits(curve, [(3, 1), (1, 1)]) == [1]


def test_a_memory_that_lost_blocks_does_not_get_evicted_ones_back() -> None:
    curve = ReuseCurve([3, 6])
    curve.touch([], 1, 3)
    curve.touch([], 2, 3)
    curve.forget(2, 2)
    assert hits(curve, [(2, 1)]) == [1, 1]
    assert hits(curve, [(1, 3)]) == [0, 3]
    curve.touch([], 3, 2)  # fills the room
    assert hits(curve, [(3, 2)]) == [2, 2]
    assert hits(curve, [(2, 1)]) == [1, 1]
    assert hits(curve, [(1, 3)]) == [0, 3]
    curve.touch([], 4, 1)  # there is none left
    assert hits(curve, [(2, 1)]) == [0, 1]
    assert hits(curve, [(1, 3)]) == [0, 2]


def test_blocks_that_move_inside_a_memory_with_room_bring_no_others_in() -> None:
    curve = ReuseCurve([4])
    curve.touch([], 1, 4)
    curve.touch([], 2, 2)
    curve.forget(2, 1)
    curve.touch([(1, 1)], 3, 1)
    assert hits(curve, [(3, 1), (1, 3)]) == [2]
    curve.touch([(1, 2)], 4, 2)  # one of the two fills the room
    assert hits(curve, [(4, 2), (1, 1)]) == [2]
    assert hits(curve, [(2, 1)]) == [1]
    curve.touch([], 5, 1)
    assert hits(curve, [(2, 1)]) == [0]


def test_forgetting_takes_what_lies_outside_first() -> None:
    curve = ReuseCurve([2, 4])
    curve.touch([], 1, 4)
    curve.forget(1, 1)
    assert hits(curve, [(1, 3)]) == [2, 3]
    curve.forget(1, 2)
    assert hits(curve, [(1, 1)]) == [1, 1]
    curve.touch([], 2, 1)
    assert hits(curve, [(1, 1)]) == [1, 1]


def test_forgetting_nothing_or_too_much_or_what_is_unknown_is_harmless() -> None:
    curve = ReuseCurve([2])
    curve.touch([], 1, 2)
    curve.forget(1, 0)
    curve.forget(0, 3)
    curve.forget(7, 3)
    assert hits(curve, [(1, 2)]) == [2]
    curve.forget(1, 9)
    assert hits(curve, [(1, 2)]) == [0]
    curve.touch([], 2, 2)
    assert hits(curve, [(2, 2)]) == [2]


def test_blocks_by_which_a_path_grew_in_place_count_as_new() -> None:
    curve = ReuseCurve([3, 4, 5])
    curve.touch([], 1, 1)
    curve.touch([], 2, 2)
    assert hits(curve, [(2, 5)]) == [2, 2, 2]  # three of them were never touched
    assert hits(curve, [(2, 5), (1, 1)]) == [2, 2, 2]  # and what is below is out of reach
    curve.touch([(2, 4)], 3, 4)
    assert hits(curve, [(3, 4)]) == [3, 4, 4]
    assert hits(curve, [(1, 1)]) == [0, 0, 1]


def test_blocks_in_use_are_hit_at_any_size() -> None:
    curve = ReuseCurve([1, 3, 5])
    curve.touch([], 1, 4)
    curve.touch([(1, 2)], 2, 2)
    assert hits(curve, [(1, 2)], in_use=2) == [2, 3, 4]
    assert hits(curve, [], in_use=4) == [4, 4, 4]


def test_an_emptied_memory_hits_nothing_and_keeps_its_totals() -> None:
    curve = ReuseCurve([2, 8])
    curve.touch([], 1, 4)
    curve.record(64, BLOCK, 0, [(1, 4)])
    curve.clear()
    assert curve.hit_tokens == [32, 64]
    assert curve.prompt_tokens == 64
    assert hits(curve, [(1, 4)]) == [0, 0]
    curve.touch([(1, 4)], 2, 5)  # the path of a request that ran on; to the stack it is new
    assert hits(curve, [(2, 5)]) == [2, 5]
    with pytest.raises(ValueError, match="greater than the last one, 2"):
        curve.touch([], 2, 1)


def test_a_tick_that_is_not_newer_is_refused_before_anything_changes() -> None:
    curve = ReuseCurve([4])
    curve.touch([], 3, 2)
    for tick in (3, 2, 0):
        with pytest.raises(ValueError, match=f"tick {tick} must be greater"):
            curve.touch([(3, 2)], tick, 2)
    assert hits(curve, [(3, 2)]) == [2]


@pytest.mark.parametrize("sizes", [[4, 2], [-1, 3]])
def test_sizes_that_do_not_ascend_from_zero_are_refused(sizes: list[int]) -> None:
    with pytest.raises(ValueError, match="ascending"):
        ReuseCurve(sizes)


def test_a_memory_too_small_to_differ_has_equal_sizes() -> None:
    curve = ReuseCurve([0, 0, 1, 2, 2])
    curve.touch([], 1, 2)
    curve.touch([(1, 1)], 2, 1)
    assert hits(curve, [(2, 1), (1, 1)]) == [0, 0, 1, 2, 2]


def test_a_path_used_forever_leaves_nothing_behind_to_pass_over() -> None:
    curve = ReuseCurve([2, 4])
    curve.touch([], 1, 3)
    for tick in range(2, 2_000):
        curve.touch([(tick - 1 if tick > 2 else 0, 1)], tick, 1)
    assert len(curve._length) <= 100
    assert hits(curve, [(1, 3)]) == [1, 3]
    curve.touch([], 2_000, 3)
    assert hits(curve, [(1, 3)]) == [0, 0]
    assert hits(curve, [(1_999, 1)]) == [0, 1]


def test_paths_without_blocks_leave_nothing_behind() -> None:
    curve = ReuseCurve([2])
    for tick in range(1, 500):
        curve.touch([], tick, 0)
    assert not curve._length


def test_memories_end_at_the_right_path_after_many_older_ones_are_gone() -> None:
    curve = ReuseCurve([3, 6])
    for tick in range(1, 101):
        curve.touch([], tick, 2)
    for tick in range(1, 98):
        curve.forget(tick, 2)
    for tick in range(101, 301):  # the last path again and again
        curve.touch([(tick - 1, 2)], tick, 2)
    assert len(curve._length) < 100
    curve.touch([], 301, 1)
    assert hits(curve, [(300, 2)]) == [2, 2]
    assert hits(curve, [(99, 2)]) == [0, 2]
    assert hits(curve, [(98, 2)]) == [0, 1]
    curve.touch([], 302, 3)
    assert hits(curve, [(302, 3)]) == [3, 3]
    assert hits(curve, [(301, 1)]) == [0, 1]
    assert hits(curve, [(300, 2)]) == [0, 2]
    assert hits(curve, [(99, 2)]) == [0, 0]
