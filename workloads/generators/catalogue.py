"""The generators by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from workloads.generators.adversarial import clock_in_head, loop, one_off_flood
from workloads.generators.agents import agents
from workloads.generators.branching import long_document, parallel_samples, tree_of_thought
from workloads.generators.draws import Draws
from workloads.generators.plan import PlannedSession, scaled
from workloads.generators.shared_heads import (
    few_shot,
    multi_prefix_round_robin,
    multi_prefix_zipf,
    shared_system,
)


@dataclass(frozen=True, slots=True)
class Generator:
    """``plan`` makes so many sessions by a seed; ``sessions``: how many by default."""

    plan: Callable[[int, int], Iterator[PlannedSession]]
    sessions: int
    about: str


GENERATORS: dict[str, Generator] = {
    "shared-system": Generator(shared_system, 200, "one system prompt of 2,048 tokens for all"),
    "multi-prefix-zipf": Generator(
        multi_prefix_zipf, 500, "8 system prompts of 2,048 tokens, by Zipf's law"
    ),
    "multi-prefix-round-robin": Generator(
        multi_prefix_round_robin, 500, "8 system prompts of 2,048 tokens, in turn"
    ),
    "long-document": Generator(
        long_document, 10, "documents of 12,000 tokens, 20 questions to each"
    ),
    "few-shot": Generator(few_shot, 400, "8 tasks with 8 examples of 150 tokens, shuffled"),
    "tree-of-thought": Generator(
        tree_of_thought, 20, "3 levels of thoughts, 4 from each of 2 that are gone on with"
    ),
    "parallel-samples": Generator(parallel_samples, 160, "8 answers to each prompt"),
    "agents": Generator(
        agents, 24, "a head of 2,000 tokens, 4 to 12 turns, tools that take 2 s in the mean"
    ),
    "clock-at-head": Generator(
        clock_in_head, 200, "a shared system prompt that begins with the time of day"
    ),
    "one-off-flood": Generator(
        one_off_flood, 400, "4 shared heads, and every second prompt long and never seen again"
    ),
    "loop": Generator(loop, 320, "32 system prompts in turn: 65,536 tokens, for a smaller cache"),
}


def planned(
    name: str, seed: int, sessions: int | None = None, *, rate: float = 1.0, scale: float = 1.0
) -> Iterator[PlannedSession]:
    """The sessions of a generator, which arrive at so many a second (Poisson), one by one. All
    lengths are multiplied by ``scale``. Raises KeyError for another name."""
    generator = GENERATORS[name]
    gaps, moment = Draws(seed, "arrivals"), 0.0
    plan = generator.plan(seed, generator.sessions if sessions is None else sessions)
    for number, session in enumerate(scaled(plan, scale) if scale != 1.0 else plan):
        moment += gaps.seconds(1 / rate) if number else 0.0
        yield replace(session, arrival_s=round(moment, 3))
