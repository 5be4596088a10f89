from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler import Limits, Request, State
from tests.cache.trees import ids
from tests.checking_model import Bench, answer_alone_of, answer_of

LIMITS = Limits(max_step_tokens=8, max_running=3)


def queued(bench: Bench) -> Request:
    return bench.submit(ids(20, 1), 4)


def queued_and_matched(bench: Bench) -> Request:
    bench.answer(ids(16, 1))
    bench.submit(ids(24, 2), 8)
    bench.step()
    request = bench.submit([*ids(16, 1), *ids(14, 3)], 4)  # too long to run next to the other
    bench.step()
    assert request.state is State.WAITING
    assert request.match is not None
    assert request.match.num_tokens == 16
    return request


def before_its_second_chunk(bench: Bench) -> Request:
    request = bench.submit(ids(30, 1), 4)
    bench.step()
    assert 0 < request.num_computed_tokens < 30
    return request


def in_the_middle_of_a_block(bench: Bench) -> Request:
    bench.submit(ids(5, 2), 20)
    request = bench.submit(ids(30, 1), 4)
    while request.num_computed_tokens % 4 == 0:
        bench.step()
    return request


def decoding(bench: Bench) -> Request:
    request = bench.submit(ids(10, 1), 10)
    while request.num_new_tokens < 3:
        bench.step()
    return request


def preempted(bench: Bench) -> Request:
    bench.submit(ids(6, 1), 26)
    request = bench.submit(ids(6, 2), 26)
    while not request.preemptions:
        bench.step()
    assert request.state is State.WAITING
    return request


def resumed(bench: Bench) -> Request:
    request = preempted(bench)
    while request.state is State.WAITING:
        bench.step()
    assert request.state is State.RUNNING
    return request


def reading_a_flushed_tree(bench: Bench) -> Request:
    bench.answer(ids(16, 1))
    request = bench.submit(ids(20, 1), 9)
    bench.step()
    bench.cache.flush()
    bench.step()
    assert request.cached_tokens == 16
    return request


def finished(bench: Bench) -> Request:
    return bench.answer(ids(10, 1), 3)


STATES: list[Callable[[Bench], Request]] = [
    queued,
    queued_and_matched,
    before_its_second_chunk,
    in_the_middle_of_a_block,
    decoding,
    preempted,
    resumed,
    reading_a_flushed_tree,
    finished,
]


@pytest.mark.parametrize("reach", STATES)
def test_an_abort_in_any_state_gives_everything_back_and_a_second_one_does_nothing(
    reach: Callable[[Bench], Request],
) -> None:
    bench = Bench(12, 4, LIMITS)
    request = reach(bench)
    was_finished = request.state is State.FINISHED
    tokens = list(request.tokens)
    for _ in range(2):
        bench.scheduler.abort(request)
        assert request.state is State.FINISHED
        assert request.lease is None
        assert len(request.block_table) == 0
        assert bench.scheduler.audit() == []
        assert bench.scheduler.counters.requests_aborted == (0 if was_finished else 1)
        assert bench.cache.counters.repeated_releases == 0
    bench.run()
    assert list(request.tokens) == tokens, "nothing more was generated"
    others = [other for other in bench.requests if other is not request]
    assert all(answer_of(other) == answer_alone_of(other) for other in others)
    bench.assert_idle()


def test_an_abort_of_the_last_request_leaves_nothing_to_do() -> None:
    bench = Bench(12, 4, LIMITS)
    request = decoding(bench)
    bench.scheduler.abort(request)
    assert not bench.scheduler.has_work
    assert bench.scheduler.plan().spans == ()
    assert bench.cache.pool.private_blocks == 0


def test_what_an_aborted_request_had_published_is_found_by_the_next() -> None:
    bench = Bench(12, 4, LIMITS)
    bench.scheduler.abort(before_its_second_chunk(bench))
    again = bench.answer(ids(30, 1), 4)
    assert again.cached_tokens == 8
    assert answer_of(again) == answer_alone_of(again)


def test_when_the_one_that_computes_a_common_head_is_aborted_a_sibling_takes_over() -> None:
    bench = Bench(32, 4, LIMITS)
    first = bench.submit(ids(41, 1), 3)
    siblings = [bench.submit([*ids(40, 1), *ids(3, seed)], 3) for seed in (2, 3)]
    bench.step()
    bench.step()
    assert all(sibling.state is State.WAITING for sibling in siblings)
    bench.scheduler.abort(first)
    bench.run()
    assert all(answer_of(sibling) == answer_alone_of(sibling) for sibling in siblings)
    assert siblings[0].cached_tokens == first.num_computed_tokens // 4 * 4
    assert bench.scheduler.counters.computed_tokens == first.num_computed_tokens + (
        43 - siblings[0].cached_tokens + 3
    )
    bench.assert_idle()


def test_a_finished_request_is_not_counted_as_aborted_and_the_other_way_round() -> None:
    bench = Bench(12, 4, LIMITS)
    done, cut = bench.answer(ids(9, 1), 2), bench.submit(ids(9, 2), 2)
    bench.scheduler.abort(done)
    bench.scheduler.abort(cut)
    bench.scheduler.finish(cut)
    counters = bench.scheduler.counters
    assert (counters.requests_finished, counters.requests_aborted) == (1, 1)
