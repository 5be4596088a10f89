"""Tokens that are decided after the step: the answer goes on as if they had come with it."""

from __future__ import annotations

import pytest

from scheduler import Limits, Request, State
from tests.cache.trees import ids
from tests.checking_model import Bench, answer_alone, answer_alone_of, answer_of
from tests.scheduler.steps import decide, goes_on_rightly, step_leaving


def undecided_after(bench: Bench, request: Request, new: int) -> Request:
    """Step until the request has ``new`` tokens and the next one is undecided."""
    while request.num_new_tokens < new:
        bench.step()
    while request.remaining_tokens:
        step_leaving(bench, request)
    return request


def branches_of(bench: Bench, parent: Request, count: int) -> list[Request]:
    """New requests that may fork off a running one."""
    number = len(bench.requests) + 1
    prompt = parent.tokens[: parent.num_prompt_tokens]
    new = [Request(number + index, prompt, parent.max_new_tokens) for index in range(count)]
    bench.requests.extend(new)
    return new


def test_while_a_token_is_undecided_the_others_go_on_and_nothing_is_lost() -> None:
    bench = Bench(30, 4)
    request = undecided_after(bench, bench.submit(ids(9, 1), 8), 3)
    other = bench.submit(ids(9, 2), 8)
    held = list(request.block_table)
    for _ in range(5):
        plan = bench.step()
        assert [span.request for span in plan.spans] == [other]
        assert list(request.block_table) == held
        assert request.num_new_tokens == 3
    decide(bench, request)
    assert [(new.request, new.finish_reason) for new in bench.results] == [(request, None)]
    bench.run()
    assert answer_of(request) == answer_alone_of(request)
    assert answer_of(other) == answer_alone_of(other)
    bench.assert_idle()


@pytest.mark.parametrize(("new", "stop", "reason"), [(3, False, "length"), (8, True, "stop")])
def test_a_decided_token_may_be_the_last(new: int, stop: bool, reason: str) -> None:
    third = answer_alone(ids(9, 1), 3)[2]
    assert third not in answer_alone(ids(9, 1), 2)
    bench = Bench(30, 4)
    request = bench.submit(ids(9, 1), new, frozenset({third} if stop else ()))
    undecided_after(bench, request, 2)
    decide(bench, request)
    assert [result.finish_reason for result in bench.results] == [reason]
    assert answer_of(request) == answer_alone(ids(9, 1), 3)
    assert bench.scheduler.counters.generated_tokens == 3
    bench.assert_idle()


def test_branches_that_were_submitted_fork_off_when_the_first_token_is_decided() -> None:
    bench = Bench(30, 4)
    parent = bench.submit(ids(14, 1), 6, branches=2)
    family = [parent, *parent.branches]
    undecided_after(bench, parent, 0)
    assert [branch.state for branch in parent.branches] == [State.BRANCH] * 2
    bench.scheduler.abort(family[1])
    decide(bench, parent, 1, 3)
    assert [new.token for new in bench.results] == [1, 3]
    bench.run()
    assert goes_on_rightly(family[0])
    assert goes_on_rightly(family[2])
    assert bench.computed == 14 + 2 * 5
    bench.assert_idle()


@pytest.mark.parametrize("prompt", [13, 14, 15, 16])
def test_new_branches_fork_off_in_the_middle_of_an_answer(prompt: int) -> None:
    bench = Bench(40, 4)
    parent = undecided_after(bench, bench.submit(ids(prompt, 1), 9), 4)
    so_far = list(parent.tokens)
    new = branches_of(bench, parent, 2)
    parent.branches = list(new)
    computed = bench.computed
    decide(bench, parent, 1, 2, 3)
    assert len({block for r in (parent, *new) for block in r.block_table}) == (
        (prompt + 4) // 4 + (3 if (prompt + 4) % 4 else 0)
    )
    bench.run()
    for request, token in zip((parent, *new), (1, 2, 3), strict=True):
        assert list(request.tokens)[: len(so_far) + 1] == [*so_far, token]
        assert answer_of(request)[5:] == answer_alone([*so_far, token], 4)
    assert bench.computed - computed == 3 * 4
    assert bench.scheduler.counters.prompt_tokens == prompt, "the prompt counts once"
    bench.assert_idle()


