"""Tables and figures of check-gpu-offline."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from workloads.gpu.offline_cases import LAYERS, LLAMA_8B, LLAMA_70B, SHAPES, WORKSPACE_MIB
from workloads.gpu.offline_lines import Line
from workloads.results import Figure, table

_MIB = 2**20
NOTES = (
    "FlashInfer's own host code, compiled for sm_90a, plans and launches; no kernel runs: a "
    "stand-in for the CUDA runtime answers as 132 multiprocessors and records",
    f"a step: the engine's FlashInferAttention over {LAYERS} layers, repeated six times",
    "a graph's step: FlashInferGraphs with a layer of each window, for ten mixes of contexts up to "
    "131,072 tokens, which must all be planned and launched alike",
    "plan_us: medians of four, the step's metadata and FlashInfer's planning, on this processor",
    "workspace: of the floating-point workspace, what the largest plan uses",
)
# Figures of planning time, by the batches of the 8B shape.
_TIMED = {
    "plan_decode_1_us": "1 of 8k",
    "plan_decode_64_us": "64 of 8k",
    "plan_decode_256_us": "256 of 8k",
    "plan_prefill_2048_us": "2048 tokens",
    "plan_cascade_256_us": "256 decodes share 8192",
}


@dataclass(frozen=True, slots=True)
class Found:
    """All that the worker said: about steps, the least workspaces, graph sizes and modules."""

    steps: list[Line] = field(default_factory=list)
    workspaces: list[Line] = field(default_factory=list)
    graphs: list[Line] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def add(self, line: Line) -> None:
        """Sort in a line."""
        if "batch" in line:
            self.steps.append(line)
        elif "least_workspace" in line:
            self.workspaces.append(line)
        elif "graph" in line:
            self.graphs.append(line)
        elif "asked" in line:
            self.asked.extend(line["asked"])
            self.outside.extend(line["outside"])

    @property
    def problems(self) -> list[str]:
        """All that is wrong, one line each."""
        named = [(f"{s['shape']}, {s['kind']} {s['batch']}", s) for s in self.steps]
        named += [(f"{w['shape']}, least workspace", w) for w in self.workspaces]
        named += [(f"{g['shape']}, graph of {g['graph']}", g) for g in self.graphs]
        found = [f"{name}: {problem}" for name, line in named for problem in line["problems"]]
        return found + [f"asked for a module outside the list: {name}" for name in self.outside]

    def of(self, lines: Sequence[Line], shape: str, kind: str | None = None) -> list[Line]:
        """Those of a shape, and of a kind of step."""
        return [
            line for line in lines if line["shape"] == shape and kind in (None, line.get("kind"))
        ]

    def workspace_mib(self, shape: str) -> float:
        """The most that a shape's steps and graphs use."""
        lines = self.of([*self.steps, *self.graphs], shape)
        return max((line.get("workspace_bytes", 0) for line in lines), default=0) / _MIB


def make_figures(found: Found) -> dict[str, Figure]:
    """The named figures; those that need a step that failed are left out."""
    failed = sum(bool(line["problems"]) for line in found.graphs)
    figures = {
        "failures": Figure(len(found.problems), "failures", "lower", 0),
        "steps": Figure(len(found.steps), "steps", "higher"),
        "graph_sizes": Figure(len(found.graphs), "sizes", "higher"),
        "graph_sizes_failed": Figure(failed, "sizes", "lower", 0),
        "modules_outside_the_list": Figure(len(found.outside), "modules", "lower", 0),
    }
    for name, shape in (("8b", LLAMA_8B), ("70b", LLAMA_70B)):
        used = found.workspace_mib(shape.name)
        figures[f"workspace_{name}_mib"] = Figure(used, "MiB", "lower", WORKSPACE_MIB)
    for name, batch in _TIMED.items():
        for line in found.of(found.steps, LLAMA_8B.name):
            if line["batch"] == batch and "plan_us" in line:
                figures[name] = Figure(line["plan_us"], "us", "lower")
    return figures


def steps_table(found: Found) -> str:
    """Steps by shape and kind: plans a window, attention launches a layer, and what they take."""
    rows = []
    for shape in SHAPES:
        for kind in ("decode", "prefill", "cascade"):
            lines = found.of(found.steps, shape.name, kind)
            done = [line for line in lines if "plans" in line]
            if not lines:
                continue
            times = [line["plan_us"] for line in done]
            rows.append(
                (
                    shape.name,
                    shape.heads,
                    kind,
                    str(len(lines)),
                    _range([line["plans"] / line["windows"] for line in done]),
                    _range([line["attention_launches"] / LAYERS for line in done]),
                    _range([line["workspace_bytes"] / _MIB for line in done]),
                    f"{statistics.median(times):,.0f}" if times else "-",
                    str(sum(bool(line["problems"]) for line in lines)),
                )
            )
    header = (
        "shape",
        "heads",
        "kind",
        "steps",
        "plans/window",
        "attention/layer",
        "MiB",
        "plan us",
    )
    return table((*header, "failed"), rows)


def graphs_table(found: Found) -> str:
    """Sizes of CUDA graphs by shape, and how many steps were planned for them."""
    rows = []
    for shape in SHAPES:
        if lines := found.of(found.graphs, shape.name):
            rows.append(
                (
                    shape.name,
                    shape.heads,
                    str(len(lines)),
                    str(sum(line["steps_planned"] for line in lines)),
                    _range([line["workspace_bytes"] / _MIB for line in lines]),
                    str(sum(bool(line["problems"]) for line in lines)),
                )
            )
    return table(("graphs", "heads", "sizes", "steps", "MiB", "failed"), rows)


def _range(values: Sequence[float]) -> str:
    """The least and the most of them."""
    if not values:
        return "-"
    ends = [f"{value:.4g}" for value in (min(values), max(values))]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)
