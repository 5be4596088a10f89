"""The process of check-gpu-offline that plans and launches with the real FlashInfer package.

``python -m workloads.gpu.offline_worker RUNTIME DRIVER MODULES`` says on standard output what came
of each step and of each batch size of CUDA graphs, one line of JSON each.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from radix_engine.attention.flashinfer_attention import FlashInferAttention
from radix_engine.attention.flashinfer_graphs import FlashInferGraphAttention, FlashInferGraphs
from radix_engine.attention.flashinfer_wrappers import Heads
from radix_engine.attention.interface import AttentionSpan
from radix_engine.gpu.graphs import capture_sizes
from radix_engine.memory.fp8 import FP8
from radix_engine.memory.kv_memory import KVMemory, zeroed_memory
from workloads.gpu import offline_cases as cases
from workloads.gpu.offline_cases import BLOCK_SIZE, LAYERS, Batch, Shape
from workloads.gpu.offline_launches import Group, Launch, step_problems
from workloads.gpu.offline_lines import Line, fail, one_line, say, take_output
from workloads.gpu.offline_stub import Stub, Watched, asked_modules, import_flashinfer, plans_of

REPEATS = 6  # the first two make the wrappers; the others are timed
_MIB = 2**20
_CPU = torch.device("cpu")


def kv_dtype(shape: Shape) -> torch.dtype:
    """In which a shape's K and V are kept."""
    return FP8 if shape.fp8 else torch.bfloat16


class Steps:
    """Steps of one shape, through the engine's own attention."""

    def __init__(self, shape: Shape, flashinfer: Any, stub: Stub, most_tokens: int) -> None:
        self._shape = shape
        self._stub = stub
        self._watched = Watched(flashinfer)
        heads = (shape.num_kv_heads, shape.head_dim)
        self._memory = KVMemory(LAYERS, cases.NUM_BLOCKS, BLOCK_SIZE, *heads, kv_dtype(shape))
        self._attention = self.attention(cases.WORKSPACE_MIB * _MIB)
        self._queries, self._keys = (
            torch.zeros(most_tokens, heads, shape.head_dim, dtype=torch.bfloat16)
            for heads in (shape.num_heads, shape.num_kv_heads)
        )

    def attention(self, workspace_bytes: int) -> FlashInferAttention:
        """The engine's attention with a workspace of its own."""
        return FlashInferAttention(
            self._memory,
            self._shape.num_heads,
            self._watched,
            dtype=torch.bfloat16,
            workspace_bytes=workspace_bytes,
        )

    def run(self, attention: FlashInferAttention, batch: Batch) -> float:
        """One step; the microseconds that all of its planning took."""
        tensors = [t[: batch.num_tokens] for t in (self._queries, self._keys, self._keys)]
        spans = batch.attention_spans()
        self._stub.reset()
        self._watched.reset()
        began = time.perf_counter_ns()
        plan = attention.plan(spans)
        ours_us = (time.perf_counter_ns() - began) / 1000
        for layer in range(LAYERS):
            plan.attend(layer, *tensors, window=self._shape.window(layer))
        return ours_us + sum(self._watched.plan_us)

    def check(self, batch: Batch) -> Line:
        """What came of a step that is repeated: see `judge`, and whether all launched the same."""
        times: list[float] = []
        made: list[list[Launch]] = []
        try:
            for _ in range(REPEATS):
                times.append(self.run(self._attention, batch))
                made.append(self._stub.launches())
            line = self.judge(batch, made[-1])
        except Exception as error:  # whatever FlashInfer raises is what the table should say
            return {"problems": [one_line(error)]}
        if any(launches != made[0] for launches in made):
            line["problems"].append("repeated, the step launched something else")
        return {**line, "plan_us": statistics.median(times[2:])}

    def judge(self, batch: Batch, launches: list[Launch]) -> Line:
        """The last step's numbers, and what is wrong with it."""
        windows: dict[int | None, int] = {}
        for layer in range(LAYERS):
            window = self._shape.window(layer)
            hides = window is not None and window < batch.longest
            windows[window if hides else None] = windows.get(window if hides else None, 0) + 1
        planned = [plans_of(wrapper) for wrapper in self._watched.planned]
        groups = [Group(n, levels) for n, levels in zip(windows.values(), planned, strict=False)]
        groups += [Group(0, levels) for levels in planned[len(groups) :]]
        problems = step_problems(launches, groups, self._stub.copies, len(windows))
        for window, group in zip(windows, groups, strict=False):
            levels = 2 if batch.shared and window is None else 1
            if len(group.levels) != levels:
                problems.append(f"window {window}: {len(group.levels)} levels, not {levels}")
        used = [level.workspace_bytes(self._shape.num_heads) for g in groups for level in g.levels]
        attended = [launch for launch in launches if launch.kind == "attention"]
        return {
            "plans": len(planned),
            "windows": len(windows),
            "attention_launches": len(attended),
            "launches": len(launches),
            "grid": attended[0].grid if attended else None,
            "block": attended[0].block if attended else None,
            "workspace_bytes": max(used, default=0),
            "problems": problems,
        }

    def check_least_workspace(self, batch: Batch, needed: int) -> list[str]:
        """Whether FlashInfer takes a workspace of as many bytes as `judge` says, and no less."""
        problems = []
        try:
            self.run(self.attention(needed), batch)
        except Exception as error:  # whatever it is, it was refused
            problems.append(f"a workspace of {needed} bytes was refused: {one_line(error)}")
        try:
            self.run(self.attention(needed - 16), batch)
        except Exception:  # as it should be
            return problems
        return [*problems, f"a workspace of 16 bytes less than {needed} was taken"]


