"""A whole model on a device, by FlashInfer, against its own float32 runner on the CPU.

The tokens are forced: both get the same prompts, whatever they would have answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch

from radix_engine.attention.flashinfer_attention import FlashInferAttention
from radix_engine.gpu.ops import FlashInferOps
from radix_engine.gpu.runner import GpuRunner
from radix_engine.gpu.sizing import WORKSPACE_BYTES
from radix_engine.memory.kv_memory import KVMemory
from radix_engine.model.batch import Span
from radix_engine.model.linear import Linear
from radix_engine.model.runner import ModelRunner
from radix_engine.model.weights import LoadedModel
from workloads.agents.text import TASKS, tool_result
from workloads.gpu.checks_graphs import spoil_new_rows
from workloads.gpu.outcomes import Check, Tolerance, compare

PART = "model"
PROMPTS = 20
MOST_TOKENS = 160


@dataclass(frozen=True, slots=True)
class LogitTolerance:
    """How far logits may be off.

    ``typical``: the median over tokens of the largest error of a token's logits. ``likeliest``: any
    error of the log-probabilities of the reference's ten likeliest tokens. ``margin``: where the
    reference's best token is ahead by more, it must be the best one.
    """

    typical: float
    likeliest: float
    margin: float


LOGIT_TOLERANCE = {
    # The default model in bf16 by torch on a CPU is off by 0.33 (typical) and 0.85 (likeliest), and
    # has all best tokens even with a margin of 0.25. Single logits are off by up to 2.5.
    torch.bfloat16: LogitTolerance(0.6, 1.7, 1.0),
    torch.float32: LogitTolerance(1e-3, 1e-3, 1e-2),
}
LIKELIEST = 10
BLOCK = 16


def check_model(
    flashinfer: Any,
    model: LoadedModel[Linear],
    reference: LoadedModel[Linear],
    prompts: Sequence[Sequence[int]],
) -> list[Check]:
    """``model`` and ``reference`` have the same weights.

    Cold: each prompt in a step of its own. Warm: the second halves of all prompts in one step, the
    first ones are in K and V. Decode: the last tokens of all prompts in one step. Logits after
    every token are compared as `LOGIT_TOLERANCE` says.
    """
    tables = _tables(prompts)
    blocks = sum(map(len, tables))
    expected = _reference_logits(reference, prompts, tables, blocks)
    config = model.config
    memory = KVMemory(
        config.num_layers,
        blocks,
        BLOCK,
        config.num_kv_heads,
        config.head_dim,
        model.dtype,
        model.device,
    )
    attention = FlashInferAttention(
        memory, config.num_heads, flashinfer, workspace_bytes=WORKSPACE_BYTES
    )
    runner = GpuRunner(model, memory, attention, FlashInferOps(flashinfer))
    tolerance = LOGIT_TOLERANCE[model.dtype]

    cold = [
        runner.forward([Span(prompt, 0, table, len(prompt))]).cpu()
        for prompt, table in zip(prompts, tables, strict=True)
    ]
    checks = compare_logits("cold", torch.cat(cold), torch.cat(expected), tolerance)
    for name, begins in (
        ("warm", [len(prompt) // 2 for prompt in prompts]),
        ("decode", [len(prompt) - 1 for prompt in prompts]),
    ):
        spans = [
            Span(prompt[begin:], begin, table, len(prompt) - begin)
            for prompt, table, begin in zip(prompts, tables, begins, strict=True)
        ]
        spoil_new_rows(memory, spans)
        wanted = [logits[begin:] for logits, begin in zip(expected, begins, strict=True)]
        checks += compare_logits(name, runner.forward(spans), torch.cat(wanted), tolerance)
    return checks


def compare_logits(
    name: str, found: torch.Tensor, expected: torch.Tensor, tolerance: LogitTolerance
) -> list[Check]:
    """Logits [tokens, vocabulary] after the same tokens, in three ways: see `LogitTolerance`."""
    found = found.cpu()
    likeliest = expected.topk(LIKELIEST, dim=-1).indices
    errors = (found - expected).abs().amax(dim=-1)
    typical = compare(
        PART,
        f"{name}, logits, median of {len(found):,} tokens",
        errors.median(),  # a NaN among them is the median
        torch.zeros(()),
        Tolerance(tolerance.typical),
    )
    probabilities = compare(
        PART,
        f"{name}, log-probabilities of the {LIKELIEST} likeliest",
        found.log_softmax(dim=-1).gather(1, likeliest),
        expected.log_softmax(dim=-1).gather(1, likeliest),
        Tolerance(tolerance.likeliest),
    )
    wrong, decided = other_best_tokens(found, expected, tolerance.margin)
    best = Check(
        PART,
        f"{name}, best of the {decided:,} tokens that a margin decides",
        f"margin {tolerance.margin:g}",
        None if wrong or not decided else 0.0,
        f"{wrong:,} are others" if wrong else "" if decided else "no margin is as wide",
    )
    return [typical, probabilities, best]


def other_best_tokens(
    found: torch.Tensor, expected: torch.Tensor, margin: float
) -> tuple[int, int]:
    """Of the rows whose best expected logit is ahead by more than ``margin``: how many have another
    best token in ``found``, and how many there are."""
    best, second = expected.topk(2, dim=-1).values.unbind(-1)
    decided = best - second > margin
    other = found.argmax(dim=-1) != expected.argmax(dim=-1)
    return int((other & decided).sum()), int(decided.sum())


def text_prompts(encode: Callable[[str], list[int]], seed: int) -> list[list[int]]:
    """`PROMPTS` prompts of different lengths, of text like that of agents."""
    rng = Random(seed)
    texts = [*TASKS, *(tool_result(rng) for _ in range(PROMPTS))][:PROMPTS]
    return [encode(text)[: MOST_TOKENS - 3 * index] for index, text in enumerate(texts)]


def encoder(folder: Path) -> Callable[[str], list[int]]:
    """The tokenizer of a model folder. Raises ModuleNotFoundError without its package."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    return encode


def _tables(prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Blocks of each prompt's own, in an order that is not theirs."""
    needed = [-(-len(prompt) // BLOCK) for prompt in prompts]
    free = Random(0).sample(range(sum(needed)), sum(needed))
    return [[free.pop() for _ in range(count)] for count in needed]


def _reference_logits(
    reference: LoadedModel[Linear],
    prompts: Sequence[Sequence[int]],
    tables: Sequence[Sequence[int]],
    blocks: int,
) -> list[torch.Tensor]:
    runner = ModelRunner(reference, blocks, BLOCK)
    return [
        runner.forward([Span(prompt, 0, table, len(prompt))])
        for prompt, table in zip(prompts, tables, strict=True)
    ]
