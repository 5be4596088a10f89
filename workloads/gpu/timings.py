"""How long steps of a model of Llama-3.1-8B's shape take on a GPU, with random weights.

Has not run on a GPU yet; what it computes from the times is in `arithmetic`. Steps are forward
passes and the choice of the best tokens: no server, no scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Protocol

import torch

from radix_engine.gpu.fit import gpu_memory
from radix_engine.gpu.graphs import CudaRecorder, GraphRunner
from radix_engine.gpu.runner import GpuRunner
from radix_engine.gpu.sizing import graph_bytes, step_bytes
from radix_engine.model.batch import Follow, Span
from workloads.gpu import arithmetic
from workloads.gpu.arithmetic import DecodeCase, HostTime
from workloads.gpu.checks_graphs import BLOCK, make_runners
from workloads.gpu.clock import GpuClock, Work
from workloads.gpu.outcomes import PartResult
from workloads.gpu.shapes import LLAMA_8B_LAYERS, llama_shape, random_model
from workloads.results import Figure

PART = "timings"
DTYPE = torch.bfloat16
BATCHES = (1, 8, 64, 256)
CONTEXTS = (1024, 8192)
CASES = tuple(DecodeCase(batch, context) for batch in BATCHES for context in CONTEXTS)
PROMPT = 2048
NEW_TOKENS = 50
DECODE_GOAL = 1.15
MEMORY_BOUND = 64
"""The largest batch whose step memory decides, and not the rate of products."""

_UTILIZATION = 0.9


class Clock(Protocol):
    """See `GpuClock`."""

    def device_ms(self, work: Work) -> float: ...

    def ahead_ms(self, work: Work) -> float: ...

    def alone_ms(self, work: Work) -> float: ...


@dataclass(frozen=True, slots=True)
class DecodeTime:
    """A decode step. ``ratio`` is the device's time over that of reading all that must be read;
    ``scaled_ms`` what all the model's layers would take."""

    batch: int
    context: int
    ratio: float
    scaled_ms: float
    host: HostTime


