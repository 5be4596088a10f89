"""The experiments by name."""

from __future__ import annotations

from workloads.experiments import (
    block_size,
    cache_size,
    clock,
    heads_first,
    recency,
    short_keys,
    ttft,
)
from workloads.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    "ttft-vs-hit-rate": ttft.EXPERIMENT,
    "hit-rate-vs-cache-size": cache_size.EXPERIMENT,
    "clock-at-head": clock.EXPERIMENT,
    "heads-before-tails": heads_first.EXPERIMENT,
    "recency-vs-optimum": recency.EXPERIMENT,
    "hash16": short_keys.EXPERIMENT,
    "block-size": block_size.EXPERIMENT,
}