class Graphs:
    """Decodes of one shape, through the engine's attention for CUDA graphs."""

    def __init__(self, shape: Shape, flashinfer: Any, stub: Stub) -> None:
        self._shape, self._stub = shape, stub
        self._watched = Watched(flashinfer)
        heads = (shape.num_heads, shape.num_kv_heads, shape.head_dim)
        self._graphs = FlashInferGraphs(
            self._watched,
            KVMemory(len(shape.windows), cases.NUM_BLOCKS, BLOCK_SIZE, *heads[1:], kv_dtype(shape)),
            Heads(*heads, BLOCK_SIZE, torch.bfloat16, shape.fp8),
            shape.windows,
            largest=cases.GRAPH_LIMIT,
            context_length=max(cases.GRAPH_CONTEXTS),
            workspace=zeroed_memory((cases.WORKSPACE_MIB * _MIB,), torch.uint8, _CPU),
        )
        self._queries, self._keys = (
            torch.zeros(cases.GRAPH_LIMIT, n, shape.head_dim, dtype=torch.bfloat16)
            for n in (shape.num_heads, shape.num_kv_heads)
        )

    def check(self, size: int) -> Line:
        """Plan and run for all contexts; how many steps, what changed, the workspace's bytes."""
        attention = self._graphs.attention(size)
        first: tuple[tuple[int, ...], list[Launch]] | None = None
        problems: list[str] = []
        used = steps = 0
        for name, spans in cases.graph_spans(size).items():
            try:
                made = self._run(attention, spans)
                groups = [Group(1, plans_of(wrapper)) for wrapper in self._watched.planned]
            except Exception as error:  # whatever FlashInfer raises is what the table should say
                problems.append(f"contexts {name}: {one_line(error)}")
                continue
            steps += 1
            first = first or made
            wrong = step_problems(made[1], groups, self._stub.copies, len(self._shape.windows))
            for what, now, then in zip(("plan_info", "launches"), made, first, strict=True):
                if now != then:
                    wrong.append(f"{what} {now}, not {then}")
            problems += [f"contexts {name}: {problem}" for problem in wrong]
            for group in groups:
                used = max(used, group.levels[0].workspace_bytes(self._shape.num_heads))
        return {"steps_planned": steps, "workspace_bytes": used, "problems": problems}

    def _run(
        self, attention: FlashInferGraphAttention, spans: list[AttentionSpan]
    ) -> tuple[tuple[int, ...], list[Launch]]:
        """A step with one layer of each window: its plans' integers and its launches."""
        self._stub.reset()
        self._watched.reset()
        plan = attention.plan(spans)
        tensors = [tensor[: len(spans)] for tensor in (self._queries, self._keys, self._keys)]
        for layer, window in enumerate(self._shape.windows):
            plan.attend(layer, *tensors, window=window)
        return attention.plan_info, self._stub.launches()


def main() -> int:
    """Run all checks; the exit status, which says only whether they could be run."""
    out = take_output()
    runtime, driver, modules = map(Path, sys.argv[1:])
    try:
        stub = Stub(runtime, driver)
        flashinfer = import_flashinfer(modules)
        batches, sizes = cases.batches(), capture_sizes(cases.GRAPH_LIMIT)
        say(
            out,
            steps=len(cases.SHAPES) * len(batches),
            graphs=len(cases.SHAPES) * len(sizes),
        )
        for shape in cases.SHAPES:
            steps = Steps(shape, flashinfer, stub, max(b.num_tokens for b in batches))
            lines: dict[Batch, Line] = {}
            for batch in batches:
                lines[batch] = steps.check(batch)
                say(out, shape=shape.name, kind=batch.kind, batch=batch.name, **lines[batch])
            widest = max(batches, key=lambda batch: lines[batch].get("workspace_bytes", 0))
            if needed := lines[widest].get("workspace_bytes", 0):
                problems = steps.check_least_workspace(widest, needed)
                say(out, shape=shape.name, least_workspace=needed, problems=problems)
            graphs = Graphs(shape, flashinfer, stub)
            for size in sizes:
                say(out, shape=shape.name, graph=size, **graphs.check(size))
        there = {path.name for path in modules.iterdir()}
        say(out, asked=sorted(asked_modules()), outside=sorted(asked_modules() - there))
    except Exception as error:  # whatever FlashInfer or torch raises
        return fail(out, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
