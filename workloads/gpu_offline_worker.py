"""The process of check-gpu-offline that plans and launches with the real FlashInfer package.

``python -m workloads.gpu_offline_worker RUNTIME DRIVER MODULES`` says on standard output what came
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
from radix_engine.attention.flashinfer_wrappers import KV_LAYOUT
from radix_engine.gpu.graphs import capture_sizes
from radix_engine.memory.kv_memory import KVMemory, zeroed_memory
from workloads import gpu_offline_cases as cases
from workloads.gpu_offline_cases import BLOCK_SIZE, LAYERS, Batch, Shape
from workloads.gpu_offline_launches import Group, Launch, step_problems
from workloads.gpu_offline_lines import Line, fail, one_line, say, take_output
from workloads.gpu_offline_stub import Stub, Watched, asked_modules, import_flashinfer, plans_of

REPEATS = 6  # the first two make the wrappers; the others are timed
_MIB = 2**20
_CPU = torch.device("cpu")


class Steps:
    """Steps of one shape, through the engine's own attention."""

    def __init__(self, shape: Shape, flashinfer: Any, stub: Stub, most_tokens: int) -> None:
        self._shape = shape
        self._stub = stub
        self._watched = Watched(flashinfer)
        self._memory = KVMemory(
            LAYERS, cases.NUM_BLOCKS, BLOCK_SIZE, shape.num_kv_heads, shape.head_dim, torch.bfloat16
        )
        self._attention = self.attention(cases.WORKSPACE_MIB * _MIB)
        self._queries, self._keys = (
            torch.zeros(most_tokens, heads, shape.head_dim, dtype=torch.bfloat16)
            for heads in (shape.num_heads, shape.num_kv_heads)
        )

    def attention(self, workspace_bytes: int) -> FlashInferAttention:
        """The engine's attention with a workspace of its own."""
        return FlashInferAttention(
            self._memory, self._shape.num_heads, self._watched, workspace_bytes=workspace_bytes
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
    """Decodes of one shape and size, planned as a CUDA graph's are: into buffers that stay."""

    def __init__(self, shape: Shape, size: int, flashinfer: Any, stub: Stub) -> None:
        self._shape, self._size, self._stub = shape, size, stub
        most_pages = size * -(-max(cases.GRAPH_CONTEXTS) // BLOCK_SIZE)
        self._indices = torch.zeros(most_pages, dtype=torch.int32)
        self._workspace = zeroed_memory((cases.WORKSPACE_MIB * _MIB,), torch.uint8, _CPU)
        self._wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            self._workspace,
            KV_LAYOUT,
            use_cuda_graph=True,
            use_tensor_cores=shape.num_heads // shape.num_kv_heads >= 4,
            paged_kv_indptr_buffer=torch.zeros(size + 1, dtype=torch.int32),
            paged_kv_indices_buffer=torch.zeros(most_pages, dtype=torch.int32),
            paged_kv_last_page_len_buffer=torch.zeros(size, dtype=torch.int32),
            backend="fa2",
        )
        memory = KVMemory(1, 1, BLOCK_SIZE, shape.num_kv_heads, shape.head_dim, torch.bfloat16)
        self._memory = memory.layers[0]
        self._queries = torch.zeros(size, shape.num_heads, shape.head_dim, dtype=torch.bfloat16)

    def check(self) -> Line:
        """Plan and run for all contexts; how many plans, what changed, the workspace's bytes."""
        first: tuple[list[int], list[Launch]] | None = None
        problems: list[str] = []
        used = plans = 0
        for name, contexts in cases.graph_lengths(self._size).items():
            try:
                made = self._plan(contexts)
            except Exception as error:  # whatever FlashInfer raises is what the table should say
                problems.append(f"contexts {name}: {one_line(error)}")
                continue
            plans += 1
            first = first or made
            for what, now, then in zip(("plan_info", "launches"), made, first, strict=True):
                if now != then:
                    problems.append(f"contexts {name}: {what} {now}, not {then}")
            (info,) = plans_of(self._wrapper)
            used = max(used, info.workspace_bytes(self._shape.num_heads))
        return {"plans": plans, "workspace_bytes": used, "problems": problems}

    def _plan(self, contexts: list[int]) -> tuple[list[int], list[Launch]]:
        lengths = torch.tensor(contexts, dtype=torch.int32)
        pages = (lengths + BLOCK_SIZE - 1) // BLOCK_SIZE
        indptr = torch.zeros(self._size + 1, dtype=torch.int32)
        indptr[1:] = torch.cumsum(pages, 0)
        shape = self._shape
        self._stub.reset()
        self._wrapper.plan(
            indptr,
            self._indices[: int(indptr[-1])],
            lengths - (pages - 1) * BLOCK_SIZE,
            shape.num_heads,
            shape.num_kv_heads,
            shape.head_dim,
            BLOCK_SIZE,
            q_data_type=torch.bfloat16,
            kv_data_type=torch.bfloat16,
        )
        self._wrapper.run(self._queries, self._memory)
        return list(self._wrapper._plan_info), self._stub.launches()


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
            graphs=len(cases.GRAPH_SHAPES) * len(sizes),
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
        for shape in cases.GRAPH_SHAPES:
            for size in sizes:
                made = Graphs(shape, size, flashinfer, stub).check()
                say(out, shape=shape.name, graph=size, **made)
        there = {path.name for path in modules.iterdir()}
        say(out, asked=sorted(asked_modules()), outside=sorted(asked_modules() - there))
    except Exception as error:  # whatever FlashInfer or torch raises
        return fail(out, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
