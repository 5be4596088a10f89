"""What check-gpu-offline plans: shapes of heads, batches, and context lengths for CUDA graphs."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np

from radix_engine.attention.interface import AttentionSpan

LAYERS = 4
BLOCK_SIZE = 16
# Tables name blocks many times over: nothing reads them, and no context is too long for them.
NUM_BLOCKS = 2048
WORKSPACE_MIB = 256

DECODE_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 192, 256)
DECODE_CONTEXTS = (1024, 8192)

GRAPH_LIMIT = 256
GRAPH_CONTEXTS = (1, 16, 17, 257, 1024, 4000, 8192, 32_768, 131_072)


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's attention: heads, the window of each layer in turn (None: none), and whether K and
    V are in fp8."""

    name: str
    num_heads: int
    num_kv_heads: int
    head_dim: int
    windows: tuple[int | None, ...] = (None,)
    fp8: bool = False

    @property
    def heads(self) -> str:
        """The numbers, for a table."""
        return f"{self.num_heads}/{self.num_kv_heads} x {self.head_dim}"

    def window(self, layer: int) -> int | None:
        """That of a layer."""
        return self.windows[layer % len(self.windows)]


LLAMA_8B = Shape("Llama-3.1-8B", 32, 8, 128)
LLAMA_70B = Shape("Llama-3.1-70B", 64, 8, 128)
# The last three decode without tensor cores: fewer than four query heads share a KV head.
SHAPES = (
    LLAMA_8B,
    LLAMA_70B,
    Shape("8B, every other window 4096", 32, 8, 128, (None, 4096)),
    Shape("8B, K and V in fp8", 32, 8, 128, fp8=True),
    Shape("Qwen2.5-0.5B", 14, 2, 64),
    Shape("SmolLM2-135M", 9, 3, 64),
    Shape("Llama-2-7B", 32, 32, 128),
    Shape("Llama-2-7B, K and V in fp8", 32, 32, 128, fp8=True),
)


@dataclass(frozen=True, slots=True)
class Batch:
    """A step: spans of (start, length) in tokens, all behind the same ``shared`` tokens."""

    kind: str
    name: str
    spans: tuple[tuple[int, int], ...]
    shared: int = 0

    @property
    def num_tokens(self) -> int:
        """The queries of the step."""
        return sum(length for _, length in self.spans)

    @property
    def longest(self) -> int:
        """The longest context, in tokens."""
        return self.shared + max(start + length for start, length in self.spans)

    def attention_spans(self) -> list[AttentionSpan]:
        """The spans with their tables: the shared blocks, then others than any other span's."""
        head = self.shared // BLOCK_SIZE
        made = []
        for number, (start, length) in enumerate(self.spans):
            own = -(-(start + length) // BLOCK_SIZE)
            # No two spans begin alike, so that nothing but the head is shared.
            ids = head + (number * 61 + np.arange(own)) % (NUM_BLOCKS - head)
            table = np.concatenate((np.arange(head), ids))
            made.append(AttentionSpan(self.shared + start, length, array("i", table.tolist())))
        return made


def batches() -> tuple[Batch, ...]:
    """All steps that are planned for each shape."""
    decodes = [
        Batch("decode", f"{size} of {context // 1024}k", ((context - 1, 1),) * size)
        for context in DECODE_CONTEXTS
        for size in DECODE_SIZES
    ]
    mixed = [
        Batch("prefill", "2048 tokens", ((0, 2048),)),
        Batch("prefill", "64 prompts of 32", ((0, 32),) * 64),
        Batch("prefill", "2048 behind 126k", ((129_024, 2048),)),
        Batch("prefill", "128 behind 126k", ((129_024, 128),)),
        Batch("prefill", "16 behind 126k", ((129_024, 16),)),
        Batch("prefill", "512, and 64 decodes at 1k", ((0, 512), *((1023, 1),) * 64)),
        Batch(
            "prefill",
            "1024 at 4k and 512 at 0, and 255 decodes at 8k",
            ((4096, 1024), (0, 512), *((8191, 1),) * 255),
        ),
    ]
    cascades = [
        Batch("cascade", f"{size} decodes share {shared}", ((63, 1),) * size, shared)
        for size, shared in ((2, 256), (8, 1024), (64, 8192), (256, 8192))
    ]
    cascades.append(Batch("cascade", "8 of 200 share 4096", ((30, 200),) * 8, 4096))
    return (*decodes, *mixed, *cascades)


def graph_spans(size: int) -> dict[str, list[AttentionSpan]]:
    """``size`` decodes by the name of their contexts: all alike, and all contexts in turn."""
    table = array("i", (np.arange(max(GRAPH_CONTEXTS) // BLOCK_SIZE) % NUM_BLOCKS).tolist())
    made = {f"{n}": [AttentionSpan(n - 1, 1, table)] * size for n in GRAPH_CONTEXTS}
    turns = (GRAPH_CONTEXTS[i % len(GRAPH_CONTEXTS)] for i in range(size))
    return {**made, "mixed": [AttentionSpan(n - 1, 1, table) for n in turns]}
