"""The order of a node's children, held against looking at each of them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_engine.cache import pack
from radix_engine.cache.child_order import ChildOrder

# Few ids, so that keys collide; among them those whose bytes sort in another order than they do,
# and those that share bytes and are not equal.
TOKENS = st.sampled_from([0, 1, 2, 255, 256, 257, 65536, 2**24, 2**31 - 1])
KEYS = st.lists(TOKENS, min_size=4, max_size=4).map(tuple)
BLOCKS = st.lists(TOKENS, max_size=4).map(tuple)


def common(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    count = 0
    while count < min(len(left), len(right)) and left[count] == right[count]:
        count += 1
    return count


def check(order: ChildOrder, usable: set[tuple[int, ...]], block: tuple[int, ...]) -> None:
    """The nearest is a usable key that shares as much as any does; none where none does."""
    most = max((common(key, block) for key in usable), default=0)
    found = order.nearest(pack(block))
    if not most:
        assert found is None
        return
    assert found is not None
    key, shared = found
    assert shared == 4 * most
    assert any(pack(one) == key and common(one, block) == most for one in usable)


@given(st.sets(KEYS, max_size=40), st.lists(BLOCKS, min_size=1, max_size=20))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_the_nearest_key_shares_as_many_tokens_as_any(
    keys: set[tuple[int, ...]], blocks: list[tuple[int, ...]]
) -> None:
    order = ChildOrder([pack(key) for key in keys], lambda key: True)
    for block in [*blocks, *keys]:
        check(order, keys, block)


CHANGES = st.lists(st.tuples(KEYS, st.booleans(), BLOCKS), min_size=1, max_size=150)


@given(st.sets(KEYS, max_size=10), CHANGES, st.integers(1, 100))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_changes_that_were_noted_are_followed_however_many_come_between_two_look_ups(
    keys: set[tuple[int, ...]],
    changes: list[tuple[tuple[int, ...], bool, tuple[int, ...]]],
    every: int,
) -> None:
    usable = {pack(key): key for key in keys}
    order = ChildOrder(list(usable), lambda key: key in usable)
    for count, (key, comes, block) in enumerate(changes):
        if comes:
            usable[pack(key)] = key
        else:
            usable.pop(pack(key), None)
        order.note(pack(key))
        if count % every == 0:
            check(order, set(usable.values()), block)
            check(order, set(usable.values()), key)
    assert order.first(200) == sorted(usable)
    assert order.first(2) == sorted(usable)[:2]


def test_a_change_that_was_taken_back_before_the_next_look_up_changes_nothing() -> None:
    usable = {pack([1, 1])}
    order = ChildOrder([pack([1, 1])], lambda key: key in usable)
    for key in ([1, 1], [1, 2]):
        usable ^= {pack(key)}
        order.note(pack(key))
        usable ^= {pack(key)}
        order.note(pack(key))
    assert order.first(9) == [pack([1, 1])]
    assert order.nearest(pack([1, 2])) == (pack([1, 1]), 4)


def test_among_no_keys_none_is_nearest() -> None:
    order = ChildOrder([], lambda key: False)
    assert order.nearest(pack([1, 2])) is None
    assert order.first(3) == []


def test_keys_that_share_bytes_but_no_token_are_not_near() -> None:
    order = ChildOrder([pack([256, 1]), pack([2**24, 1])], lambda key: True)
    assert order.nearest(pack([0, 1])) is None
    assert order.nearest(pack([2**24, 2])) == (pack([2**24, 1]), 4)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_block_shorter_than_the_keys_finds_one_that_begins_with_it(length: int) -> None:
    keys = [
        (first, second, third, 9) for first in range(3) for second in range(3) for third in (0, 5)
    ]
    order = ChildOrder([pack(key) for key in keys], lambda key: True)
    for key in keys:
        found = order.nearest(pack(key[:length]))
        assert found is not None
        assert found[1] == 4 * length
        assert found[0].startswith(pack(key[:length]))


def test_ten_thousand_children_are_searched_and_not_looked_at_one_by_one() -> None:
    draw = random.Random(3)
    keys = list({tuple(draw.randrange(50) for _ in range(4)) for _ in range(10_000)})
    asked = 0

    def is_usable(key: bytes) -> bool:
        nonlocal asked
        asked += 1
        return True

    order = ChildOrder([pack(key) for key in keys], is_usable)
    for _ in range(20):
        block = tuple(draw.randrange(50) for _ in range(4))
        check(order, set(keys), block)
    for key in keys[:10]:
        order.note(pack(key))
    order.nearest(pack(keys[0]))
    assert asked == 10, "only those that changed are looked at"
