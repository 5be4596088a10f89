"""The optimum: no rule beats it, and it is as good as trying everything."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_engine.cache import RULES
from workloads.simulation.optimum import Optimum
from workloads.simulation.serial import SerialCache
from workloads.simulation.serial_calls import SerialCall

Words = Sequence[str]  # a call's path, one letter a block


def calls_of(words: Words, seconds: Sequence[float] | None = None) -> list[SerialCall]:
    """A call a second; its blocks are numbered by the prefix that they end."""
    numbers: dict[str, int] = {}
    calls = []
    for at, word in enumerate(words):
        path = [numbers.setdefault(word[: end + 1], len(numbers)) for end in range(len(word))]
        runs = 0.0 if seconds is None else seconds[at]
        calls.append(SerialCall(np.array(path, np.int64), len(path), len(path), at, at + runs))
    return calls


def best_by_trying(words: Words, capacity: int) -> int:
    """The most blocks that can be hit, where each call must store its whole path (its first blocks,
    where it is longer than the memory) and may drop any others that keep the rest whole paths."""

    @cache
    def best(at: int, held: frozenset[str]) -> int:
        if at == len(words):
            return 0
        path = [words[at][: end + 1] for end in range(len(words[at]))]
        hits = sum(prefix in held for prefix in path)
        must = frozenset(path[:capacity])
        others = [prefix for prefix in held if prefix not in must]
        left = capacity - len(must)
        most = 0
        for chosen in closed_subsets(tuple(sorted(others, key=len)), must, left):
            most = max(most, best(at + 1, must | chosen))
        return hits + most

    return best(0, frozenset())


def closed_subsets(
    prefixes: tuple[str, ...], must: frozenset[str], room: int
) -> list[frozenset[str]]:
    """Subsets with every prefix's own prefixes in them, as many as fit; the shorter come first."""
    found: list[frozenset[str]] = [frozenset()]
    for prefix in prefixes:
        found += [
            each | {prefix}
            for each in found
            if len(each) < room and (len(prefix) == 1 or prefix[:-1] in each or prefix[:-1] in must)
        ]
    return found


WORDS = st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=7)


@settings(max_examples=150, deadline=None)
@given(words=WORDS, capacity=st.integers(1, 5))
def test_it_hits_as_much_as_trying_everything(words: list[str], capacity: int) -> None:
    assert sum(Optimum(calls_of(words), capacity).hits()) == best_by_trying(words, capacity)


@settings(max_examples=150, deadline=None)
@given(
    words=st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=30),
    capacity=st.integers(1, 12),
    rule=st.sampled_from(sorted(RULES)),
)
def test_no_rule_beats_it(words: list[str], capacity: int, rule: str) -> None:
    calls = calls_of(words)
    assert sum(SerialCache(capacity, rule).hits(calls)) <= sum(Optimum(calls, capacity).hits())


def test_a_loop_one_larger_than_the_memory_loses_only_what_does_not_fit() -> None:
    calls = calls_of(list("abcd") * 10)
    assert sum(SerialCache(3, "lru").hits(calls)) == 0
    # Of each four, three could be kept; each miss must be stored and takes the place of the block
    # that is needed last, so that two of three calls hit once the memory is full.
    assert sum(Optimum(calls, 3).hits()) == best_by_trying(list("abcd") * 10, 3) == 24


def test_what_a_running_call_uses_stays() -> None:
    # "b" comes while "a" runs and there is room for one block only: it finds none.
    calls = calls_of(["a", "b", "a", "b"], [10.0, 0.0, 0.0, 0.0])
    assert Optimum(calls, 1).hits() == [0, 0, 1, 0]
    assert SerialCache(1, "lru").hits(calls) == [0, 0, 1, 0]
    # Once the first reply is over, its block can go.
    calls = calls_of(["a", "b", "b"], [0.5, 0.0, 0.0])
    assert Optimum(calls, 1).hits() == [0, 0, 1]
    assert SerialCache(1, "lru").hits(calls) == [0, 0, 1]


def test_a_call_longer_than_the_memory_keeps_its_first_blocks() -> None:
    calls = calls_of(["abcdef", "abcdef", "abx"])
    assert Optimum(calls, 4).hits() == [0, 4, 2]
    assert SerialCache(4, "lru").hits(calls) == [0, 4, 2]


@pytest.mark.parametrize("capacity", [1, 2, 3])
def test_lru_takes_the_leaf_that_was_used_longest_ago(capacity: int) -> None:
    # By hand: after a, b, a the oldest is b.
    hits = SerialCache(capacity, "lru").hits(calls_of(["a", "b", "a", "c", "a", "b"]))
    assert hits == {1: [0] * 6, 2: [0, 0, 1, 0, 1, 0], 3: [0, 0, 1, 0, 1, 1]}[capacity]


def test_the_last_token_of_a_prompt_is_never_served() -> None:
    call = SerialCall(np.arange(3), 3, 192, 0.0, 0.0)
    assert call.hit_tokens(3, 64) == 191
    assert call.hit_tokens(2, 64) == 128
    assert SerialCall(np.arange(0), 0, 0, 0.0, 0.0).hit_tokens(0, 64) == 0
