"""Recorded decode steps against the same steps computed without a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch

from radix_engine.attention.flashinfer_attention import FlashInferAttention
from radix_engine.attention.flashinfer_graphs import FlashInferGraphs
from radix_engine.gpu.graphs import Graph, GraphRecorder, GraphRunner
from radix_engine.gpu.ops import FlashInferOps
from radix_engine.gpu.runner import GpuRunner
from radix_engine.gpu.sizing import WORKSPACE_BYTES
from radix_engine.memory.kv_memory import KVMemory
from radix_engine.model.batch import Span
from radix_engine.model.config import ModelConfig
from radix_engine.model.linear import Linear
from radix_engine.model.weights import LoadedModel
from workloads.gpu.outcomes import EXACT, Check, Tolerance, compare
from workloads.gpu.shapes import random_model

PART = "graphs"
UNPADDED_TOLERANCE = {
    # Products of other sizes and other parts of a context round otherwise. Over two layers bf16 is
    # off by up to 0.06 from float32 (by torch on a CPU), and both ways may be, of logits up to 5.
    torch.bfloat16: Tolerance(0.15),
    torch.float32: Tolerance(1e-3),
}
BLOCK = 16
_PEAKED = 3.0  # keys so large that few of them decide: one that is not read is then seen


class Repeats:
    """`GraphRecorder` without graphs: each replay computes the body anew, as it was given."""

    def record(self, body: Callable[[], torch.Tensor]) -> tuple[Graph, torch.Tensor]:
        """See `GraphRecorder.record`."""
        output = body()
        return _Repeat(body, output), output

    def free_bytes(self) -> int:
        """Not looked at."""
        return 0


@dataclass(frozen=True, slots=True)
class _Repeat:
    body: Callable[[], torch.Tensor]
    output: torch.Tensor

    def replay(self) -> None:
        self.output.copy_(self.body())


@dataclass(frozen=True, slots=True)
class Runners:
    """A model's runner, and what makes runners with graphs over the same K and V."""

    plain: GpuRunner
    with_graphs: Callable[[GraphRecorder, int], GraphRunner]


def make_runners(flashinfer: Any, model: LoadedModel[Linear], num_blocks: int) -> Runners:
    """Runners of ``model`` over ``num_blocks`` blocks of random K and V, and one for padding."""
    config, device = model.config, model.device
    memory = KVMemory(
        config.num_layers,
        num_blocks + 1,
        BLOCK,
        config.num_kv_heads,
        config.head_dim,
        model.dtype,
        device,
    )
    generator = torch.Generator(device).manual_seed(0)
    for layer in memory.layers:
        layer[:num_blocks].normal_(0.0, _PEAKED, generator=generator)
    attention = FlashInferAttention(
        memory, config.num_heads, flashinfer, workspace_bytes=WORKSPACE_BYTES
    )
    plain = GpuRunner(model, memory, attention, FlashInferOps(flashinfer))

    def with_graphs(recorder: GraphRecorder, limit: int) -> GraphRunner:
        graphs = FlashInferGraphs(
            flashinfer,
            memory,
            attention.heads,
            config.windows,
            largest=limit,
            context_length=config.context_length,
            workspace=attention.workspace,
        )
        runner = GraphRunner(plain, graphs.attention, recorder, num_blocks)
        runner.capture(limit)
        return runner

    return Runners(plain, with_graphs)


def check_graphs(
    flashinfer: Any,
    device: torch.device,
    dtype: torch.dtype,
    config: ModelConfig,
    recorder: GraphRecorder,
    *,
    batches: Sequence[int],
    contexts: Sequence[int],
    seed: int,
) -> list[Check]:
    """Steps of every batch size at every context (tokens that the new one sees, itself included).

    Replayed and computed by the same kernels without a graph they are equal to the bit. Computed
    without padding, by kernels that were planned for that step alone, they are near.
    """
    rng = Random(seed)
    model = random_model(config, dtype, device, seed)
    num_blocks = max(batches) * -(-max(contexts) // BLOCK)
    runners = make_runners(flashinfer, model, num_blocks)
    # So many that the largest batch has a graph, too.
    limit = -(-max(batches) // 8) * 8
    graphs, repeats = (runners.with_graphs(way, limit) for way in (recorder, Repeats()))
    checks = []
    for batch in batches:
        for context in contexts:
            spans = decode_spans(rng, config, num_blocks, batch, context)
            logits = []
            for runner in (graphs, repeats, runners.plain):
                spoil_new_rows(runner.memory, spans)
                logits.append(runner.forward(spans))
            name = f"{batch} of {context:,} tokens, {config.num_heads} heads"
            checks.append(compare(PART, f"{name}, replayed", logits[0], logits[1], EXACT))
            tolerance = UNPADDED_TOLERANCE[dtype]
            checks.append(compare(PART, f"{name}, not padded", logits[0], logits[2], tolerance))
    return checks


def decode_spans(
    rng: Random, config: ModelConfig, num_blocks: int, batch: int, context: int
) -> list[Span]:
    """Sequences that lack their last token: the first of ``context`` tokens, the others a little
    shorter, each in blocks of its own."""
    free = rng.sample(range(num_blocks), num_blocks)
    spans = []
    for index in range(batch):
        length = max(1, context - 5 * index)
        table = [free.pop() for _ in range(-(-length // BLOCK))]
        spans.append(Span((rng.randrange(config.vocab_size),), length - 1, table, 1))
    return spans


def spoil_new_rows(memory: KVMemory, spans: Sequence[Span]) -> None:
    """NaN where the spans' tokens will be written."""
    for layer in memory.layers:
        for span in spans:
            for position in range(span.start, span.start + len(span.tokens)):
                block, row = divmod(position, BLOCK)
                layer[span.block_table[block], :, row] = float("nan")
