"""What the attention layers of a transformers model do, seen by running the model once.

The model runs with an attention function that computes nothing and notes how it was called, and
with masks that can be asked about any position, not only those of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch

from radix_engine.model.errors import ModelError

RECORDING = "radix_engine_recording"
"""The name of the noting attention function in transformers, once `register_recording` ran."""

Mask = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], Any]
"""Whether a query sees a key, as transformers writes it: (batch, head, query, key), broadcast."""

# What our attention reads, and what changes nothing in it: positions are in Q and K already.
_UNDERSTOOD = {"scaling", "softcap", "sliding_window", "is_causal", "dropout", "position_ids"}


@dataclass(frozen=True, slots=True)
class AttentionLayer:
    """One attention layer: the module, the shape of its K and V, and its sliding window."""

    module: torch.nn.Module
    kv_heads: int
    head_dim: int
    window: int | None


@dataclass(slots=True)
class _Record:
    context_length: int
    layers: list[AttentionLayer] = field(default_factory=list)
    masks: dict[int, tuple[torch.Tensor, Mask]] = field(default_factory=dict)
    windows: dict[int, int | None] = field(default_factory=dict)


_RECORD: ContextVar[_Record] = ContextVar("radix_engine_record")


@torch.inference_mode()
def record_layers(
    module: Any, token_ids: torch.Tensor, context_length: int
) -> tuple[AttentionLayer, ...]:
    """The attention layers of ``module`` in the order in which they run.

    ``token_ids`` [tokens]: any two or more. Raises ModelError for what our attention does not do:
    masks other than causal ones and sliding windows, sinks, position biases, K and V of different
    widths, layers that run twice. Cost: one forward pass without attention, and a few rows of each
    mask over ``context_length``.
    """
    record = _Record(context_length)
    register_recording()
    before = module.config._attn_implementation
    module.set_attn_implementation(RECORDING)
    token = _RECORD.set(record)
    try:
        positions = torch.arange(len(token_ids), device=token_ids.device)
        module(
            input_ids=token_ids[None],
            position_ids=positions[None],
            use_cache=False,
            logits_to_keep=1,
        )
    finally:
        _RECORD.reset(token)
        module.set_attn_implementation(before)
    return tuple(record.layers)


def register_recording() -> None:
    """Make the noting functions known to transformers. Doing so again changes nothing."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(RECORDING, _record_attention)
    AttentionMaskInterface.register(RECORDING, _record_mask)


def _record_mask(
    batch_size: int, q_length: int, kv_length: int, *, mask_function: Mask, **_: Any
) -> torch.Tensor:
    """A mask of the usual shape and kind, by whose memory its function is found again."""
    record = _RECORD.get()
    mask = torch.ones(batch_size, 1, q_length, kv_length, dtype=torch.bool)
    record.masks[mask.untyped_storage().data_ptr()] = (mask, mask_function)
    return mask


def _record_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **arguments: Any,
) -> tuple[torch.Tensor, None]:
    record = _RECORD.get()
    _check_call(module, query, key, value, arguments)
    if any(layer.module is module for layer in record.layers):
        raise ModelError("a layer's attention runs twice in one forward pass")
    window = _window(record, attention_mask, arguments.get("sliding_window"))
    record.layers.append(AttentionLayer(module, key.shape[1], key.shape[3], window))
    return torch.zeros_like(query).transpose(1, 2).contiguous(), None


def _check_call(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    arguments: dict[str, Any],
) -> None:
    strange = sorted(
        name
        for name, given in arguments.items()
        if name not in _UNDERSTOOD and given is not None and given is not False
    )
    if strange:
        raise ModelError(f"its attention takes {', '.join(strange)}, which ours does not know")
    if not (arguments.get("is_causal") or getattr(module, "is_causal", True)):
        raise ModelError("its attention is not causal")
    if arguments.get("is_causal") is False:
        raise ModelError("its attention is not causal")
    for name in ("scaling", "softcap"):
        if not isinstance(arguments.get(name), int | float | None):
            raise ModelError(f"its attention has a {name} that is not one number")
    if key.shape != value.shape:
        raise ModelError(
            f"its keys and values have different shapes, {list(key.shape[1:])} and "
            f"{list(value.shape[1:])}"
        )
    if query.shape[0] != 1 or query.shape[2:] != key.shape[2:] or query.shape[1] % key.shape[1]:
        raise ModelError(
            f"its queries {list(query.shape)} do not belong to keys {list(key.shape)} of the "
            f"same tokens"
        )


def _window(record: _Record, mask: torch.Tensor | None, named: int | None) -> int | None:
    """The sliding window of the layer that was given ``mask``: what transformers computes by."""
    if mask is None:
        if named is not None and named < record.context_length:
            raise ModelError("its sliding window comes without a mask, which ours cannot check")
        return None
    pointer = mask.untyped_storage().data_ptr()
    if pointer not in record.masks:
        raise ModelError("it makes an attention mask of its own, which ours does not know")
    if pointer not in record.windows:
        record.windows[pointer] = read_window(record.masks[pointer][1], record.context_length)
    return record.windows[pointer]


def read_window(mask: Mask, context_length: int) -> int | None:
    """The sliding window that ``mask`` stands for; None if it hides nothing but what comes later.

    Compared at some 20 queries over the whole context: the first ones, those around the window's
    end, and others spread evenly. Raises ModelError for any other mask.
    """
    last = context_length - 1
    seen = int(_rows(mask, torch.tensor([last]), context_length).sum())
    window = seen if seen < context_length else None
    edges = [0, 1, 2, seen - 2, seen - 1, seen, seen + 1, 2 * seen, 2 * seen + 1]
    spread = torch.linspace(0, last, 12).round().to(torch.int64).tolist()
    queries = torch.tensor(sorted({q for q in (*edges, *spread) if 0 <= q <= last}))
    keys = torch.arange(context_length)[None]
    expected = keys <= queries[:, None]
    if window is not None:
        expected &= keys > queries[:, None] - window
    if not torch.equal(_rows(mask, queries, context_length), expected):
        raise ModelError("its attention mask is neither causal nor a sliding window")
    return window


def _rows(mask: Mask, queries: torch.Tensor, context_length: int) -> torch.Tensor:
    """What these queries see of the whole context: bool [queries, context_length]."""
    zero = torch.tensor(0)
    seen = mask(zero, zero, queries[:, None], torch.arange(context_length)[None])
    return torch.as_tensor(seen).expand(len(queries), context_length)
