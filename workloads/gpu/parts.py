"""The parts of check-gpu: what each checks on the device, with the sizes that a GPU is worth.

None has run on a GPU yet; what they are made of runs in tests, on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from radix_engine.gpu.graphs import CudaRecorder
from radix_engine.model.linear import TorchPacking
from workloads.gpu.checks_cascade import SHARED, cascade_case, check_cascade
from workloads.gpu.checks_graphs import check_graphs
from workloads.gpu.checks_model import check_model, encoder, text_prompts
from workloads.gpu.checks_ops import check_ops
from workloads.gpu.checks_sampling import WIDTHS, check_sampling
from workloads.gpu.clock import GpuClock
from workloads.gpu.outcomes import PartResult
from workloads.gpu.shapes import HEAD_SHAPES, small_shape
from workloads.gpu.timings import measure
from workloads.results import Figure


@dataclass(frozen=True, slots=True)
class Bench:
    """What the parts are run with. ``say`` tells a line of progress."""

    flashinfer: Any
    device: torch.device
    seed: int
    model: str | None
    layers: int
    windows: bool
    say: Callable[[str], None]


def _ops(bench: Bench) -> PartResult:
    checks = [
        check
        for shape in HEAD_SHAPES
        for check in check_ops(
            bench.flashinfer,
            bench.device,
            torch.bfloat16,
            shape,
            bench.seed,
            windows=bench.windows,
        )
    ]
    given = bench.flashinfer, bench.device, torch.bfloat16
    for width in WIDTHS:
        checks += check_sampling(*given, width, bench.seed)
    return PartResult(checks)


def _graphs(bench: Bench) -> PartResult:
    return PartResult(
        [
            check
            for shape in HEAD_SHAPES
            for check in check_graphs(
                bench.flashinfer,
                bench.device,
                torch.bfloat16,
                small_shape(shape),
                CudaRecorder(bench.device),
                batches=(1, 3, 8, 29),
                contexts=(17, 1000, 4001),
                seed=bench.seed,
            )
        ]
    )


def _cascade(bench: Bench) -> PartResult:
    clock = GpuClock(bench.device)
    checks, figures = [], {}
    for shape in HEAD_SHAPES:
        for shared in SHARED:
            case = cascade_case(
                bench.flashinfer, bench.device, torch.bfloat16, shape, shared, bench.seed
            )
            checks.append(check_cascade(case))
            flat, cascade = clock.device_ms(case.run_flat), clock.device_ms(case.run_cascade)
            name = f"cascade_{shape.head_dim}_{shared}"
            figures[f"{name}_us"] = Figure(cascade * 1000, "us", "lower")
            figures[f"{name}_flat_us"] = Figure(flat * 1000, "us", "lower")
            figures[f"{name}_over_flat"] = Figure(cascade / flat, "ratio", "lower", 1.0)
    return PartResult(checks, figures)


def _model(bench: Bench) -> PartResult:
    # Imported here: these need packages that the other parts do without.
    from radix_engine.model.load import load_model
    from radix_engine.model.source import resolve_model

    folder = resolve_model(bench.model, progress=bench.say)
    prompts = text_prompts(encoder(folder.path), bench.seed)
    packing = TorchPacking(torch.bfloat16, bench.device)
    model = load_model(folder, packing, bench.device)
    reference = load_model(folder, TorchPacking(torch.float32))
    checks = check_model(bench.flashinfer, model, reference, prompts)
    return PartResult(checks, data={"model": folder.name, "prompts": list(map(len, prompts))})


def _timings(bench: Bench) -> PartResult:
    return measure(bench.flashinfer, bench.device, bench.layers, bench.seed, bench.say)


RUNS: dict[str, Callable[[Bench], PartResult]] = {
    "ops": _ops,
    "graphs": _graphs,
    "cascade": _cascade,
    "model": _model,
    "timings": _timings,
}
