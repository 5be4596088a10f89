"""The forward pass of Llama-family models over KV blocks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from radix_engine.attention.interface import Attention, AttentionSpan
from radix_engine.attention.torch_paged import TorchAttention
from radix_engine.memory.kv_memory import KVMemory
from radix_engine.model.batch import Follow, Span, flatten
from radix_engine.model.linear import Linear
from radix_engine.model.rope import inverse_frequencies, rotate, rotation
from radix_engine.model.weights import LayerWeights, LoadedModel


class ModelRunner:
    """Runs a model's forward pass: spans of tokens in, logits out.

    Owns the weights and the KV memory (``num_blocks`` blocks of ``block_size`` tokens). Matrix
    products and K and V are in the model's dtype; the residual stream, norms, rotation, softmax
    and logits are float32.
    """

    def __init__(self, model: LoadedModel[Linear], num_blocks: int, block_size: int = 16) -> None:
        config = model.config
        self.model = model
        self.memory = KVMemory(
            config.num_layers,
            num_blocks,
            block_size,
            config.num_kv_heads,
            config.head_dim,
            model.dtype,
            model.device,
        )
        self.attention: Attention = TorchAttention(self.memory)
        self._frequencies = inverse_frequencies(config).to(model.device)

    @torch.inference_mode()
    def copy_rows(self, copies: Sequence[tuple[int, int, int]]) -> None:
        """Before a step: copy K and V between blocks, as (source, target, rows). See `KVMemory`."""
        self.memory.copy_rows(copies)

    def forward(self, spans: Sequence[Span]) -> torch.Tensor:
        """Run one step.

        Writes the K and V of all tokens into their blocks and returns the logits after the last
        ``num_logits`` tokens of each span, in span order: float32 [sum of num_logits, vocab_size].
        A span may read blocks that another span of the step fills. Raises ValueError for an empty
        span, a ``num_logits`` that it has not the tokens for, a block table that is too short, and
        ids or positions out of range.
        """
        return self.forward_following(spans, None)

    @torch.inference_mode()
    def forward_following(self, spans: Sequence[Span], follow: Follow | None) -> torch.Tensor:
        """`forward`, where some of the tokens are another step's, which has been launched."""
        config = self.model.config
        if not spans:
            return self._no_logits()
        check_spans(spans, config.context_length)
        plan = self.attention.plan(
            [AttentionSpan(span.start, len(span.tokens), span.block_table) for span in spans]
        )
        tokens, positions, wanted = (
            torch.from_numpy(part).to(self.model.device) for part in flatten(spans)
        )
        if follow is not None:
            tokens[follow.places] = follow.tokens[follow.rows]
        if not 0 <= int(tokens.min()) <= int(tokens.max()) < config.vocab_size:
            raise ValueError(f"a token id lies outside 0 to {config.vocab_size - 1}")
        cosines, sines = rotation(positions, self._frequencies)
        residual = F.embedding(tokens, self.model.embedding).to(torch.float32)
        last = config.num_layers - 1
        for index, layer in enumerate(self.model.layers):
            queries, keys, values = self._project(layer, residual, cosines, sines)
            if index == last and not len(wanted):
                plan.write(index, keys, values)
                return self._no_logits()
            attended = plan.attend(index, queries, keys, values, window=config.windows[index])
            if index == last:
                # Behind the last layer's K and V only the rows that want logits matter.
                attended = attended.index_select(0, wanted)
                residual = residual.index_select(0, wanted)
            residual += layer.output(attended.flatten(1))
            residual += self._mlp(layer, residual)
        logits = self.model.head(self._norm(residual, self.model.norm))
        return logits.to(torch.float32)

    def _no_logits(self) -> torch.Tensor:
        return torch.empty(0, self.model.config.vocab_size, device=self.model.device)

    def _project(
        self,
        layer: LayerWeights[Linear],
        residual: torch.Tensor,
        cosines: torch.Tensor,
        sines: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rotated queries, rotated keys and values, each [tokens, heads, head_dim]."""
        config = self.model.config
        projected = layer.qkv(self._norm(residual, layer.input_norm))
        heads = projected.view(len(residual), -1, config.head_dim)
        key_end = config.num_heads + config.num_kv_heads
        rotated = heads[:, :key_end]
        if layer.query_norm is not None and layer.key_norm is not None:
            queries = self._norm(heads[:, : config.num_heads], layer.query_norm)
            keys = self._norm(heads[:, config.num_heads : key_end], layer.key_norm)
            rotated = torch.cat((queries, keys), dim=1)
        rotated = rotate(rotated, cosines, sines).to(self.model.dtype)
        return rotated[:, : config.num_heads], rotated[:, config.num_heads :], heads[:, key_end:]

    def _mlp(self, layer: LayerWeights[Linear], residual: torch.Tensor) -> torch.Tensor:
        both = layer.gate_up(self._norm(residual, layer.mlp_norm))
        gate, up = both.chunk(2, dim=-1)
        return layer.down(F.silu(gate).mul_(up))

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """RMS norm over the last dimension, computed in float32, in the model's dtype."""
        normed = F.rms_norm(x.to(torch.float32), weight.shape, weight, self.model.config.rms_eps)
        return normed.to(self.model.dtype)


def check_spans(spans: Sequence[Span], context_length: int) -> None:
    """Raise ValueError for spans that no model with this context can run."""
    for span in spans:
        if not len(span.tokens):
            raise ValueError("a span needs at least one token")
        if not 0 <= span.num_logits <= len(span.tokens):
            raise ValueError(
                f"num_logits must be from 0 to the span's {len(span.tokens)} tokens, "
                f"not {span.num_logits}"
            )
        if span.start < 0 or span.start + len(span.tokens) > context_length:
            raise ValueError(
                f"positions {span.start} to {span.start + len(span.tokens) - 1} "
                f"do not fit the context of {context_length} tokens"
            )
