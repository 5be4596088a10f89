"""Steps that do not fit into memory are computed in smaller parts.

A step that failed has changed nothing but K and V of positions that do not count as computed, so it
may be computed again. Parts keep the plan's order: a request that reads what another one computes
in the same step comes after it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import islice

import torch

from radix_engine.parallel.errors import ParallelError
from scheduler import Request, ScheduledSpan, StepPlan
from server.choosing import Chosen

logger = logging.getLogger(__name__)

Copies = Sequence[tuple[int, int, int]]
Compute = Callable[[StepPlan], tuple[StepPlan, Chosen]]

_REMEDY = (
    "memory ran out computing this request, even alone; start the server with a smaller "
    "--max-step-tokens, or leave more memory free with a smaller --kv-memory or "
    "--gpu-memory-utilization"
)
# How torch and CUDA's libraries say it where they have no error of their own for it.
_WORDS = ("out of memory", "can't allocate memory", "ALLOC_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory, of a GPU or of the machine, did not suffice; less may then be computed."""
    if isinstance(error, ParallelError):
        return False  # whatever its text says: nothing can be computed any more
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _WORDS)


def compute(
    plan: StepPlan, once: Compute, fail: Callable[[list[Request], str], None]
) -> tuple[StepPlan, Chosen]:
    """``once`` of a plan with spans; where memory runs out, of its halves, one after the other.

    ``once`` computes a plan and chooses tokens; it may end requests, and returns the plan without
    them. A request that does not fit even alone is ended by ``fail``. Returns the plan of those
    that still run, and what was chosen for them. Other errors are passed on. Where memory suffices
    this costs nothing; otherwise up to log2(spans) times the step.
    """
    todo = [plan]
    joined = Chosen()
    tokens: dict[int, list[int | None]] = {}  # by request
    while todo:
        part = todo.pop()
        if part is not plan:
            part = part.still_running  # an earlier part's failure may have sent others back
        if not part.spans:
            continue
        done = _attempt(once, part)
        if done is not None and part is plan:
            return done
        if done is not None:
            tokens.update(_tokens_of(*done))
            _add(joined, done[1])
        elif len(part.spans) > 1:
            first, second = halves(part.spans)
            todo += [StepPlan(second), StepPlan(first)]
        else:
            fail([part.spans[0].request], _REMEDY)
    plan = plan.still_running
    for span in plan.sampling:
        joined.tokens.extend(tokens[span.request.request_id])
    return plan, joined


def copy_rows(copy: Callable[[Copies], None], copies: Copies) -> None:
    """Make a step's copies; where memory runs out, one at a time.

    Raises MemoryError where it runs out even so, or where they cannot be begun again: a block that
    has been a source may have changed since.
    """
    try:
        copy(copies)
        return
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        logger.warning("memory ran out making %d copies", len(copies))
        if not _may_be_repeated(copies):
            raise MemoryError(_REMEDY) from error
    torch.cuda.empty_cache()
    for each in copies:
        try:
            copy([each])
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            raise MemoryError(_REMEDY) from error


def halves(
    spans: Sequence[ScheduledSpan],
) -> tuple[tuple[ScheduledSpan, ...], tuple[ScheduledSpan, ...]]:
    """Two parts, in order, neither empty, whose tokens differ as little as can be."""
    total, before, best = sum(span.count for span in spans), 0, 0
    smallest = total
    for cut, span in enumerate(spans[:-1], start=1):
        before += span.count
        if abs(total - 2 * before) < smallest:
            best, smallest = cut, abs(total - 2 * before)
    return tuple(spans[:best]), tuple(spans[best:])


def _attempt(once: Compute, plan: StepPlan) -> tuple[StepPlan, Chosen] | None:
    """None where memory ran out; what torch keeps for later is then given back."""
    try:
        return once(plan)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        logger.warning(
            "memory ran out computing %d tokens of %d requests in one step: %s",
            plan.num_tokens,
            len(plan.spans),
            str(error).partition("\n")[0],
        )
    # Not before the error is gone: it holds the tensors of the step that failed.
    torch.cuda.empty_cache()
    return None


def _tokens_of(part: StepPlan, chosen: Chosen) -> dict[int, list[int | None]]:
    """By request: its token, and those of its branches, which come only where it has one."""
    left = iter(chosen.tokens)
    tokens: dict[int, list[int | None]] = {}
    for span in part.sampling:
        own = next(left)
        branches = 0 if own is None else len(span.request.branches)
        tokens[span.request.request_id] = [own, *islice(left, branches)]
    return tokens


def _add(joined: Chosen, chosen: Chosen) -> None:
    """All but the tokens, whose order is the plan's."""
    joined.logprobs.update(chosen.logprobs)
    joined.searches.extend(each for each in chosen.searches if each not in joined.searches)
    joined.done.extend(chosen.done)


def _may_be_repeated(copies: Copies) -> bool:
    """Whether no block is the target of a copy after having been a source."""
    sources: set[int] = set()
    for source, target, _ in copies:
        if target in sources:
            return False
        sources.add(source)
    return True
