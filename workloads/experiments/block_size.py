"""block-size: what is lost to rounding, and what copying part of a block gets back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from radix_engine.cache import PrefixCache
from workloads.experiments.experiment import Experiment, Outcome, Settings
from workloads.experiments.made import requests_of
from workloads.experiments.panel import Line, Panel
from workloads.experiments.serving import hit_rate
from workloads.generators.draws import Draws
from workloads.generators.plan import Part, PlannedCall, PlannedSession, size_of
from workloads.generators.shared_heads import multi_prefix_zipf
from workloads.results import Figure, table

SIZES = (1, 4, 8, 16, 32, 64, 128, 256, 512)
_LEAST, _MOST = 20, 400


def short_heads(seed: int, sessions: int) -> Iterator[PlannedSession]:
    """Requests with one of 40 heads of 20 to 400 tokens, and a question of 50."""
    draws = Draws(seed, "short heads")
    heads = [Part("system", f"head {at}", draws.between(_LEAST, _MOST)) for at in range(40)]
    for number in range(sessions):
        question = Part("user", f"question {number}", 50)
        reply = Part("assistant", f"answer {number}", 32)
        call = PlannedCall((heads[draws.below(len(heads))], question), reply)
        yield PlannedSession(f"request-{number}", (call,))


def long_heads(seed: int, sessions: int) -> Iterator[PlannedSession]:
    """Requests with one of 8 heads of 2,000 tokens, and a question of 50."""
    return multi_prefix_zipf(seed, sessions, head=2000)


WORKLOADS = {"heads of 20 to 400 tokens": short_heads, "heads of 2,000 tokens": long_heads}
WAYS = {"part of a block, too": True, "whole blocks only": False}


def run(settings: Settings, sizes: Sequence[int] = SIZES, sessions: int = 1000) -> Outcome:
    """Serve both workloads in blocks of each size, from memory that holds everything."""
    rates: dict[str, dict[str, list[float]]] = {}
    panels = []
    for name, plan in WORKLOADS.items():
        planned = list(plan(settings.seed, sessions))
        requests = requests_of(planned, settings.seed)
        size_known = size_of(planned)
        new = size_known.prompt_tokens - size_known.served_tokens
        rates[name] = {
            way: [
                # Enough for what is new, with a block that is rounded away for each request.
                hit_rate(
                    PrefixCache(new // size + 2 * sessions, size, partial_blocks=partial), requests
                )
                for size in sizes
            ]
            for way, partial in WAYS.items()
        }
        ceiling = size_known.share
        lines = [Line(way, sizes, values) for way, values in rates[name].items()]
        panels.append(
            Panel(
                name,
                "tokens in a block (logarithmic)",
                "prompt tokens served from the cache",
                [*lines, Line("shared", [min(sizes), max(sizes)], [ceiling] * 2, "ceiling")],
                log_x=True,
                percent_y=True,
            )
        )
    figures = {
        f"hit_rate.{'short' if plan is short_heads else 'long'}_heads."
        f"{'partial' if partial else 'whole'}.{size}": Figure(
            rates[name][way][at], "share", "higher"
        )
        for name, plan in WORKLOADS.items()
        for way, partial in WAYS.items()
        for at, size in enumerate(sizes)
    }
    rows = [
        [f"{name}, {way}", *(f"{value:.3f}" for value in values)]
        for name, by_way in rates.items()
        for way, values in by_way.items()
    ]
    return Outcome(
        figures,
        {"sizes": list(sizes), "hit_rates": rates, "sessions": sessions},
        table(["tokens in a block", *map(str, sizes)], rows),
        f"{sessions:,} requests of a shared head and 50 tokens of their own; nothing is evicted",
        panels,
    )


EXPERIMENT = Experiment("what is lost to rounding to blocks, and what gets it back?", run)
