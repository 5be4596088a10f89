"""heads-before-tails: what if the beginning of a prompt is evicted before its end?"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence

from radix_engine.cache import PrefixCache
from radix_engine.cache.flat import FlatCache
from workloads.experiments.cache_size import BLOCK, WORKLOADS
from workloads.experiments.experiment import Experiment, Outcome, Settings
from workloads.experiments.made import requests_of
from workloads.experiments.panel import Line, Panel
from workloads.experiments.serving import Index, hit_rate
from workloads.results import Figure, table

SIZES = (128, 192, 256, 384, 512, 768, 1024, 1152, 2048)


class HeadsFirst(FlatCache):
    """The flat cache with its one queue filled the wrong way round: a prompt's first block becomes
    the oldest, so it is evicted before all that can be found only behind it."""

    def _order_of_leaving(self, held: array[int]) -> Iterable[int]:
        return held


CACHES: dict[str, Callable[[int], Index]] = {
    "tree, leaves first": lambda blocks: PrefixCache(blocks, BLOCK, partial_blocks=False),
    "flat, tails first": lambda blocks: FlatCache(blocks, BLOCK),
    "flat, heads first": lambda blocks: HeadsFirst(blocks, BLOCK),
}


def run(settings: Settings, sizes: Sequence[int] = SIZES, sessions: int = 1000) -> Outcome:
    """Serve both workloads by each cache from each size of the memory."""
    rates: dict[str, dict[str, list[float]]] = {}
    for name, plan in WORKLOADS.items():
        requests = requests_of(plan(settings.seed, sessions), settings.seed)
        rates[name] = {
            cache: [hit_rate(make(blocks), requests) for blocks in sizes]
            for cache, make in CACHES.items()
        }
    figures = {
        f"hit_rate.{name}.{cache}.{blocks}".replace(" ", "_").replace(",", ""): Figure(
            rate, "share", "higher"
        )
        for name, by_cache in rates.items()
        for cache, values in by_cache.items()
        for blocks, rate in zip(sizes, values, strict=True)
    }
    rows = [
        [f"{name}, {blocks:,} blocks", *(f"{values[at]:.3f}" for values in by_cache.values())]
        for name, by_cache in rates.items()
        for at, blocks in enumerate(sizes)
    ]
    panels = [
        Panel(
            name,
            "memory, blocks of 16 tokens (logarithmic)",
            "prompt tokens served from the cache",
            [Line(cache, sizes, values) for cache, values in by_cache.items()],
            log_x=True,
            percent_y=True,
        )
        for name, by_cache in rates.items()
    ]
    data = {"sizes": list(sizes), "hit_rates": rates, "sessions": sessions, "block_tokens": BLOCK}
    title = f"{sessions:,} requests, 8 system prompts of 2,048 tokens, least recently used first"
    return Outcome(figures, data, table(["workload and memory", *CACHES], rows), title, panels)


EXPERIMENT = Experiment("what if a prompt's beginning is evicted before its end?", run)
