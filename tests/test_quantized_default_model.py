"""The default model in fewer bits says nearly what it says in all of them."""

from __future__ import annotations

import pytest
import torch

from radix_engine.cpu.build import build
from radix_engine.cpu.library import Kernels
from radix_engine.cpu.packing import CpuPacking
from radix_engine.cpu.processor import read_processor, usable_kinds
from radix_engine.cpu.runner import CpuRunner
from radix_engine.model.batch import Span
from radix_engine.model.load import load_model
from radix_engine.model.source import ModelFolder, resolve_model
from server.text import TextCodec
from tests.test_default_model import TEXT

KINDS = usable_kinds(read_processor())

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not KINDS, reason="needs a processor that the kernels run on"),
]


@pytest.fixture(scope="module")
def folder() -> ModelFolder:
    return resolve_model(None)


@pytest.fixture(scope="module")
def tokens(folder: ModelFolder) -> list[int]:
    return list(TextCodec(folder.path, 8192).encode(TEXT.strip()))


def perplexity(folder: ModelFolder, tokens: list[int], weights: str, kv_type: str) -> float:
    kernels = Kernels(build(KINDS[0]), KINDS[0])
    dtype = torch.float32 if weights == "fp32" else torch.bfloat16
    model = load_model(folder, CpuPacking(kernels, weights, dtype))
    blocks = -(-len(tokens) // 16)
    runner = CpuRunner(model, kernels, blocks, kv_type=kv_type, threads=2)
    logits = runner.forward([Span(tokens, 0, list(range(blocks)), len(tokens))])
    logprobs = logits.log_softmax(-1)[:-1].gather(1, torch.tensor(tokens[1:]).unsqueeze(1))
    return float((-logprobs.mean()).exp())


@pytest.fixture(scope="module")
def in_bf16(folder: ModelFolder, tokens: list[int]) -> float:
    return perplexity(folder, tokens, "bf16", "bf16")


@pytest.mark.parametrize(
    ("weights", "kv_type", "limit"),
    [
        ("fp32", "fp32", 1.005),
        ("bf16", "int8", 1.01),
        ("int8", "bf16", 1.02),
        ("int4", "bf16", 1.05),
        ("int4", "int8", 1.05),
    ],
)
def test_perplexity_stays_near_that_of_bf16(
    folder: ModelFolder,
    tokens: list[int],
    in_bf16: float,
    weights: str,
    kv_type: str,
    limit: float,
) -> None:
    ratio = perplexity(folder, tokens, weights, kv_type) / in_bf16
    assert 2 - limit < ratio < limit
