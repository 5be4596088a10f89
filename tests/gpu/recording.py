"""A stand-in for CUDA's graphs that records and repeats, and runners that use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from radix_engine.attention.flashinfer_graphs import FlashInferGraphs
from radix_engine.attention.flashinfer_wrappers import Heads
from radix_engine.attention.torch_paged import TorchAttention
from radix_engine.gpu.graphs import (
    GraphRunner,
)
from radix_engine.gpu.ops import TorchOps
from radix_engine.gpu.runner import GpuRunner
from radix_engine.gpu.served import without_last_block
from radix_engine.memory.kv_memory import KVMemory
from radix_engine.model.batch import Span
from radix_engine.model.linear import Linear
from radix_engine.model.runner import ModelRunner
from radix_engine.model.weights import LoadedModel
from tests.gpu.binding import bound_fake
from tests.gpu.fake_flashinfer import FakeFlashInfer
from tests.gpu.runners import (
    NUM_BLOCKS,
    all_logits,
    memory_of,
    tables,
)
from tests.model.helpers import random_tokens

DUMMY = NUM_BLOCKS


class Repeat:
    """Runs the body again, into the tensor of the recording."""

    def __init__(self, body: Callable[[], torch.Tensor]) -> None:
        self._body = body
        self.output = body()
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1
        self.output.copy_(self._body())


class Recorder:
    """`GraphRecorder` by repetition. Each graph takes 100 bytes."""

    def __init__(self) -> None:
        self.graphs: dict[int, Repeat] = {}  # by size, in the order of recording

    def record(self, body: Callable[[], torch.Tensor]) -> tuple[Repeat, torch.Tensor]:
        graph = Repeat(body)
        self.graphs[len(graph.output)] = graph
        return graph, graph.output

    def free_bytes(self) -> int:
        return 10_000 - 100 * len(self.graphs)

    @property
    def replays(self) -> dict[int, int]:
        return {size: graph.replays for size, graph in self.graphs.items() if graph.replays}


def graphs_of(
    model: LoadedModel[Linear], memory: KVMemory, fake: FakeFlashInfer, largest: int
) -> FlashInferGraphs:
    config = model.config
    heads = Heads(config.num_heads, config.num_kv_heads, config.head_dim, 16, model.dtype)
    return FlashInferGraphs(
        fake,
        memory,
        heads,
        config.windows,
        largest=largest,
        context_length=config.context_length,
        workspace=torch.zeros(2**20, dtype=torch.uint8),
    )


class Setup:
    """A runner with graphs of up to ``limit`` sequences, and what it is made of."""

    def __init__(self, model_runner: ModelRunner, limit: int) -> None:
        self.model_runner = model_runner
        model = model_runner.model
        self.memory = memory_of(model, NUM_BLOCKS + 1)
        lent = without_last_block(self.memory)
        self.eager = GpuRunner(model, lent, TorchAttention(lent), TorchOps())
        self.recorder = Recorder()
        self.fake = bound_fake()
        graphs = graphs_of(model, self.memory, self.fake, limit)
        self.runner = GraphRunner(self.eager, graphs.attention, self.recorder, DUMMY)
        self.progress: list[tuple[int, int]] = []
        self.taken = self.runner.capture(limit, lambda *step: self.progress.append(step))

    @property
    def plans(self) -> int:
        return int(self.fake.calls["CUDAGraphBatchDecodeWithPagedKVCacheWrapper.plan"])

    def decodes(self, lengths: Sequence[int]) -> tuple[list[Span], torch.Tensor]:
        """Sequences that lack their last token, and the model's logits after it."""
        spans, expected = [], []
        for i, (length, table) in enumerate(
            zip(lengths, tables(*[-(-n // 16) for n in lengths], seed=len(lengths)), strict=True)
        ):
            tokens = random_tokens(length, seed=i)
            if length > 1:
                self.eager.forward([Span(tokens[:-1], 0, table, 0)])
            spans.append(Span(tokens[-1:], length - 1, table, 1))
            expected.append(all_logits(self.model_runner, tokens)[-1])
        return spans, torch.stack(expected)
