"""clock-at-head: a clock in the system prompt, moved from its end to its beginning."""

from __future__ import annotations

from collections.abc import Sequence

from radix_engine.cache import PrefixCache
from workloads.experiments.experiment import Experiment, Outcome, Settings
from workloads.experiments.made import requests_of
from workloads.experiments.panel import Line, Panel
from workloads.experiments.serving import hit_rate
from workloads.generators.adversarial import clock_in_head
from workloads.results import Figure, table

PLACES = (1.0, 0.75, 0.5, 0.25, 0.1, 0.05, 0.0)
BLOCK = 16


def run(settings: Settings, places: Sequence[float] = PLACES, sessions: int = 200) -> Outcome:
    """Serve the same requests with the clock at each place, from memory that holds everything."""
    rates, computed = [], []
    for place in places:
        requests = requests_of(clock_in_head(settings.seed, sessions, at=place), settings.seed)
        tokens = sum(len(request.prompt) for request in requests)
        rate = hit_rate(PrefixCache(tokens // BLOCK + 1, BLOCK), requests)
        rates.append(rate)
        computed.append(tokens * (1 - rate) / sessions)
    figures: dict[str, Figure] = {}
    for place, rate, count in zip(places, rates, computed, strict=True):
        figures[f"hit_rate.{place:g}"] = Figure(rate, "share", "higher")
        figures[f"computed_tokens.{place:g}"] = Figure(count, "tokens a request", "lower")
    rows = [
        [f"behind {place:.0%} of the system prompt", f"{rate:.3f}", f"{count:,.0f}"]
        for place, rate, count in zip(places, rates, computed, strict=True)
    ]
    where = "place of the clock in the system prompt (0%: its head)"
    return Outcome(
        figures,
        {"places": list(places), "hit_rates": rates, "computed": computed, "sessions": sessions},
        table(["the clock stands", "hit rate", "tokens computed a request"], rows),
        f"{sessions:,} requests, one system prompt of 2,048 tokens with the time of day in it",
        [
            Panel(
                "hit rate",
                where,
                "prompt tokens served from the cache",
                [Line("a clock of 12 tokens", places, rates)],
                percent_x=True,
                percent_y=True,
            ),
            Panel(
                "work",
                where,
                "tokens computed for a request",
                [Line("a clock of 12 tokens", places, computed)],
                percent_x=True,
            ),
        ],
    )


EXPERIMENT = Experiment("what does a clock in the system prompt cost, by where it stands?", run)
