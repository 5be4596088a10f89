"""A device that computes steps as late as can be, while others are planned.

What a step needs of the host is taken when it is launched: tokens, block tables, copies. It is
computed only when its tokens are asked for, after the next one was launched and whatever that
planning freed or gave to others. Blocks that are freed are spoiled when the step that is launched
next begins.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from radix_engine.cache.block_pool import IN_FLIGHT, PRIVATE
from scheduler import Request, ScheduledSpan, StepPlan
from tests.checking_model import POISON, Bench, WrongMemory, next_token, prefix_hashes

NO_NUMBER = -2
"""A row that was computed from what is no number, or by a step that failed."""


@dataclass(frozen=True)
class Launched:
    """A step as the device got it. ``guessed``: whose last token is the one it sampled before.
    ``flushes``: how often the cache had been emptied before each was admitted."""

    plan: StepPlan
    tokens: dict[Request, array[int]]
    tables: dict[Request, array[int]]
    leases: dict[Request, Any]
    guessed: frozenset[Request]
    freed: frozenset[int]
    flushes: dict[Request, int]
    flushes_so_far: int


@dataclass(frozen=True)
class Landed:
    """What came of a step: a token for each who samples, who read or wrote no numbers, and what
    each held when it was launched."""

    leases: dict[Request, Any]
    tokens: dict[Request, int]
    spoiled: frozenset[Request]


class Device:
    """Computes what was launched, in turn. ``sampled``: each request's newest token.

    Beside the rows it keeps how often the cache had been emptied when the oldest of what each was
    computed from was.
    """

    def __init__(self, bench: Bench) -> None:
        self.pool = bench.model.pool
        self.rows = bench.model.rows
        self.size = bench.block_size
        self.ages = [[0] * self.size for _ in self.rows]
        self.launched: list[Launched] = []
        self.sampled: dict[Request, int] = {}

    def launch(self, plan: StepPlan, flushes: dict[Request, int], flushes_so_far: int) -> None:
        """Take a step. Raises WrongMemory where it would write blocks that are not its own."""
        writers: set[int] = set()
        for span in plan.spans:
            for block in self._written(span, span.request.block_table):
                if self.pool.owner_of(block) not in (PRIVATE, IN_FLIGHT) or block in writers:
                    raise WrongMemory(f"request {span.request.request_id} writes block {block}")
                writers.add(block)
        requests = [span.request for span in plan.spans]
        self.launched.append(
            Launched(
                plan,
                {request: request.tokens[:] for request in requests},
                {request: request.block_table[:] for request in requests},
                {request: request.lease for request in requests},
                frozenset(request for request in requests if request.is_guessed),
                frozenset(self.pool.freed),
                {request: flushes[request] for request in requests},
                flushes_so_far,
            )
        )
        self.pool.freed.clear()

    def land(self, spoiled: Collection[Request] = (), *, fails: bool = False) -> Landed:
        """Compute the oldest step that was launched. What those of ``spoiled`` write who sample is
        no numbers, nor, where the step ``fails``, is anything.

        Raises WrongMemory where a row is read that was freed, never written, another prefix's, or
        computed from what was stored before the cache was emptied for the last time before the
        request was admitted.
        """
        step = self.launched.pop(0)
        self._begin(step)
        tokens: dict[Request, int] = {}
        all_spoiled: set[Request] = set()
        # In turn: who reads what another computes in this step comes after it.
        for span in step.plan.spans:
            request = span.request
            own = step.tokens[request]
            if request in step.guessed:
                own[-1] = self.sampled[request]
            hashes = prefix_hashes(own[: span.start + span.count])
            sound, age = self._read(step, span, hashes[: span.start])
            sound = sound and not fails and not (span.samples and request in spoiled)
            for position in range(span.start, span.start + span.count):
                block, row = self._place(step, request, position)
                self.rows[block][row] = hashes[position] if sound else NO_NUMBER
                self.ages[block][row] = age
            if not sound:
                all_spoiled.add(request)
            if span.samples:
                tokens[request] = next_token(hashes[-1]) if sound else 0
        self.sampled.update(tokens)
        return Landed(step.leases, tokens, frozenset(all_spoiled))

    def _read(self, step: Launched, span: ScheduledSpan, hashes: Sequence[int]) -> tuple[bool, int]:
        """Whether all rows before a span are numbers, and the age of the oldest."""
        name = f"request {span.request.request_id}"
        sound, oldest = True, step.flushes_so_far
        for position, expected in enumerate(hashes):
            block, row = self._place(step, span.request, position)
            found = self.rows[block][row]
            oldest = min(oldest, self.ages[block][row])
            sound = sound and found != NO_NUMBER
            if found not in (expected, NO_NUMBER):
                what = "freed or never written" if found == POISON else "another prefix's"
                raise WrongMemory(f"{name} reads what is {what} at {position}")
        if oldest < step.flushes[span.request]:
            raise WrongMemory(f"{name} reads what was stored before the cache was emptied")
        return sound, oldest

    def _place(self, step: Launched, request: Request, position: int) -> tuple[int, int]:
        return step.tables[request][position // self.size], position % self.size

    def _begin(self, step: Launched) -> None:
        copied = [
            (copy, self.rows[copy.source][: copy.rows], self.ages[copy.source][: copy.rows])
            for copy in step.plan.copies
        ]
        for block in step.freed:
            self.rows[block][:] = [POISON] * self.size
        for copy, rows, ages in copied:
            if POISON in rows:
                raise WrongMemory(f"rows of block {copy.source} are copied, and never were written")
            self.rows[copy.target][: copy.rows] = rows
            self.ages[copy.target][: copy.rows] = ages

    def _written(self, span: ScheduledSpan, table: array[int]) -> array[int]:
        end = span.start + span.count
        return table[span.start // self.size : (end - 1) // self.size + 1]
