"""A step that is planned while the one before is computed gives the same answers, and reads no
block that was given to somebody else meanwhile."""

from __future__ import annotations

from itertools import pairwise

import pytest

from radix_engine.cache.block_pool import IN_FLIGHT, PRIVATE
from scheduler import Ended, Limits, NewToken, Request, State
from tests.cache.trees import ids
from tests.checking_model import answer_alone, answer_alone_of, answer_of
from tests.scheduler.look_ahead import LookAheadBench


def stopping_after(length: int, count: int) -> tuple[list[int], list[int]]:
    """A prompt, and its answer's first tokens, whose last one comes for the first time."""
    for seed in range(100):
        answer = answer_alone(ids(length, seed), count)
        if answer[-1] not in answer[:-1]:
            return ids(length, seed), answer
    raise AssertionError("no such prompt")


def test_decoding_loses_no_step() -> None:
    bench = LookAheadBench(64)
    requests = [bench.submit(ids(20, seed), 12) for seed in range(3)]
    plans = bench.run()
    # One for the prompts, 11 for the other tokens, one to learn the last ones.
    assert [plan.num_tokens for plan in plans] == [60] + [3] * 11 + [0]
    assert bench.gone_ahead == 12
    for request in requests:
        assert answer_of(request) == answer_alone_of(request)
    bench.assert_idle()


def test_a_stop_token_costs_one_step_whose_result_is_thrown_away() -> None:
    prompt, answer = stopping_after(20, 5)
    bench = LookAheadBench(64)
    request = bench.submit(prompt, 9, frozenset({answer[-1]}))
    plans = bench.run()
    assert answer_of(request) == answer
    # The prompt, four steps for the other tokens, and the one too many.
    assert [plan.num_tokens for plan in plans] == [20, 1, 1, 1, 1, 1]
    assert bench.scheduler.counters.generated_tokens == 5
    bench.assert_idle()


def test_a_block_of_one_that_ended_goes_to_another_while_a_step_still_reads_it() -> None:
    """The blocks of a request that ended at one step are written by another's prompt in the next
    but one; between the two a step is computed that reads them."""
    prompt, answer = stopping_after(16, 2)
    bench = LookAheadBench(2, limits=Limits(64, 2))
    first = bench.submit(prompt, 8, frozenset({answer[1]}))
    bench.step()
    bench.step()
    tail = first.block_table[1]
    second = bench.submit(ids(20, 2), 4)
    bench.step()  # the stop token is known now, and the step that reads the block still runs
    assert first.state is State.FINISHED
    bench.step()
    assert tail in second.block_table
    bench.run()
    assert answer_of(first) == answer
    assert answer_of(second) == answer_alone_of(second)
    bench.assert_idle()


def test_nobody_is_preempted_before_it_is_known_what_comes_free() -> None:
    # Both need two of the four blocks. The second needs a third one just when the first's stop
    # token is being sampled.
    prompt, answer = stopping_after(16, 16)
    bench = LookAheadBench(4, limits=Limits(64, 4))
    first = bench.submit(prompt, 40, frozenset({answer[-1]}))
    second = bench.submit(ids(17, 2), 20)
    bench.run()
    assert answer_of(first) == answer
    assert answer_of(second) == answer_alone_of(second)
    assert bench.scheduler.counters.preemptions == 0
    bench.assert_idle()


def test_who_lacks_room_sits_out_one_step_and_then_has_others_preempted() -> None:
    bench = LookAheadBench(5, limits=Limits(64, 4))
    # The second takes the last block one step before the first needs it.
    requests = [bench.submit(ids(16, 1), 40), bench.submit(ids(17, 2), 40)]
    in_turn = [requests[0] in [span.request for span in plan.spans] for plan in bench.run()]
    assert bench.scheduler.counters.preemptions > 0
    its_own = in_turn[:40]
    assert not all(its_own)
    assert all(one or other for one, other in pairwise(its_own))
    assert [answer_of(request) for request in requests] == [
        answer_alone_of(request) for request in requests
    ]
    bench.assert_idle()


def together(bench: LookAheadBench) -> tuple[Request, Request]:
    """Two requests of one step, the second of which stands on what the first computes in it."""
    one = bench.submit(ids(40, 1), 4)
    other = bench.submit([*ids(40, 1), 7], 4)
    return one, other


def test_who_is_sent_back_in_flight_starts_again_and_what_was_computed_is_thrown_away() -> None:
    bench = LookAheadBench(32, limits=Limits(64, 4))
    one, other = together(bench)
    plan = bench.step(abort_later=[one])
    assert [span.request for span in plan.spans] == [one, other]
    assert other.state is State.WAITING
    assert not bench.scheduler.awaits(other)
    bench.step()  # it runs again, and the result of the step in flight is not for this run
    assert other.request_id in [each.request_id for each in bench.scheduler._running]
    assert bench.results == []
    bench.run()
    assert answer_of(other) == answer_alone_of(other)
    assert bench.scheduler.counters.computed_tokens == 41 - 32  # what was cached at first is again
    assert bench.scheduler.counters.recomputed_tokens == 32
    bench.assert_idle()


