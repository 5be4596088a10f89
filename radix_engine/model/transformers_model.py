"""Running a model of transformers over KV blocks.

A step is one forward pass over all spans' tokens as if they were one sequence. What makes them
several is the attention function that we register with transformers: it knows the step's plan, and
takes neither a mask nor a cache from transformers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch

from radix_engine.attention.interface import AttentionPlan, AttentionSpan
from radix_engine.attention.torch_paged import TorchAttention
from radix_engine.memory.kv_memory import KVMemory
from radix_engine.model.batch import Span, flatten
from radix_engine.model.runner import check_spans
from radix_engine.model.sampling_params import SamplingParams
from radix_engine.model.transformers_config import TransformersConfig
from radix_engine.model.transformers_layers import AttentionLayer

OVER_BLOCKS = "radix_engine_blocks"
"""The name of our attention function in transformers."""


@dataclass(frozen=True, slots=True)
class TransformersModel:
    """A model of transformers that is ready to run over blocks.

    ``module`` is the model itself, ``layers`` are its attention layers in the order in which they
    run. ``eos_token_ids`` end an answer; ``sampling`` is how its makers recommend to choose tokens.
    ``load_seconds`` is how long loading and the trial took.
    """

    name: str
    config: TransformersConfig
    dtype: torch.dtype
    device: torch.device
    vocab_size: int
    eos_token_ids: frozenset[int]
    sampling: SamplingParams
    module: Any
    layers: tuple[AttentionLayer, ...]
    load_seconds: float

    @property
    def context_length(self) -> int:
        """Tokens that one sequence may have."""
        return self.config.context_length

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of one token's K and V in all layers."""
        values = sum(2 * layer.kv_heads * layer.head_dim for layer in self.layers)
        return values * self.dtype.itemsize


class TransformersRunner:
    """Runs a transformers model: spans of tokens in, logits out.

    Owns the KV memory (``num_blocks`` blocks of ``block_size`` tokens), not the model: runners of
    one model may follow each other, but not run at the same time. Everything besides attention is
    computed as transformers does, in the model's dtype.
    """

    def __init__(self, model: TransformersModel, num_blocks: int, block_size: int = 16) -> None:
        self.model = model
        self.memory = KVMemory.of_layers(
            [(layer.kv_heads, layer.head_dim) for layer in model.layers],
            num_blocks,
            block_size,
            model.dtype,
            model.device,
        )
        self._attention = TorchAttention(self.memory)
        self._layers = {id(layer.module): i for i, layer in enumerate(model.layers)}
        _register()
        model.module.set_attn_implementation(OVER_BLOCKS)

    @torch.inference_mode()
    def copy_rows(self, copies: Sequence[tuple[int, int, int]]) -> None:
        """Before a step: copy K and V between blocks, as (source, target, rows). See `KVMemory`."""
        self.memory.copy_rows(copies)

    @torch.inference_mode()
    def forward(self, spans: Sequence[Span]) -> torch.Tensor:
        """Run one step. See `ModelRunner.forward`: the same results, shapes and errors."""
        model = self.model
        if not spans:
            return torch.empty(0, model.vocab_size, device=model.device)
        check_spans(spans, model.context_length)
        plan = self._attention.plan(
            [AttentionSpan(span.start, len(span.tokens), span.block_table) for span in spans]
        )
        tokens, positions, wanted = (
            torch.from_numpy(part).to(model.device) for part in flatten(spans)
        )
        if not 0 <= int(tokens.min()) <= int(tokens.max()) < model.vocab_size:
            raise ValueError(f"a token id lies outside 0 to {model.vocab_size - 1}")
        token = _STEP.set(_Step(plan, model, self._layers))
        try:
            output = model.module(
                input_ids=tokens[None],
                position_ids=positions[None],
                use_cache=False,
                logits_to_keep=wanted,
            )
        finally:
            _STEP.reset(token)
        return output.logits[0].to(torch.float32)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class _Step:
    plan: AttentionPlan
    model: TransformersModel
    layers: dict[int, int]


_STEP: ContextVar[_Step] = ContextVar("radix_engine_step")


def _register() -> None:
    # No mask function goes with it, so that transformers makes no masks.
    from transformers import AttentionInterface

    AttentionInterface.register(OVER_BLOCKS, _attend)


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """One layer's attention, called by transformers with [1, heads, tokens, head_dim].

    What else is passed was seen, and found to change nothing, when the model was loaded. Returns
    [1, tokens, heads, head_dim].
    """
    step = _STEP.get()
    layer = step.layers[id(module)]
    dtype = step.model.dtype
    answer = step.plan.attend(
        layer,
        *(states[0].transpose(0, 1).to(dtype) for states in (query, key, value)),
        scale=scaling,
        window=step.model.layers[layer].window,
        softcap=softcap,
    )
    return answer[None].to(query.dtype), None
