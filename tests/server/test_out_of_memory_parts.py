"""How a step that does not fit into memory is divided, and its copies are made again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from scheduler import Request, ScheduledSpan, StepPlan
from scheduler.request import State
from server.choosing import Chosen
from server.out_of_memory import compute, copy_rows, halves, is_out_of_memory


def span(number: int, count: int, samples: bool = False) -> ScheduledSpan:
    return ScheduledSpan(Request(number, [1] * count, 1), 0, count, samples)


@pytest.mark.parametrize(
    ("counts", "first"),
    [
        ([1, 1], 1),
        ([5, 5, 5, 5], 2),
        ([1900, 1, 1, 1], 1),
        ([1, 1, 1, 1900], 3),
        ([3, 1, 1, 1], 1),
        ([1, 2, 4, 8, 1], 3),
    ],
)
def test_halves_have_about_as_many_tokens(counts: list[int], first: int) -> None:
    spans = [span(number, count) for number, count in enumerate(counts)]
    left, right = halves(spans)
    assert (list(left), list(right)) == (spans[:first], spans[first:])


def test_a_search_with_beams_in_several_parts_is_told_once() -> None:
    search: Any = object()

    def once(plan: StepPlan) -> tuple[StepPlan, Chosen]:
        if len(plan.spans) > 1:
            raise MemoryError
        return plan, Chosen([None], searches=[search])

    spans = (span(1, 1, samples=True), span(2, 1, samples=True))
    for each in spans:
        each.request.state = State.RUNNING
    plan, chosen = compute(StepPlan(spans), once, lambda *_: None)
    assert (plan.spans, chosen.tokens, chosen.searches) == (spans, [None, None], [search])


def test_other_errors_are_passed_on() -> None:
    def broken(_: StepPlan) -> tuple[StepPlan, Chosen]:
        raise RuntimeError("an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal"):
        compute(StepPlan((span(1, 1), span(2, 1))), broken, lambda *_: None)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (MemoryError(), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_what_means_that_memory_ran_out(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) == expected


# Copies


class Rows:
    """Blocks of one row each; memory runs out for more than ``most`` copies at a time."""

    def __init__(self, most: int) -> None:
        self.blocks = {block: str(block) for block in range(6)}
        self.most = most

    def copy(self, copies: Sequence[tuple[int, int, int]]) -> None:
        for number, (source, target, _) in enumerate(copies):
            if number == self.most:
                raise torch.OutOfMemoryError("CUDA out of memory")
            self.blocks[target] = self.blocks[source]


def test_copies_that_do_not_fit_together_are_made_one_by_one() -> None:
    rows = Rows(most=1)
    copy_rows(rows.copy, [(0, 3, 5), (1, 4, 5), (4, 5, 5)])
    assert rows.blocks == {0: "0", 1: "1", 2: "2", 3: "0", 4: "1", 5: "1"}


def test_copies_that_cannot_be_begun_again_are_not() -> None:
    rows = Rows(most=2)
    chain = [(0, 3, 5), (1, 0, 5), (2, 5, 5)]  # block 0 is overwritten once it has been copied
    with pytest.raises(MemoryError, match="--max-step-tokens"):
        copy_rows(rows.copy, chain)
    assert rows.blocks[3] == "0"
    whole = Rows(most=3)
    copy_rows(whole.copy, chain)
    assert (whole.blocks[3], whole.blocks[0], whole.blocks[5]) == ("0", "1", "2")


def test_a_copy_that_does_not_fit_alone_is_told() -> None:
    with pytest.raises(MemoryError, match="--gpu-memory-utilization"):
        copy_rows(Rows(most=0).copy, [(0, 3, 5)])


def test_another_error_of_a_copy_is_passed_on() -> None:
    def broken(_: object) -> None:
        raise ValueError("blocks 1 and 9 must both lie below 6")

    with pytest.raises(ValueError, match="must both lie below"):
        copy_rows(broken, [(1, 9, 1)])
