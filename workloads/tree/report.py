"""What the tree benchmark says: figures, tables, and the data of its file."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from workloads.results import Figure, number, table
from workloads.tree.build import GHOSTS_PER_BLOCK
from workloads.tree.memory import Footprint
from workloads.tree.operations import OPERATIONS
from workloads.tree.pauses import Report

Medians = Mapping[int, Mapping[str, float]]
"""Microseconds by leaves and by name of operation."""

FIGURES: Mapping[str, tuple[str, float | None]] = {
    "match_64k_64nodes_us": ("us", 30.0),
    "match_64k_1node_us": ("us", None),
    "publish_64k_us": ("us", None),
    "evict4_40k_leaves_us": ("us", 15.0),
    "lease_release_depth64_us": ("us", 25.0),
    "growth_1k_to_100k": ("ratio", 2.0),
    "max_pause_ms": ("ms", 5.0),
    "python_bytes_per_cached_token": ("bytes", None),
}
"""Every figure, with its unit and goal. Lower is better for all."""

NOTES = (
    "operations: wall time by perf_counter_ns, its own cost subtracted, median of all samples; "
    "the sizes take turns",
    "match, lease + release, publish and the memory's token are those of the largest tree",
    "match 64k, 64 turns: a path of 64 nodes without side branches; 64 forks: a side branch at "
    "every node, which was used last; lease + release: on the first of these",
    "evict, expire: in a tree that has all the ghosts it may, so that each step's expire drops as "
    "many as the step's evictions leave",
    f"ghosts: {GHOSTS_PER_BLOCK} evicted blocks remembered for each block, the cache's default",
    "memory: sys.getsizeof summed over all objects reachable from the cache; the figure is for "
    "runs of 1,024 tokens, with ghosts",
    "churn: CPU time of the thread by thread_time_ns, 0.5 us of its own included; the garbage "
    "collector runs as in the server",
)


def make_figures(medians: Medians, bytes_per_token: float, longest_ms: float) -> dict[str, Figure]:
    """The named figures, without those whose sizes were not measured."""
    largest = medians[max(medians)]
    values = {
        "match_64k_64nodes_us": largest["match_64_nodes"],
        "match_64k_1node_us": largest["match_1_node"],
        "publish_64k_us": largest["publish"],
        "lease_release_depth64_us": largest["lease_release"],
        "max_pause_ms": longest_ms,
        "python_bytes_per_cached_token": bytes_per_token,
    }
    if 40_000 in medians:
        values["evict4_40k_leaves_us"] = medians[40_000]["evict_4"]
    if {1_000, 100_000} <= medians.keys():
        values["growth_1k_to_100k"] = max(growth(medians, 1_000, 100_000).values())
    return {
        key: Figure(values[key], unit, "lower", goal)
        for key, (unit, goal) in FIGURES.items()
        if key in values
    }


def growth(medians: Medians, small: int, large: int) -> dict[str, float]:
    """How many times as much each operation costs in the large tree as in the small one."""
    return {name: medians[large][name] / cost for name, cost in medians[small].items()}


def spread_of(samples: list[float]) -> dict[str, float]:
    """Of microseconds: how many, and least, median and 99th percentile."""
    return {
        "samples": len(samples),
        "least_us": min(samples),
        "median_us": float(np.median(samples)),
        "p99_us": float(np.percentile(samples, 99)),
    }


def operations_table(medians: Medians) -> str:
    """Microseconds of each operation by size, and how much they grow."""
    sizes = sorted(medians)
    more = growth(medians, sizes[0], sizes[-1])
    return table(
        ("us (median) at leaves", *(f"{size:,}" for size in sizes), "growth"),
        [
            (op.label, *(number(medians[size][op.name]) for size in sizes), number(more[op.name]))
            for op in OPERATIONS
        ],
    )


def memory_table(memory: Mapping[str, tuple[Footprint, Footprint]]) -> str:
    """Bytes by shape of the tree: without ghosts, and with."""
    return table(
        ("bytes of Python memory", "a token", "+ ghosts", "a leaf", "+ ghosts"),
        [
            (
                name,
                number(fresh.per_token),
                number(grown.per_token),
                number(fresh.per_leaf),
                number(grown.per_leaf),
            )
            for name, (fresh, grown) in memory.items()
        ],
    )


def churn_table(report: Report) -> str:
    """Microseconds of each kind of operation in churn, and what else was seen."""
    rows = [
        (kind, f"{s.count:,}", number(s.median_us), number(s.p99_us), number(s.longest_us))
        for kind, s in report.operations.items()
    ]
    collections = ", ".join(
        f"{count:,} {name} (longest {number(ms)} ms)"
        for (count, ms), name in zip(report.collections, ("young", "middle", "full"), strict=True)
    )
    objects, full_ms = report.full_collection
    return "\n".join(
        (
            table(("us in churn", "count", "median", "p99", "longest"), rows),
            f"{report.seconds:g} s, {report.requests:,} requests, {report.leaves_before:,} to "
            f"{report.leaves_after:,} leaves; blocks evicted: {report.evicted_blocks:,}, expired: "
            f"{report.expired_blocks:,}",
            f"garbage collections: {collections}; a full one afterwards, over {objects:,} objects: "
            f"{number(full_ms)} ms",
        )
    )
