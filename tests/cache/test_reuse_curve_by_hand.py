"""What LRU memories of several sizes hit, in stories that fit on a page."""

from __future__ import annotations

import pytest

from radix_engine.cache.reuse_curve import ReuseCurve

BLOCK = 16


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