@torch.inference_mode()
def measure(
    flashinfer: Any, device: torch.device, layers: int, seed: int, say: Callable[[str], None]
) -> PartResult:
    """Measure with ``layers`` of the model's 32 layers; times in ms are scaled to all of them.

    Raises torch.OutOfMemoryError where the weights do not fit.
    """
    clock = GpuClock(device)
    memory_rate = clock.copied_bytes_per_second()
    matrix_rate = clock.matrix_operations_per_second()
    say(f"memory {memory_rate / 1e9:,.0f} GB/s, bf16 {matrix_rate / 1e12:,.0f} TFLOP/s")
    config = llama_shape(num_layers=layers, context_length=max(CONTEXTS))
    model = random_model(config, DTYPE, device, seed)
    fits, left_out = arithmetic.fitting(CASES, _blocks_left(device, layers), BLOCK)
    if not fits:
        raise ValueError("no K and V fit beside the weights; take fewer --layers")
    blocks = max(max(case.blocks(BLOCK) for case in fits), -(-(PROMPT + NEW_TOKENS) // BLOCK))
    runners = make_runners(flashinfer, model, blocks)
    graphs = runners.with_graphs(CudaRecorder(device), max(case.batch for case in fits))
    bench = StepTimer(clock, runners.plain, Random(seed), blocks, layers)
    decodes = [bench.decode(graphs, case, memory_rate) for case in fits]
    prompt_ms, prompt_share = bench.prompt(matrix_rate)
    cold, warm = bench.first_token(cold=True), bench.first_token(cold=False)
    figures = {
        **decode_figures(decodes),
        "prefill_share_of_matrix_rate": Figure(prompt_share, "share", "higher"),
        "prefill_2048_ms": Figure(prompt_ms, "ms", "lower"),
        "ttft_cold_ms": Figure(cold, "ms", "lower"),
        "ttft_warm_ms": Figure(warm, "ms", "lower"),
        "memory_gb_per_s": Figure(memory_rate / 1e9, "GB/s", "higher"),
        "bf16_tflop_per_s": Figure(matrix_rate / 1e12, "TFLOP/s", "higher"),
    }
    notes = [f"{case.batch} of {case.context:,} tokens: K and V do not fit" for case in left_out]
    if layers != LLAMA_8B_LAYERS:
        notes.append(
            f"computed with {layers} of {LLAMA_8B_LAYERS} layers: ms are scaled to all of them, "
            "ratios and the host's times are those of these layers"
        )
    for note in notes:
        say(note)
    data = {"layers": layers, "notes": notes, "decode": [asdict(time) for time in decodes]}
    return PartResult(figures=figures, data=data)


def _blocks_left(device: torch.device, layers: int) -> int:
    """Of K and V, beside weights that are there already and what steps need."""
    config = llama_shape(num_layers=layers, context_length=max(CONTEXTS))
    free, total = gpu_memory(device)
    reserve = step_bytes(config, DTYPE, PROMPT + NEW_TOKENS, max(BATCHES), flashinfer=True)
    reserve += graph_bytes(config, DTYPE, max(BATCHES), BLOCK)
    room = free - int(total * (1 - _UTILIZATION)) - reserve
    return max(0, room // (BLOCK * config.kv_bytes_per_token(DTYPE)) - 1)


def decode_figures(decodes: Sequence[DecodeTime]) -> dict[str, Figure]:
    """Of each step: its ratio, its time, and what the host adds with and without look-ahead."""
    figures = {}
    for step in decodes:
        name = f"{step.batch}x{step.context}"
        goal = DECODE_GOAL if step.batch <= MEMORY_BOUND else None
        figures[f"decode_{name}_over_memory_time"] = Figure(step.ratio, "ratio", "lower", goal)
        figures[f"decode_{name}_ms"] = Figure(step.scaled_ms, "ms", "lower")
        visible = step.host.visible_ahead_ms, step.host.visible_alone_ms
        figures[f"decode_{name}_host_ahead_ms"] = Figure(visible[0], "ms", "lower")
        figures[f"decode_{name}_host_alone_ms"] = Figure(visible[1], "ms", "lower")
    return figures


@dataclass(frozen=True, slots=True)
class StepTimer:
    """Times steps of a runner with ``blocks`` blocks, whose model has ``layers`` of the layers."""

    clock: Clock
    runner: GpuRunner
    rng: Random
    blocks: int
    layers: int

    def decode(self, graphs: GraphRunner, case: DecodeCase, memory_rate: float) -> DecodeTime:
        """A recorded step that takes its tokens from the one before, and one that is waited for."""
        config = self.runner.model.config
        free = self.rng.sample(range(self.blocks), self.blocks)
        each = -(-case.context // BLOCK)
        spans = [
            Span(
                (self.rng.randrange(config.vocab_size),),
                case.context - 1,
                free[each * index : each * (index + 1)],
                1,
            )
            for index in range(case.batch)
        ]

        everybody = range(case.batch)
        drawn = [graphs.forward(spans).argmax(dim=-1)]

        def follow() -> None:
            # The step's tokens are those of the one before, which nobody has read.
            tokens = Follow(drawn[0], everybody, everybody)
            drawn[0] = graphs.forward_following(spans, tokens).argmax(dim=-1)

        def wait() -> list[int]:
            tokens: list[int] = graphs.forward(spans).argmax(dim=-1).tolist()
            return tokens

        device_ms = self.clock.device_ms(follow)
        least = arithmetic.least_ms(arithmetic.decode_bytes(config, DTYPE, case), memory_rate)
        return DecodeTime(
            case.batch,
            case.context,
            device_ms / least,
            self.scaled(device_ms, case.batch),
            HostTime(device_ms, self.clock.ahead_ms(follow), self.clock.alone_ms(wait)),
        )

    def prompt(self, matrix_rate: float) -> tuple[float, float]:
        """A cold prompt: the device's ms, scaled, and the share of the rate of products."""
        spans = self.spans(PROMPT, 0, logits=1)
        device_ms = self.clock.device_ms(lambda: self.runner.forward(spans))
        operations = arithmetic.prompt_operations(self.runner.model.config, PROMPT)
        share = arithmetic.share_of_rate(operations, device_ms, matrix_rate)
        return self.scaled(device_ms, 1), share

    def first_token(self, *, cold: bool) -> float:
        """From the host's first act to the best token on the host, in ms, scaled.

        Cold: shared and new tokens are computed, in two steps; warm: only the new ones.
        """
        shared = self.spans(PROMPT, 0, logits=0)
        own = self.spans(NEW_TOKENS, PROMPT, logits=1)

        def answer() -> int:
            if cold:
                self.runner.forward(shared)
            return int(self.runner.forward(own).argmax())

        return self.scaled(self.clock.alone_ms(answer), 1)

    def spans(self, tokens: int, start: int, *, logits: int) -> list[Span]:
        """One sequence in the first blocks."""
        vocabulary = range(self.runner.model.config.vocab_size)
        ids = self.rng.choices(vocabulary, k=tokens)
        return [Span(ids, start, list(range(-(-(start + tokens) // BLOCK))), logits)]

    def scaled(self, milliseconds: float, rows: int) -> float:
        """For all the model's layers, where fewer were computed."""
        if self.layers == LLAMA_8B_LAYERS:
            return milliseconds
        config = self.runner.model.config
        hidden = torch.ones(rows, config.hidden_size, dtype=DTYPE, device=self.runner.model.device)
        head_ms = self.clock.device_ms(lambda: self.runner.logits(hidden))
        return arithmetic.scaled_ms(milliseconds, head_ms, self.layers, LLAMA_8B_LAYERS)
