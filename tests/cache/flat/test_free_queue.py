"""The queue of cached blocks that nobody pins."""

from __future__ import annotations

import pytest

from radix_engine.cache.flat.free_queue import FreeQueue


def queue_of(*entries: tuple[int, float]) -> FreeQueue:
    queue = FreeQueue()
    for block, now in entries:
        queue.add(block, now)
    return queue


def test_blocks_are_taken_in_the_order_in_which_they_came() -> None:
    queue = queue_of((7, 1.0), (3, 1.0), (5, 2.0))
    assert list(queue.take(2)) == [7, 3]
    assert list(queue) == [5]


def test_a_block_that_was_removed_and_comes_back_is_last() -> None:
    queue = queue_of((7, 1.0), (3, 1.0), (5, 2.0))
    queue.remove(7)
    assert 7 not in queue
    queue.add(7, 3.0)
    assert list(queue.take(3)) == [3, 5, 7]


def test_no_more_is_taken_than_there_is() -> None:
    queue = queue_of((7, 1.0))
    assert list(queue.take(5)) == [7]
    assert list(queue.take(5)) == []
    assert len(queue) == 0


def test_idle_blocks_are_those_whose_time_is_earlier() -> None:
    queue = queue_of((7, 1.0), (3, 1.0), (5, 2.0), (4, 3.0))
    assert list(queue.take_idle(1.0)) == []
    assert list(queue.take_idle(2.0)) == [7, 3]
    assert list(queue) == [5, 4]
    assert list(queue.times()) == [2.0, 3.0]


def test_removing_what_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError):
        queue_of((7, 1.0)).remove(3)