def test_one_that_is_preempted_while_undecided_waits_for_the_decision_and_then_for_room() -> None:
    bench = Bench(8, 4)
    first = bench.submit(ids(8, 1), 20)
    request = undecided_after(bench, bench.submit(ids(8, 2), 8), 5)
    while not request.preemptions:
        bench.step()
    assert request.state is State.PARKED
    while not bench.scheduler.counters.requests_finished:
        assert all(span.request is first for span in bench.step().spans)
    assert not bench.scheduler.has_work, "nothing can be done before it is decided"
    decide(bench, request)
    bench.run()
    assert answer_of(request) == answer_alone_of(request)
    assert answer_of(first) == answer_alone_of(first)
    bench.assert_idle()


def test_the_prompt_of_branches_that_fork_off_a_parked_request_counts_once() -> None:
    bench = Bench(20, 4)
    parent = bench.submit(ids(14, 1), 6, branches=2)
    family = [parent, *parent.branches]
    undecided_after(bench, parent, 0)
    bench.scheduler._requests.preempt(parent)  # as if blocks had run out
    decide(bench, parent, 1, 2, 3)
    assert [request.state for request in family] == [State.WAITING] * 3
    bench.cache.flush()  # so that nothing is found again
    bench.run()
    assert all(goes_on_rightly(request) for request in family)
    counters = bench.scheduler.counters
    assert counters.prompt_tokens == counters.computed_tokens == 14
    # The first of them computes the prompt again, the others find its full blocks.
    assert (counters.recomputed_tokens, counters.cached_late_tokens) == (14 + 2 + 2, 0)
    bench.assert_idle()


def test_a_branch_off_a_decided_request_waits_where_no_more_may_run() -> None:
    bench = Bench(40, 4, Limits(max_step_tokens=8, max_running=2))
    parent, other = bench.submit(ids(3, 1), 9), bench.submit(ids(3, 2), 9)
    undecided_after(bench, parent, 2)
    (branch,) = parent.branches = branches_of(bench, parent, 1)
    decide(bench, parent, 1, 2)
    assert bench.scheduler.num_running == 2
    assert branch.state is State.WAITING
    bench.run()
    assert answer_of(other) == answer_alone_of(other)
    so_far = [*ids(3, 1), *answer_alone(ids(3, 1), 2)]
    assert answer_of(branch)[2:] == [2, *answer_alone([*so_far, 2], 6)]
    bench.assert_idle()


def test_two_that_wait_for_each_others_tokens_get_on_where_only_one_has_room() -> None:
    bench = Bench(5, 4)
    parent = bench.submit(ids(9, 1), 12, branches=1)
    pair = [parent, *parent.branches]
    undecided_after(bench, parent, 0)
    decide(bench, parent, 1, 2)
    for _ in range(100):
        going_on = [request for request in pair if request.state is not State.FINISHED]
        if not going_on:
            break
        if all(not r.remaining_tokens or r.state is State.PARKED for r in going_on):
            for request in going_on:
                decide(bench, request)
        else:
            step_leaving(bench, *going_on)
    assert bench.scheduler.counters.preemptions > 1
    assert all(goes_on_rightly(request) for request in pair)
    bench.assert_idle()


def test_the_wrong_number_of_tokens_is_refused_without_change() -> None:
    bench = Bench(20, 4)
    parent = bench.submit(ids(9, 1), 4, branches=2)
    plan = bench.scheduler.plan()
    bench.model.step(plan)
    wrong: list[tuple[list[int | None], str]] = [
        ([], "1 requests wait for a token, 0 came"),
        ([1], "3 requests wait for a token, 1 came"),
        ([1, 2, 3, 4], "3 requests wait for a token, 4 came"),
        ([None, 2, 3], "1 requests wait for a token, 3 came"),
        ([1, None, 3], "a branch cannot fork off without a token"),
    ]
    for tokens, message in wrong:
        with pytest.raises(ValueError, match=message):
            bench.scheduler.commit(plan, tokens)
    assert parent.num_computed_tokens == 0
    bench.scheduler.commit(plan, [None])
    for count in (0, 1, 2, 4):
        with pytest.raises(ValueError, match=f"{count} tokens came for 3 requests"):
            bench.scheduler.resume(parent, [1] * count)
    decide(bench, parent)
    bench.run()
    assert all(answer_of(request) == answer_alone_of(request) for request in bench.requests)
    bench.assert_idle()
