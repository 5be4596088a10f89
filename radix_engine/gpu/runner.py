"""The forward pass of Llama-family models on a GPU, over any attention and any operations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from radix_engine.attention.interface import Attention, AttentionPlan, AttentionSpan
from radix_engine.gpu.ops import Ops
from radix_engine.gpu.staging import HostStaging
from radix_engine.memory.kv_memory import KVMemory
from radix_engine.model.batch import FlatBatch, Follow, Span, flatten
from radix_engine.model.config import ModelConfig
from radix_engine.model.linear import Linear
from radix_engine.model.runner import check_spans
from radix_engine.model.weights import LayerWeights, LoadedModel


class GpuRunner:
    """Runs a model's forward pass: spans of tokens in, logits out, all on the model's device.

    The residual stream and matrix products are in the model's dtype, K and V in the memory's;
    norms, rotation, activation and softmax are float32 inside; logits are float32. A step's
    integers go to the device in one copy, and nothing waits for the device's work: `forward`
    returns when all is queued, so the next step can be prepared meanwhile. One thread and one
    stream at a time.

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

    def forward(self, spans: Sequence[Span]) -> torch.Tensor:
        """Run one step.

        Writes the K and V of all tokens into their blocks and returns the logits after the last
        ``num_logits`` tokens of each span, in span order: float32 [sum of num_logits, vocab_size]
        on the model's device. A span may read blocks that another span of the step fills. Raises
        ValueError, before anything is queued, for an empty span, a ``num_logits`` that it has not
        the tokens for, a block table that is too short, and ids, blocks or positions out of range.
        """
        return self.forward_following(spans, None)

    @torch.inference_mode()
    def forward_following(self, spans: Sequence[Span], follow: Follow | None) -> torch.Tensor:
        """`forward`, where some of the tokens are another step's, which has been launched.

        These are not looked at. Raises ValueError besides for places and rows that do not exist.
        """
        if not spans:
            return self._no_logits()
        flat = check_step(spans, self.model.config, follow)
        plan = self._attention.plan(attention_spans(spans))
        tokens, positions, wanted, *moved = self.staging.send((*flat, *moves(follow)))
        if follow is not None:
            move_tokens(tokens, follow.tokens, *moved)
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


def check_step(
    spans: Sequence[Span], config: ModelConfig, follow: Follow | None = None
) -> FlatBatch:
    """The spans as flat arrays, looked at on the host so that the device need not be asked.

    Raises ValueError for spans that no model of this shape can run, and for a ``follow`` that does
    not fit them; block tables are the attention's to check.
    """
    check_spans(spans, config.context_length)
    flat = flatten(spans)
    if follow is not None:
        places, rows = moves(follow)
        _check_moves(places, len(flat.tokens), rows, len(follow.tokens))
        flat.tokens[places] = 0
    if not 0 <= int(flat.tokens.min()) <= int(flat.tokens.max()) < config.vocab_size:
        raise ValueError(f"a token id lies outside 0 to {config.vocab_size - 1}")
    return flat


def _check_moves(
    places: npt.NDArray[np.int64], num_tokens: int, rows: npt.NDArray[np.int64], num_rows: int
) -> None:
    """On a device, one that is out of range would end the process's use of it."""
    if not 0 < len(places) == len(rows):
        raise ValueError(f"{len(rows)} tokens of another step cannot go to {len(places)} places")
    for name, indices, limit in (("place", places, num_tokens), ("row", rows, num_rows)):
        if not 0 <= int(indices.min()) <= int(indices.max()) < limit:
            raise ValueError(f"a {name} of another step's token lies outside 0 to {limit - 1}")


def moves(follow: Follow | None) -> tuple[npt.NDArray[np.int64], ...]:
    """Where tokens of another step go, and which: places and rows, to be sent with a step's other
    integers; nothing where there are none."""
    if follow is None:
        return ()
    return np.array(follow.places, np.int64), np.array(follow.rows, np.int64)


def move_tokens(
    tokens: torch.Tensor, sampled: torch.Tensor, places: torch.Tensor, rows: torch.Tensor
) -> None:
    """Put the ``rows`` of ``sampled``, int64, at ``places`` among a step's ``tokens``; the other
    three are int32. All lie on the device, where this is only queued."""
    moved = sampled.index_select(0, rows).to(tokens.dtype)
    tokens.index_copy_(0, places.to(torch.int64), moved)


def attention_spans(spans: Sequence[Span]) -> list[AttentionSpan]:
    """What attention is told of a step's spans."""
    return [AttentionSpan(span.start, len(span.tokens), span.block_table) for span in spans]


def _cast(weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return weight.to(dtype).contiguous()
