"""The order in which blocks leave decides what a few long prompts get from a small memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import pytest

from radix_engine.cache.flat import FlatCache
from tests.cache.zipf import CEILING, hit_share, round_robin_order, zipf_order


class HeadsFirst(FlatCache):
    """Takes a request's first block before its last: for comparison only."""

    def _order_of_leaving(self, held: array[int]) -> Iterable[int]:
        return held


def test_tails_first_keeps_the_heads_of_the_most_asked_prompts() -> None:
    assert hit_share(FlatCache(256), zipf_order()) == pytest.approx(0.36, abs=0.03)


def test_heads_first_leaves_blocks_behind_that_nobody_can_reach() -> None:
    assert hit_share(HeadsFirst(256), zipf_order()) == pytest.approx(0.19, abs=0.03)


def test_in_turn_and_just_too_many_tails_first_loses_little() -> None:
    assert hit_share(FlatCache(1024), round_robin_order()) == pytest.approx(0.81, abs=0.01)


def test_in_turn_and_just_too_many_heads_first_loses_everything() -> None:
    assert hit_share(HeadsFirst(1024), round_robin_order()) == pytest.approx(0.0, abs=0.005)


def test_with_room_for_all_only_own_tokens_and_first_requests_miss() -> None:
    requests, prompts = 2000, 8
    share = hit_share(FlatCache(2048), round_robin_order(requests, prompts))
    assert share == pytest.approx(CEILING * (requests - prompts) / requests, abs=1e-9)
    assert share < CEILING
