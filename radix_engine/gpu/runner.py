"""The forward pass of Llama-family models on a GPU, over any attention and any operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from radix_engine.attention.interface import Attention, AttentionPlan, AttentionSpan
from radix_engine.gpu.ops import Ops
from radix_engine.memory.kv_memory import KVMemory
from radix_engine.model.batch import FlatBatch, Span, flatten
from radix_engine.model.config import ModelConfig
from radix_engine.model.linear import Linear
from radix_engine.model.runner import check_spans
from radix_engine.model.weights import LayerWeights, LoadedModel

_SMALLEST_BUFFER = 1024


class GpuRunner:
    """Runs a model's forward pass: spans of tokens in, logits out, all on the model's device.

    The residual stream, K, V and matrix products are in the model's dtype; norms, rotation,
    activation and softmax are float32 inside; logits are float32. A step's integers go to the
    device in one copy, and nothing waits for the device's work: `forward` returns when all is
    queued, so the next step can be prepared meanwhile. One thread and one stream at a time.

    Raises ValueError where the memory is not one of this model.
    """

    def __init__(
        self, model: LoadedModel[Linear], memory: KVMemory, attention: Attention, ops: Ops
    ) -> None:
        config = model.config
        expected = (config.num_kv_heads, config.head_dim)
        shapes = {tuple(layer.shape[3:]) for layer in memory.layers}
        if len(memory.layers) != config.num_layers or shapes != {expected}:
            raise ValueError(
                f"a model of {config.num_layers} layers with K and V heads {expected} cannot use "
                f"a memory of {len(memory.layers)} layers with {sorted(shapes)}"
            )
        self.model = model
        self.memory = memory
        self.staging = HostStaging(model.device)
        self._attention = attention
        self._ops = ops
        self._rotate = ops.rope(config, model.device)
        # A kernel reads its norm weights in the dtype of what it norms.
        self._norms = tuple(
            (_cast(layer.input_norm, model.dtype), _cast(layer.mlp_norm, model.dtype))
            for layer in model.layers
        )
        self._head_norms = tuple(
            None
            if layer.query_norm is None or layer.key_norm is None
            else (_cast(layer.query_norm, model.dtype), _cast(layer.key_norm, model.dtype))
            for layer in model.layers
        )
        self._last_norm = _cast(model.norm, model.dtype)

    @torch.inference_mode()
    def copy_rows(self, copies: Sequence[tuple[int, int, int]]) -> None:
        """Before a step: copy K and V between blocks, as (source, target, rows). See `KVMemory`."""
        self.memory.copy_rows(copies)

    @torch.inference_mode()
    def forward(self, spans: Sequence[Span]) -> torch.Tensor:
        """Run one step.

        Writes the K and V of all tokens into their blocks and returns the logits after the last
        ``num_logits`` tokens of each span, in span order: float32 [sum of num_logits, vocab_size]
        on the model's device. A span may read blocks that another span of the step fills. Raises
        ValueError, before anything is queued, for an empty span, a ``num_logits`` that it has not
        the tokens for, a block table that is too short, and ids, blocks or positions out of range.
        """
        if not spans:
            return self._no_logits()
        flat = check_step(spans, self.model.config)
        plan = self._attention.plan(attention_spans(spans))
        tokens, positions, wanted = self.staging.send(flat)
        hidden = self.hidden(tokens, positions, wanted, plan)
        return self._no_logits() if hidden is None else self.logits(hidden)

    def hidden(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        wanted: torch.Tensor | None,
        plan: AttentionPlan,
    ) -> torch.Tensor | None:
        """All layers: what the head makes logits of, [rows that want any, hidden_size].

        All three are int32 on the device; ``wanted`` None: every row. None where no row wants any.
        Only queues work on the device, so that a CUDA graph can be made of it. In inference mode.
        """
        if wanted is not None and len(wanted) == len(tokens):
            wanted = None
        config, ops = self.model.config, self._ops
        last = config.num_layers - 1
        residual = F.embedding(tokens, self.model.embedding)
        normed = ops.rms_norm(residual, self._norms[0][0], config.rms_eps)
        for index, layer in enumerate(self.model.layers):
            queries, keys, values = self._project(index, layer, normed, positions)
            if index == last and wanted is not None and not len(wanted):
                plan.write(index, keys, values)
                return None
            attended = plan.attend(index, queries, keys, values, window=config.windows[index])
            if index == last and wanted is not None:
                # Behind the last layer's K and V only the rows that want logits matter.
                attended = attended.index_select(0, wanted)
                residual = residual.index_select(0, wanted)
            output = layer.output(attended.flatten(1))
            normed = ops.add_rms_norm(output, residual, self._norms[index][1], config.rms_eps)
            down = layer.down(ops.silu_and_mul(layer.gate_up(normed)))
            # The next layer's first norm, or the one before the head, takes the sum along.
            after = self._last_norm if index == last else self._norms[index + 1][0]
            normed = ops.add_rms_norm(down, residual, after, config.rms_eps)
        return normed

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """The head: float32 [rows, vocab_size], of `hidden`'s rows. In inference mode."""
        return self.model.head(hidden).to(torch.float32)

    def _no_logits(self) -> torch.Tensor:
        return torch.empty(0, self.model.config.vocab_size, device=self.model.device)

    def _project(
        self,
        index: int,
        layer: LayerWeights[Linear],
        normed: torch.Tensor,
        positions: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rotated queries, rotated keys and values, each [tokens, heads, head_dim].

        As a rule these are views into one tensor, so a token's heads lie side by side, but not one
        token's next to another's.
        """
        config = self.model.config
        heads = layer.qkv(normed).view(len(normed), -1, config.head_dim)
        queries, keys, values = torch.split(
            heads, [config.num_heads, config.num_kv_heads, config.num_kv_heads], dim=1
        )
        norms = self._head_norms[index]
        if norms is not None:
            queries = self._ops.rms_norm(queries, norms[0], config.rms_eps)
            keys = self._ops.rms_norm(keys, norms[1], config.rms_eps)
        self._rotate(queries, keys, positions)
        return queries, keys, values


def check_step(spans: Sequence[Span], config: ModelConfig) -> FlatBatch:
    """The spans as flat arrays, looked at on the host so that the device need not be asked.

    Raises ValueError for spans that no model of this shape can run; block tables are the
    attention's to check.
    """
    check_spans(spans, config.context_length)
    flat = flatten(spans)
    if not 0 <= int(flat.tokens.min()) <= int(flat.tokens.max()) < config.vocab_size:
        raise ValueError(f"a token id lies outside 0 to {config.vocab_size - 1}")
    return flat


def attention_spans(spans: Sequence[Span]) -> list[AttentionSpan]:
    """What attention is told of a step's spans."""
    return [AttentionSpan(span.start, len(span.tokens), span.block_table) for span in spans]


class Event(Protocol):
    """A point in the device's work that the host can wait for."""

    def record(self) -> None:
        """Set the point: after all that is queued."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has passed it; at once where it was never set."""
        ...


class HostStaging:
    """Two host buffers in turn, out of which a step's integers go to the device in one copy.

    On CUDA the buffers are pinned and the copies run by themselves. A buffer is written again only
    when the device has copied what it held: that is the copy of two sends before, so the host waits
    only where it is two steps ahead. ``make_event`` is for tests.
    """

    def __init__(self, device: torch.device, make_event: Callable[[], Event] | None = None) -> None:
        self._device = device
        if make_event is None:
            make_event = (lambda: _CudaEvent(device)) if device.type == "cuda" else _NoEvent
        self._slots = [_Slot(device.type == "cuda", make_event()) for _ in range(2)]
        self._sends = 0

    def send(
        self, parts: Sequence[npt.NDArray[np.int64]], target: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, ...]:
        """The parts on the device, as int32 views into one tensor.

        ``target``: that tensor, int32 [all parts' numbers]; None: a new one.
        """
        lengths = [len(part) for part in parts]
        slot = self._slots[self._sends % 2]
        self._sends += 1
        slot.sent.synchronize()
        host = slot.filled(parts, sum(lengths))
        if target is None:
            target = torch.empty(len(host), dtype=torch.int32, device=self._device)
        target.copy_(host, non_blocking=True)
        slot.sent.record()
        return torch.split(target, lengths)


class _Slot:
    """One host buffer, which grows as needed, and when it was last sent."""

    def __init__(self, pinned: bool, sent: Event) -> None:
        self.sent = sent
        self._pinned = pinned
        self._buffer = torch.empty(0, dtype=torch.int32)
        self._view: npt.NDArray[np.int32] = self._buffer.numpy()

    def filled(self, parts: Sequence[npt.NDArray[np.int64]], total: int) -> torch.Tensor:
        if total > len(self._view):
            size = max(_SMALLEST_BUFFER, 1 << (total - 1).bit_length())
            self._buffer = torch.empty(size, dtype=torch.int32, pin_memory=self._pinned)
            self._view = self._buffer.numpy()
        np.concatenate(parts, out=self._view[:total], casting="same_kind")
        return self._buffer[:total]


class _CudaEvent:
    """An event of the stream that is current when it is recorded."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def record(self) -> None:
        self._event.record(torch.cuda.current_stream(self._device))

    def synchronize(self) -> None:
        self._event.synchronize()


class _NoEvent:
    """Where copies are done when they return."""

    def record(self) -> None:
        """Nothing is under way."""

    def synchronize(self) -> None:
        """Nothing to wait for."""


def _cast(weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return weight.to(dtype).contiguous()
