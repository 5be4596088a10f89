"""An eviction rule hears of tool calls that are found after their requests have ended."""

from __future__ import annotations

import pytest

from radix_engine.cache import Lease, PrefixCache
from radix_engine.cache.eviction import LruLeaves
from radix_engine.cache.flat import FlatCache
from scheduler import Limits, Request, Scheduler
from scheduler.ended_leases import EndedLeases


class Told(LruLeaves):
    """LRU that notes the tokens of each path whose call it is told of."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: list[int] = []

    def called_tool(self, lease: Lease, now: float) -> None:
        assert lease.released
        self.paths.append(lease.num_tokens)


def serve(scheduler: Scheduler, *requests: Request, now: float = 0.0) -> None:
    """Answer requests to their end with tokens 7."""
    for request in requests:
        scheduler.submit(request, now)
    while scheduler.has_work:
        plan = scheduler.plan(now)
        wanted = sum(span.request.width for span in plan.sampling)
        scheduler.commit(plan, [7] * wanted)


def made(most: int = 64) -> tuple[Scheduler, Told]:
    rule = Told()
    return Scheduler(PrefixCache(most, 4, eviction=rule), Limits(max_step_tokens=64)), rule


def test_the_rule_hears_of_the_path_that_the_request_left() -> None:
    scheduler, rule = made()
    serve(scheduler, Request(1, range(10), 3), Request(2, range(100, 120), 1))
    scheduler.note_tool_call(2)
    assert rule.paths == [20]  # five blocks of prompt; the one token of answer fills none
    scheduler.note_tool_call(1)
    assert rule.paths == [20, 12]  # of 10 + 2 computed tokens three blocks are full
    assert scheduler.audit() == []


def test_each_answer_to_a_prompt_is_told_of_by_itself() -> None:
    scheduler, rule = made()
    first, second = Request(1, range(8), 9), Request(2, range(8), 1)
    first.branches = [second]
    scheduler.submit(first)
    plan = scheduler.plan()
    scheduler.commit(plan, [7, 8])
    second_end = scheduler.plan()  # the branch has its one token: it has ended
    scheduler.commit(second_end, [7] * len(second_end.sampling))
    scheduler.note_tool_call(2)
    assert rule.paths == [8]
    scheduler.note_tool_call(1)
    assert rule.paths == [8], "it has not ended"


def test_a_call_is_told_once_and_one_of_nobody_changes_nothing() -> None:
    scheduler, rule = made()
    serve(scheduler, Request(1, range(10), 1))
    for request_id in (2, 1, 1):
        scheduler.note_tool_call(request_id)
    assert rule.paths == [8]


def test_an_aborted_request_is_not_remembered() -> None:
    scheduler, rule = made()
    request = Request(1, range(10), 50)
    scheduler.submit(request)
    scheduler.commit(scheduler.plan(), [7])
    scheduler.abort(request)
    scheduler.note_tool_call(1)
    assert rule.paths == []


def test_the_end_is_remembered_for_half_a_minute_of_steps() -> None:
    scheduler, rule = made()
    serve(scheduler, Request(1, range(10), 1), now=100.0)
    serve(scheduler, Request(2, range(20, 32), 1), now=130.0)
    scheduler.note_tool_call(1)
    assert rule.paths == [8]
    serve(scheduler, Request(3, range(10), 1), now=160.5)
    scheduler.note_tool_call(2)
    assert rule.paths == [8], "30.5 s have passed"


def test_no_more_are_remembered_than_it_is_set_to_and_the_oldest_go() -> None:
    ended = EndedLeases(most=3)
    for number in range(5):
        ended.add(number, f"lease {number}")
    assert len(ended) == 3
    assert [ended.take(number) for number in range(5)] == [
        None,
        None,
        "lease 2",
        "lease 3",
        "lease 4",
    ]
    assert len(ended) == 0


@pytest.mark.parametrize("eviction", ["lru", "lfu", "slru", "fifo", "priority", "agent"])
@pytest.mark.parametrize("gone", ["kept", "evicted", "flushed"])
def test_whatever_became_of_the_path_the_books_stay_right(eviction: str, gone: str) -> None:
    cache = PrefixCache(16, 4, eviction=eviction)
    scheduler = Scheduler(cache, Limits(max_step_tokens=64))
    serve(scheduler, Request(1, range(12), 1), Request(2, range(100, 112), 1))
    if gone == "evicted":
        cache.evict(16)
    elif gone == "flushed":
        cache.flush()
    scheduler.note_tool_call(1)
    assert scheduler.audit() == []
    serve(scheduler, Request(3, range(200, 240), 1))
    assert scheduler.audit() == []
    stored = cache.pool.tree_blocks
    assert cache.evict(16) == stored
    assert scheduler.audit() == []


def test_the_hash_index_takes_no_notice() -> None:
    cache = FlatCache(16, 4)
    scheduler = Scheduler(cache, Limits(max_step_tokens=64))
    serve(scheduler, Request(1, range(12), 1))
    scheduler.note_tool_call(1)
    assert scheduler.audit() == []
    assert cache.match(bytes(Request(2, range(12), 1).run)).num_tokens == 8
