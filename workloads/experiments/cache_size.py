"""hit-rate-vs-cache-size: how much memory do shared prompts need?"""

from __future__ import annotations

from collections.abc import Sequence

from radix_engine.cache import PrefixCache
from workloads.experiments.experiment import Experiment, Outcome, Settings
from workloads.experiments.made import requests_of
from workloads.experiments.panel import Line, Panel
from workloads.experiments.serving import hit_rate
from workloads.generators.plan import size_of
from workloads.generators.shared_heads import multi_prefix_round_robin, multi_prefix_zipf
from workloads.results import Figure, table

SIZES = (64, 128, 256, 384, 512, 640, 768, 896, 1024, 1152, 1280, 2048)
BLOCK = 16
WORKLOADS = {"zipf": multi_prefix_zipf, "round robin": multi_prefix_round_robin}


def run(settings: Settings, sizes: Sequence[int] = SIZES, sessions: int = 2000) -> Outcome:
    """Serve both workloads from each size of the memory, one request at a time."""
    rates: dict[str, dict[int, float]] = {}
    ceiling = 0.0
    for name, plan in WORKLOADS.items():
        planned = list(plan(settings.seed, sessions))
        ceiling = max(ceiling, size_of(planned).share)
        requests = requests_of(planned, settings.seed)
        rates[name] = {
            blocks: hit_rate(PrefixCache(blocks, BLOCK, partial_blocks=False), requests)
            for blocks in sizes
        }
    figures = {
        f"hit_rate.{name.replace(' ', '_')}.{blocks}": Figure(rate, "share", "higher")
        for name, by_size in rates.items()
        for blocks, rate in by_size.items()
    }
    rows = [[f"{blocks:,}", *(f"{rates[name][blocks]:.3f}" for name in rates)] for blocks in sizes]
    lines = [Line(name, list(by_size), list(by_size.values())) for name, by_size in rates.items()]
    return Outcome(
        figures,
        {"hit_rates": rates, "ceiling": ceiling, "sessions": sessions, "block_tokens": BLOCK},
        table(["blocks of 16 tokens", *rates], rows),
        f"{sessions:,} requests, 8 system prompts of 2,048 tokens and 50 of their own",
        [
            Panel(
                "least recently used leaf first",
                "memory, blocks of 16 tokens (logarithmic)",
                "prompt tokens served from the cache",
                [*lines, Line("no limit", [min(sizes), max(sizes)], [ceiling] * 2, "ceiling")],
                log_x=True,
                percent_y=True,
            )
        ],
    )


EXPERIMENT = Experiment("how much memory do eight shared prompts need?", run)
