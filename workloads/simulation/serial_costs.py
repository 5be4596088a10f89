"""What the prefill of a trace costs under each rule and size, by the user's own figures."""

from __future__ import annotations

from collections.abc import Mapping

from workloads.results import Figure, number, table
from workloads.simulation.prices import Prices
from workloads.simulation.serial_table import Rates

Costs = Mapping[str, Mapping[int, Mapping[str, float]]]  # by rule, by blocks: gpu_s and dollars


def costs_of(rates: Rates, prompt_tokens: int, prices: Prices) -> Costs:
    """Seconds of a GPU, and dollars, to compute what was not served; empty without figures."""
    costs: dict[str, dict[int, dict[str, float]]] = {}
    for rule, by_blocks in rates.items():
        for blocks, rate in by_blocks.items():
            gpu_s = prices.gpu_s(prompt_tokens * (1 - rate))
            if gpu_s is None:
                return {}
            dollars = prices.dollars(gpu_s)
            told = {"gpu_s": gpu_s} | ({} if dollars is None else {"dollars": dollars})
            costs.setdefault(rule, {})[blocks] = told
    return costs


def cost_figures(costs: Costs) -> dict[str, Figure]:
    """As ``gpu_s.<rule>.<blocks>`` and ``dollars.<rule>.<blocks>``."""
    return {
        f"{kind}.{rule}.{blocks}": Figure(value, "s" if kind == "gpu_s" else kind, "lower")
        for rule, by_blocks in costs.items()
        for blocks, told in by_blocks.items()
        for kind, value in told.items()
    }


def costs_table(costs: Costs) -> str:
    """One line for each rule, one column for each size."""
    sizes = list(next(iter(costs.values())))
    rows = [
        (rule, *(_cell(by_blocks[blocks]) for blocks in sizes)) for rule, by_blocks in costs.items()
    ]
    return table(("prefill", *(f"{blocks:,} blocks" for blocks in sizes)), rows)


def _cell(told: Mapping[str, float]) -> str:
    seconds = f"{number(told['gpu_s'])} s"
    return f"{seconds}, {number(told['dollars'])} dollars" if "dollars" in told else seconds
