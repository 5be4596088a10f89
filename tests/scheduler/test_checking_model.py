"""The checking model must see each kind of wrong memory, or the other tests prove nothing."""

from __future__ import annotations

from array import array

import pytest

from radix_engine.cache import token_array
from scheduler import Request, StepPlan
from tests.cache.trees import ids
from tests.checking_model import (
    VOCABULARY,
    Bench,
    WrongMemory,
    answer_alone,
    next_token,
    prefix_hashes,
)


@pytest.fixture
def bench() -> Bench:
    return Bench(16, block_size=4)


def planned(bench: Bench, prompt: list[int]) -> tuple[StepPlan, Request]:
    """A plan that computes what is left of one prompt."""
    request = bench.submit(prompt, 2)
    return bench.scheduler.plan(), request


def refused(bench: Bench, plan: StepPlan, message: str) -> None:
    with pytest.raises(WrongMemory, match=message):
        bench.model.step(plan)


def test_an_answer_depends_on_every_token_of_the_prefix() -> None:
    prompt = ids(40, 1)
    answers = {tuple(answer_alone(prompt, 12))}
    for position in range(40):
        other = [*prompt[:position], 3, *prompt[position + 1 :]]
        answers.add(tuple(answer_alone(other, 12)))
    assert len(answers) == 41
    assert all(0 <= token < VOCABULARY for answer in answers for token in answer)


def test_an_answer_goes_on_from_its_own_tokens_and_ends_at_a_stop_token() -> None:
    prompt = ids(7, 1)
    answer = answer_alone(prompt, 5)
    assert len(answer) == 5
    for length in range(5):
        assert answer[length] == next_token(prefix_hashes([*prompt, *answer[:length]])[-1])
    stop = next(length for length in range(5) if answer[length] not in answer[:length])
    assert answer_alone(prompt, 5, frozenset({answer[stop]})) == answer[: stop + 1]


def test_a_sound_plan_is_computed(bench: Bench) -> None:
    plan, request = planned(bench, ids(9, 1))
    assert bench.model.step(plan) == answer_alone(ids(9, 1), 1)
    assert len(request.block_table) == 3


def test_writing_a_block_of_the_tree_is_seen(bench: Bench) -> None:
    bench.answer(ids(8, 1))
    plan, request = planned(bench, ids(9, 1))
    request.block_table[2] = request.block_table[0]
    refused(bench, plan, "which is not its own")


def test_writing_a_free_block_is_seen(bench: Bench) -> None:
    plan, request = planned(bench, ids(9, 1))
    request.block_table[1] = bench.cache.pool.free_list()[0]
    refused(bench, plan, "which is not its own")


def test_two_that_write_one_block_are_seen(bench: Bench) -> None:
    one, two = bench.submit(ids(9, 1)), bench.submit(ids(9, 2))
    plan = bench.scheduler.plan()
    assert len(plan.spans) == 2
    two.block_table[1] = one.block_table[1]
    refused(bench, plan, "another does so too")


def test_reading_the_block_of_another_prefix_is_seen(bench: Bench) -> None:
    bench.answer(ids(8, 1))
    other = bench.answer(ids(8, 2)).tokens
    stored = bench.cache.lease(bench.cache.match(other.tobytes())).blocks()
    plan, request = planned(bench, ids(9, 1))
    request.block_table[:1] = stored[:1]
    refused(bench, plan, "which is another prefix's")


def test_reading_the_right_tokens_after_another_prefix_is_seen(bench: Bench) -> None:
    tail = ids(4, 7)
    bench.answer([*ids(4, 1), *tail])
    bench.answer([*ids(4, 2), *tail])
    leases = [
        bench.cache.lease(bench.cache.match(token_array([*ids(4, s), *tail, 0]).tobytes()))
        for s in (1, 2)
    ]
    plan, request = planned(bench, [*ids(4, 1), *tail, 5])
    assert list(request.block_table[:2]) == list(leases[0].blocks())
    request.block_table[1:2] = leases[1].blocks()[1:2]
    refused(bench, plan, "which is another prefix's")


def test_reading_a_block_that_was_freed_in_between_is_seen(bench: Bench) -> None:
    bench.answer(ids(8, 1))
    plan, request = planned(bench, ids(9, 1))
    taken: array[int] = request.block_table[:1]
    bench.cache.pool.free_from_tree(taken)
    refused(bench, plan, "never written or is freed")


def test_skipping_a_token_is_seen(bench: Bench) -> None:
    plan, request = planned(bench, ids(9, 1))
    bench.scheduler.commit(plan, bench.model.step(plan))
    following = bench.scheduler.plan()
    (span,) = following.spans
    assert span.start == 9
    request.tokens.append(1)
    skipping = StepPlan((span._replace(start=10, samples=True),))
    refused(bench, skipping, "never written or is freed")


def test_a_span_past_its_blocks_is_seen(bench: Bench) -> None:
    plan, request = planned(bench, ids(9, 1))
    del request.block_table[2:]
    refused(bench, plan, "2 blocks do not cover 9")
