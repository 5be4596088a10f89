"""A token's logits are the same bits whatever was cached, cut, shared, or how many threads ran."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from radix_engine.cpu.library import Kernels
from radix_engine.cpu.runner import CpuRunner
from radix_engine.model.batch import Span
from tests.cpu.running import runner_of, tiny_folder
from tests.model.helpers import random_tokens

BLOCKS = 128
FORMATS = [("fp32", "fp32"), ("bf16", "bf16"), ("bf16", "int8"), ("int8", "bf16"), ("int4", "fp32")]
# 3 query heads a KV head, so that a tile of 16 rows ends inside a token's.
SHAPE: dict[str, Any] = {"head_dim": 32, "num_attention_heads": 6, "num_key_value_heads": 2}


@pytest.fixture(scope="module", params=FORMATS, ids="-".join)
def runner(
    request: pytest.FixtureRequest, kernels: Kernels, tmp_path_factory: pytest.TempPathFactory
) -> CpuRunner:
    folder = tiny_folder(tmp_path_factory.mktemp("exact"), "mistral", sliding_window=290, **SHAPE)
    return runner_of(kernels, folder, *request.param, num_blocks=BLOCKS, threads=2)


def logits_alone(runner: CpuRunner, tokens: list[int], table: list[int]) -> torch.Tensor:
    """Logits after the last token: the prompt whole, from nothing."""
    return runner.forward([Span(tokens, 0, table, 1)])[0]


@settings(deadline=None, max_examples=12, suppress_health_check=list(HealthCheck))
@given(st.lists(st.integers(1, 300), min_size=1, max_size=5), st.integers(0, 1000))
def test_a_prompt_in_chunks_yields_the_bits_it_yields_whole(
    runner: CpuRunner, chunks: list[int], seed: int
) -> None:
    tokens = random_tokens(min(sum(chunks), 900), seed)
    blocks = random.Random(seed).sample(range(BLOCKS), BLOCKS)
    whole = logits_alone(runner, tokens, blocks[:60])
    start = 0
    for length in chunks:
        part = tokens[start : start + length]
        if part:
            logits = runner.forward([Span(part, start, blocks[60:120], 1)])[0]
        start += length
    assert torch.equal(logits, whole)


Shape = tuple[int, int, int]  # cached, computed, which of the prompts it begins as


@settings(deadline=None, max_examples=12, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 15, 16, 17, 255, 256, 257, 300, 511, 512]),
            st.one_of(st.just(1), st.just(1), st.integers(1, 60)),
            st.integers(0, 1),
        ),
        min_size=1,
        max_size=7,
    ),
    st.booleans(),
)
def test_a_hit_in_any_batch_yields_the_bits_of_a_miss_alone(
    runner: CpuRunner, shapes: list[Shape], shared: bool
) -> None:
    """With ``shared`` the cached whole blocks of equal prompts are the same blocks."""
    prompts = [random_tokens(600, 7), random_tokens(600, 8)]
    heads = [list(range(40)), list(range(40, 80))]
    expected = [
        logits_alone(runner, prompts[which][: cached + count], heads[which])
        for cached, count, which in shapes
    ]
    for prompt, head in zip(prompts, heads, strict=True):
        runner.forward([Span(prompt, 0, head, 0)])
    spans, free = [], 80
    for cached, count, which in shapes:
        whole = cached // 16 if shared else 0
        own = -(-(cached + count) // 16) - whole
        if free + own > BLOCKS:
            break
        table = heads[which][:whole] + list(range(free, free + own))
        free += own
        prompt = prompts[which]
        if cached > whole * 16:  # what lies in own blocks is computed there first
            runner.forward([Span(prompt[whole * 16 : cached], whole * 16, table, 0)])
        spans.append(Span(prompt[cached : cached + count], cached, table, 1))
    together = runner.forward(spans)
    assert torch.equal(together, torch.stack(expected[: len(spans)]))


def test_the_logits_of_a_prompts_every_token_are_those_of_its_prefixes(runner: CpuRunner) -> None:
    tokens, table = random_tokens(40, 1), [5, 3, 9]
    every = runner.forward([Span(tokens, 0, table, 40)])
    prefixes = [logits_alone(runner, tokens[:n], [11, 12, 13]) for n in range(1, 41)]
    assert torch.equal(every, torch.stack(prefixes))


@pytest.mark.parametrize(("format", "kv_type"), FORMATS)
def test_the_number_of_threads_changes_no_bit(
    kernels: Kernels, tmp_path: Path, format: str, kv_type: str
) -> None:
    folder = tiny_folder(tmp_path, **SHAPE)
    results = []
    for threads in (1, 2, 3, 5):
        runner = runner_of(kernels, folder, format, kv_type, threads=threads)
        tokens = random_tokens(520, 3)
        logits = [runner.forward([Span(tokens[:500], 0, list(range(40)), 1)])]
        for i in range(500, 520):
            logits.append(runner.forward([Span(tokens[i : i + 1], i, list(range(40)), 1)]))
        results.append(torch.cat(logits))
    assert all(torch.equal(result, results[0]) for result in results)
