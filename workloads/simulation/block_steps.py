"""How long a simulated step takes where a token id stands for a block of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler import ScheduledSpan
from workloads.simulation.cost import CostModel, attended_pairs


@dataclass(frozen=True, slots=True)
class BlockSteps:
    """A step over block ids stands for several steps of the engine, of at most ``step_tokens``
    tokens each: for as many as its prompts need or, where a reply goes on, for one a token of a
    block, since each takes a step. Costs are those of an engine's step.
    """

    cost: CostModel
    id_tokens: int
    step_tokens: int

    def of_spans(self, spans: Sequence[ScheduledSpan]) -> float:
        """What a step takes that computes these spans of ids. Cost: O(spans)."""
        size = self.id_tokens
        computed = pairs = replies = 0
        for request, start, count, _ in spans:
            computed += count * size
            pairs += attended_pairs(start * size, count * size)
            replies += start >= request.num_prompt_tokens
        steps = max(-(-computed // self.step_tokens), size if replies else 1)
        # A reply takes part in each of its steps, a prompt in those that it fills.
        parts = replies * size + len(spans) - replies
        cost = self.cost
        return (
            cost.fixed * steps
            + cost.per_token * computed
            + cost.per_pair * pairs
            + cost.per_sequence * parts
        )