def test_who_stands_on_one_that_is_aborted_in_flight_counts_no_token_twice() -> None:
    bench = LookAheadBench(32, limits=Limits(64, 4))
    one, other = together(bench)
    bench.step()
    bench.step(abort=[one])
    assert other.preemptions == 1
    bench.run()
    assert answer_of(other) == answer_alone_of(other)
    counters = bench.scheduler.counters
    # The first prompt's 40 tokens were never committed, and 32 of them were found by the second.
    assert counters.cached_tokens == 32
    assert counters.computed_tokens + counters.cached_late_tokens == 41 - 32
    assert counters.generated_tokens == 4
    bench.assert_idle()


def test_what_the_next_step_will_compute_is_not_taken_for_computed() -> None:
    bench = LookAheadBench(32, limits=Limits(32, 4))
    one = bench.submit(ids(96, 1), 4)
    bench.submit([*ids(96, 1), 7], 4)
    for _ in range(2):
        bench.step()
        computed = one.num_computed_tokens - one.ahead
        owners = [bench.cache.pool.owner_of(block) for block in one.block_table[computed // 16 :]]
        assert owners
        assert all(owner in (PRIVATE, IN_FLIGHT) for owner in owners)
    bench.run()
    bench.assert_idle()


def test_a_second_step_cannot_go_ahead_of_one_that_is_not_committed() -> None:
    bench = LookAheadBench(8)
    bench.submit(ids(5, 1), 4)
    plan = bench.step()
    with pytest.raises(RuntimeError, match="has not been committed"):
        bench.scheduler.go_ahead(plan)


def test_what_is_computed_of_a_running_request_counts_whether_or_not_others_went_ahead() -> None:
    bench = LookAheadBench(8)
    request = bench.submit(ids(5, 1), 4)
    plan = bench.scheduler.plan()
    assert bench.scheduler.awaits(request)
    assert bench.scheduler.go_ahead(plan)
    assert bench.scheduler.is_ahead
    assert bench.scheduler.awaits(request)
    bench.scheduler.abort(request)
    assert not bench.scheduler.awaits(request)


def test_branches_fork_off_before_the_next_step_is_planned() -> None:
    bench = LookAheadBench(32)
    first = bench.submit(ids(20, 3), 6, branches=2)
    family = [first, *first.branches]
    bench.run()
    assert bench.gone_ahead > 0
    for request in family:
        assert answer_of(request) == answer_alone_of(request)
    bench.assert_idle()


def test_a_token_that_is_being_sampled_at_the_deadline_is_the_last_one() -> None:
    bench = LookAheadBench(32)
    late, other = bench.submit(ids(20, 1), 9, deadline=3.0), bench.submit(ids(20, 2), 9)
    for _ in range(3):
        bench.step()
    assert late.num_new_tokens == 3  # the last of them is being sampled
    bench.now = 3.0
    plan = bench.step()
    assert [span.request for span in plan.spans] == [other]
    assert NewToken(late, answer_alone(ids(20, 1), 3)[-1], "length") in bench.results
    assert late.state is State.FINISHED
    assert answer_of(late) == answer_alone(ids(20, 1), 3)
    bench.run()
    assert answer_of(other) == answer_alone_of(other)
    assert bench.ended == []
    bench.assert_idle()


def test_the_last_token_of_an_answer_counts_though_its_deadline_comes_meanwhile() -> None:
    bench = LookAheadBench(32)
    request = bench.submit(ids(20, 1), 2, deadline=2.0)
    bench.step()
    bench.step()
    bench.now = 2.0
    bench.run()
    assert answer_of(request) == answer_alone(ids(20, 1), 2)
    assert bench.scheduler.counters.requests_finished == 1
    bench.assert_idle()


def test_a_prompt_in_flight_ends_at_its_deadline_since_no_token_is_near() -> None:
    bench = LookAheadBench(32, limits=Limits(32, 4))
    request = bench.submit(ids(96, 1), 2, deadline=1.0)
    bench.step()
    bench.now = 1.0
    assert [ended.request for ended in bench.step().ended] == [request]
    assert answer_of(request) == []
    bench.assert_idle()


def test_who_is_sent_back_past_its_deadline_ends_at_the_next_step() -> None:
    bench = LookAheadBench(32, limits=Limits(64, 4))
    one = bench.submit(ids(40, 1), 4)
    other = bench.submit([*ids(40, 1), 7], 4, deadline=1.0)
    bench.step()
    bench.now = 1.0
    bench.step(abort=[one])  # on which the other stands
    assert other.state is State.WAITING
    assert bench.step().ended == (Ended(other, "deadline"),)
    assert answer_of(other) == []
    bench.assert_idle()
