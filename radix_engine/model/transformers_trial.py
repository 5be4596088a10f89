"""Whether a model computes over KV blocks what it computes by itself.

Much that a model can do besides attention needs more than the tokens of one step: states of
recurrent layers, convolutions, positions counted by the model. No list of such things is complete,
so every model is tried once.
"""

from __future__ import annotations

from typing import Any

import torch

from radix_engine.model.batch import Span
from radix_engine.model.errors import ModelError
from radix_engine.model.transformers_model import TransformersModel, TransformersRunner

_PROMPT, _CHUNK, _OTHER = 20, 9, 5

# Differences allowed, as a share of how far logits lie from their mean. Rounding makes about 1e-5
# in fp32 and 2% to 12% in bf16; state that is lost or mixed up makes more than a half.
_ALLOWED = {torch.float32: 1e-3, torch.bfloat16: 0.3}


def trial_tokens(vocab_size: int) -> list[int]:
    """Twenty different-looking token ids, always the same."""
    return [(7919 * i + 13) % vocab_size for i in range(1, _PROMPT + 1)]


@torch.inference_mode()
def plain_logits(module: Any, tokens: list[int], device: torch.device) -> torch.Tensor:
    """The logits of transformers itself, without a cache: float32 [tokens, vocabulary]."""
    logits: torch.Tensor = module(
        input_ids=torch.tensor([tokens], device=device), use_cache=False
    ).logits
    return logits[0].to(torch.float32)


def try_over_blocks(model: TransformersModel, tokens: list[int], expected: torch.Tensor) -> None:
    """Raise ModelError if the logits of the trial's ``tokens`` over blocks are not ``expected``.

    The tokens run in two chunks, the second in one step with another sequence, in blocks that do
    not follow one another. Cost: two steps.
    """
    runner = TransformersRunner(model, 8, 4)
    table, other = [5, 1, 6, 0, 3], [7, 2]
    first = runner.forward([Span(tokens[:_CHUNK], 0, table, _CHUNK)])
    second = runner.forward(
        [
            Span(tokens[:_OTHER], 0, other, _OTHER),
            Span(tokens[_CHUNK:], _CHUNK, table, _PROMPT - _CHUNK),
        ]
    )
    wanted = torch.cat((expected[:_CHUNK], expected[:_OTHER], expected[_CHUNK:]))
    difference = _difference(torch.cat((first, second)), wanted)
    allowed = _ALLOWED[model.dtype]
    if not difference <= allowed:
        raise ModelError(
            f"model_type {model.config.model_type!r}: in a trial its logits over KV blocks "
            f"differed from transformers' by {difference:.2g} of their spread (allowed: "
            f"{allowed:.2g}), so it would answer wrongly"
        )


def _difference(logits: torch.Tensor, expected: torch.Tensor) -> float:
    """The worst row's root mean square difference, over that of its expected logits from their
    mean: what goes wrong may do so only where a chunk begins."""
    spread = (expected - expected.mean(dim=-1, keepdim=True)).square().mean(dim=-1)
    return float(((logits - expected).square().mean(dim=-1) / spread).sqrt().max())
