"""Several answers to one prompt: computed once, shared in full blocks, each with its own tail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from radix_engine.cache import CacheMode
from scheduler import Limits, Request, State
from tests.cache.trees import ids
from tests.checking_model import Bench, answer_alone_of, answer_of
from tests.scheduler.steps import fork_with, goes_on_rightly, step_leaving


def distinct_blocks(requests: list[Request]) -> int:
    return len({block for request in requests for block in request.block_table})


@pytest.mark.parametrize(
    ("length", "shared", "tails"), [(13, 3, 3), (14, 3, 3), (15, 3, 3), (16, 4, 0), (3, 0, 3)]
)
def test_three_answers_share_the_prompts_full_blocks_and_have_a_tail_each(
    length: int, shared: int, tails: int
) -> None:
    bench = Bench(40, 4)
    family = fork_with(bench, bench.submit(ids(length, 1), 12, branches=2), 1, 2, 3)
    assert distinct_blocks(family) == shared + tails
    assert bench.computed == length
    for first, second in ((0, 1), (0, 2), (1, 2)):
        tables = family[first].block_table, family[second].block_table
        assert tables[0][:shared] == tables[1][:shared]
    plan = bench.step()
    assert len(plan.copies) == (0 if not tails else 2), "the parent keeps its own tail"
    assert all(copy.rows == length % 4 for copy in plan.copies)
    while bench.scheduler.has_work:
        assert all(len(request.private_tail(4)) <= 1 for request in family)
        bench.step()
    assert [answer_of(request)[0] for request in family] == [1, 2, 3]
    assert all(goes_on_rightly(request) for request in family)
    counters = bench.scheduler.counters
    assert counters.prompt_tokens == counters.computed_tokens == length
    assert (counters.generated_tokens, counters.requests_finished) == (36, 3)
    assert counters.preemptions == counters.recomputed_tokens == 0
    bench.assert_idle()


def test_a_prompt_in_chunks_is_computed_once_too_and_all_say_what_of_it_was_cached() -> None:
    bench = Bench(60, 4, Limits(max_step_tokens=10, max_running=5))
    bench.answer(ids(21, 1))
    before = bench.scheduler.counters.computed_tokens
    parent = bench.submit([*ids(20, 1), *ids(30, 2)], 5, branches=3)
    family = fork_with(bench, parent, 1, 2, 3, 4)
    bench.run()
    assert bench.scheduler.counters.computed_tokens - before == 30
    assert [request.cached_tokens for request in family] == [20] * 4
    assert [request.num_prompt_tokens for request in family] == [50] * 4
    assert all(goes_on_rightly(request) for request in family)
    bench.assert_idle()


def test_a_branch_that_ends_gives_back_its_own_blocks_and_no_others() -> None:
    bench = Bench(40, 4)
    family = fork_with(bench, bench.submit(ids(14, 1), 9, branches=2), 1, 2, 3)
    pool = bench.cache.pool
    tables = [list(request.block_table) for request in family]
    free, stored = pool.free_blocks, pool.tree_blocks
    bench.scheduler.abort(family[1])
    assert (pool.free_blocks, pool.tree_blocks) == (free + 1, stored)
    assert list(family[0].block_table) == tables[0]
    assert list(family[2].block_table) == tables[2]
    bench.scheduler.abort(family[0])  # the one that computed the prompt
    assert (pool.free_blocks, pool.tree_blocks) == (free + 2, stored)
    assert bench.cache.evictable_blocks == 0, "the last one holds the prompt"
    bench.run()
    assert goes_on_rightly(family[2])
    bench.assert_idle()


@pytest.mark.parametrize(
    ("mode", "stored", "shared"),
    [(CacheMode.BYPASS, 0, 0), (CacheMode.BYPASS, 8, 0), (CacheMode.READ_ONLY, 8, 2)],
)
def test_branches_that_store_nothing_copy_all_that_is_not_in_the_tree(
    mode: CacheMode, stored: int, shared: int
) -> None:
    bench = Bench(40, 4)
    if stored:
        bench.answer(ids(stored, 1))
    tree = bench.cache.pool.tree_blocks
    family = fork_with(bench, bench.submit(ids(14, 1), 9, branches=2, mode=mode), 1, 2, 3)
    assert distinct_blocks(family) == shared + 3 * (4 - shared)
    plan = bench.step()
    assert [copy.rows for copy in plan.copies] == 2 * [*[4] * (3 - shared), 2]
    bench.run()
    assert all(goes_on_rightly(request) for request in family)
    assert bench.cache.pool.tree_blocks == tree
    bench.assert_idle()


def test_all_answers_count_against_the_running_ones_from_the_start() -> None:
    bench = Bench(90, 4, Limits(max_step_tokens=40, max_running=4))
    with pytest.raises(ValueError, match="5 answers at a time are more than max_running, 4"):
        bench.submit(ids(9, 1), 9, branches=4)
    first = fork_with(bench, bench.submit(ids(9, 1), 9, branches=2), 1, 2, 3)
    wide, single = bench.submit(ids(9, 2), 9, branches=2), bench.submit(ids(9, 3), 20)
    bench.step()
    assert wide.state is State.WAITING, "one place is left, and it needs three"
    assert single.state is State.RUNNING
    assert bench.scheduler.num_running == 4
    bench.scheduler.abort(first[0])
    bench.step()
    assert wide.state is State.WAITING, "one place is left, and it needs three"
    bench.scheduler.abort(first[1])
    never, other = wide.branches
    bench.scheduler.abort(never)
    plan = bench.step()
    assert wide in [span.request for span in plan.spans], "two are left, and it needs no more"
    bench.run()
    assert goes_on_rightly(first[2])
    for request in (wide, other, single):
        assert answer_of(request) == answer_alone_of(request)
    bench.assert_idle()


def test_two_prompts_that_come_together_do_not_take_the_places_of_each_others_branches() -> None:
    bench = Bench(90, 4, Limits(max_step_tokens=40, max_running=5))
    for seed in (1, 2):
        bench.submit(ids(9, seed), 9, branches=2)
    single = bench.submit(ids(9, 3), 9)
    plan = bench.step()
    assert [span.request for span in plan.spans] == [bench.requests[0], single]
    bench.run()
    assert bench.scheduler.counters.preemptions == 0
    assert all(answer_of(request) == answer_alone_of(request) for request in bench.requests)


def test_a_prompt_next_to_others_starts_when_there_is_room_for_all_its_tails() -> None:
    bench = Bench(12, 4)
    other = bench.submit(ids(14, 1), 3)  # 4 blocks, and 1 is kept for its answer
    bench.step()
    wide, narrow = bench.submit(ids(14, 2), 9, branches=4), bench.submit(ids(7, 3), 2, branches=1)
    bench.step()
    assert wide.state is State.WAITING, "7 blocks are left, and it needs 4 and 4 more"
    assert narrow.lease is not None, "it needs 2 and 1 more"
    bench.run()
    for request in (other, wide, narrow):
        assert answer_of(request) == answer_alone_of(request)


def test_without_room_a_branch_waits_and_computes_only_its_tail_again() -> None:
    bench = Bench(5, 4)
    parent = bench.submit(ids(14, 1), 3, branches=2)  # 4 blocks, and a tail for each branch
    family = fork_with(bench, parent, 1, 2, 3)
    assert [request.state for request in family] == [State.RUNNING, State.RUNNING, State.WAITING]
    assert family[2].preemptions == 1
    later = bench.submit(ids(3, 2))
    while family[2].state is State.WAITING:
        assert later.state is State.WAITING
        bench.step()
    bench.run()
    assert all(goes_on_rightly(request) for request in family)
    counters = bench.scheduler.counters
    assert (counters.computed_tokens, counters.recomputed_tokens) == (14 + 3, 2)
    bench.assert_idle()


@pytest.mark.parametrize("blocks", [4, 6, 9])
@pytest.mark.parametrize("branches", [1, 3])
def test_branches_over_far_too_little_memory_answer_rightly_one_after_the_other(
    blocks: int, branches: int
) -> None:
    bench = Bench(blocks, 4)
    for seed in range(3):
        bench.submit(ids(5 + seed, seed), 9, branches=branches)
    bench.run()
    assert len(bench.requests) == bench.scheduler.counters.requests_finished == 3 * (1 + branches)
    assert all(answer_of(request) == answer_alone_of(request) for request in bench.requests)
    bench.assert_idle()


def waiting(bench: Bench) -> Request:
    return bench.submit(ids(26, 1), 6, branches=2)


def in_the_middle_of_the_prompt(bench: Bench) -> Request:
    parent = waiting(bench)
    bench.step()
    assert 0 < parent.num_computed_tokens < 26
    return parent


def undecided(bench: Bench) -> Request:
    parent = waiting(bench)
    while parent.remaining_tokens:
        step_leaving(bench, parent)
    return parent


@pytest.mark.parametrize("reach", [waiting, in_the_middle_of_the_prompt, undecided])
def test_when_the_one_that_computes_the_prompt_is_aborted_its_branches_go_on(
    reach: Callable[[Bench], Request],
) -> None:
    bench = Bench(40, 4, Limits(max_step_tokens=12, max_running=4))
    parent = reach(bench)
    computed = parent.num_computed_tokens
    heir, other = parent.branches
    bench.scheduler.abort(parent)
    assert (heir.state, heir.branches, other.state) == (State.WAITING, [other], State.BRANCH)
    bench.run()
    assert answer_of(heir) == answer_of(other) == answer_alone_of(heir)
    assert heir.cached_tokens == other.cached_tokens == min(computed, 25) // 4 * 4
    assert bench.scheduler.counters.requests_finished == 2
    bench.assert_idle()


def test_when_it_is_aborted_in_the_step_that_computes_the_prompt_its_branches_go_on() -> None:
    bench = Bench(40, 4)
    parent, sibling = waiting(bench), bench.submit(ids(26, 1), 6)
    heir, other = parent.branches
    bench.step(abort=[parent])
    bench.run()
    for request in (heir, other, sibling):
        assert answer_of(request) == answer_alone_of(request)
    bench.assert_idle()


def test_branches_that_are_aborted_before_they_fork_off_are_never_computed() -> None:
    bench = Bench(40, 4)
    parent = bench.submit(ids(14, 1), 6, branches=2)
    for branch in list(parent.branches):
        bench.scheduler.abort(branch)
        assert branch.state is State.FINISHED
    assert parent.width == 1
    bench.run()
    assert bench.scheduler.counters.generated_tokens == 6
    assert bench.scheduler.counters.requests_aborted == 2
    assert answer_of(parent) == answer_alone_of(parent)
    bench.assert_idle()


def flushed_half_way(bench: Bench) -> Request:
    parent = bench.submit(ids(60, 1), 30, branches=2)
    bench.step()
    assert parent.num_computed_tokens == 40
    bench.cache.flush()
    return parent


def test_no_one_waits_for_a_branch_whose_prompt_was_flushed() -> None:
    bench = Bench(60, 4, Limits(max_step_tokens=40, max_running=8))
    family = fork_with(bench, flushed_half_way(bench), 1, 2, 3)
    sibling = bench.submit(ids(30, 1), 3)
    bench.step()
    assert sibling.state is State.RUNNING
    assert sibling.cached_tokens == 0
    bench.run()
    assert answer_of(sibling) == answer_alone_of(sibling)
    assert all(goes_on_rightly(request) for request in family)
    bench.assert_idle()
