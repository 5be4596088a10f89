"""Engines with weights in fp16, and with K and V in fp8, answer as the references in torch do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from radix_engine.gpu.graphs import GraphRunner
from radix_engine.gpu.runner import GpuRunner
from radix_engine.gpu.served import gpu_model
from radix_engine.memory.fp8 import FP8
from radix_engine.model.batch import Span
from radix_engine.model.linear import Linear, TorchPacking
from radix_engine.model.load import load_model
from radix_engine.model.runner import ModelRunner
from radix_engine.model.served import Runner, ServedModel, torch_model
from radix_engine.model.source import ModelFolder
from radix_engine.model.weights import LoadedModel
from scheduler import Limits
from server import Engine, GenerationParams
from server.text import TextCodec
from tests.gpu.binding import bound_fake
from tests.gpu.fp8_reference import RoundingAttention, rounding_runner
from tests.gpu.runners import all_logits
from tests.gpu.test_served import Watched
from tests.model.helpers import random_tokens
from tests.server.prompts import greedy, ids
from tests.server.test_look_ahead import answers, mixed
from tests.tiny import make_tiny_folder

HALVES = [torch.float16, torch.bfloat16]
LIMITS = Limits(max_step_tokens=24, max_running=6)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tiny matrices gain nothing from more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with heads that FlashInfer's kernels know, some layers with a window."""
    path = tmp_path_factory.mktemp("models") / "tiny64"
    fields = {"use_sliding_window": True, "sliding_window": 21, "max_window_layers": 1}
    return make_tiny_folder(path, "qwen3", tokenizer=True, head_dim=64, **fields)


def model_in(folder: Path, dtype: torch.dtype) -> LoadedModel[Linear]:
    return load_model(ModelFolder(folder, "tiny"), TorchPacking(dtype))


def rounding_model(model: LoadedModel[Linear]) -> ServedModel:
    """The model on torch, over K and V that are rounded to fp8."""

    def make_runner(num_blocks: int, block_size: int) -> Runner:
        return rounding_runner(model, num_blocks, block_size)

    return replace(torch_model(model), make_runner=make_runner)


Asked = Sequence[tuple[Sequence[int], GenerationParams]]


def all_answers(
    served: ServedModel, folder: Path, num_blocks: int, asked: Asked
) -> list[list[tuple[int, ...]]]:
    """Of an engine that has nothing cached, and again of one that has."""
    served = replace(served, eos_token_ids=frozenset())
    engine = Engine(served, TextCodec(folder), num_blocks, limits=LIMITS)
    try:
        found = answers(engine, asked) + answers(engine, asked)
        engine.flush_cache()
        assert engine.audit() == []
    finally:
        engine.shutdown(0.0)
    return found


@pytest.mark.parametrize("num_blocks", [9, 64])
@pytest.mark.parametrize("recorded", [False, True])
def test_fp16_weights_answer_as_torch_in_fp16(
    folder: Path, recorded: bool, num_blocks: int
) -> None:
    """With the likeliest tokens: one that is drawn may be another where numbers differ at all, and
    these do, since the residual is float32 in the reference."""
    asked = [(prompt, greedy(params.max_tokens)) for prompt, params in mixed()]
    model, watched = model_in(folder, torch.float16), Watched()
    served = gpu_model(model, bound_fake(), watched.recording(4) if recorded else None)
    assert (served.weights, served.kv_dtype) == ("fp16", "fp16")
    found = all_answers(replace(served, look_ahead=True), folder, num_blocks, asked)
    assert found == all_answers(torch_model(model), folder, num_blocks, asked)
    assert bool(watched.recorder.replays) == recorded


@pytest.mark.parametrize("num_blocks", [9, 64])
@pytest.mark.parametrize("recorded", [False, True])
def test_k_and_v_in_fp8_answer_as_torch_over_rounded_ones(
    folder: Path, recorded: bool, num_blocks: int
) -> None:
    """Weights in float32: nothing but K and V is rounded. Few blocks: requests are preempted, and
    prompts that part within a block have its first rows copied."""
    model, watched = model_in(folder, torch.float32), Watched()
    served = gpu_model(model, bound_fake(), watched.recording(4) if recorded else None, True)
    assert (served.weights, served.kv_dtype) == ("fp32", "fp8")
    found = all_answers(replace(served, look_ahead=True), folder, num_blocks, mixed())
    assert found == all_answers(rounding_model(model), folder, num_blocks, mixed())
    assert bool(watched.recorder.replays) == recorded


def test_rows_of_a_block_in_fp8_are_copied_where_prompts_part_within_it(folder: Path) -> None:
    model = model_in(folder, torch.float32)
    head = ids(40, 1)
    asked = [head, head[:27] + ids(10, 2), head[:22] + ids(20, 3)]

    def tokens(served: ServedModel) -> list[tuple[int, ...]]:
        with Engine(served, TextCodec(folder), 64) as engine:
            found = [engine.generate([prompt], greedy(8))[0] for prompt in asked]
            # A block, and 11 and 6 rows of the next one.
            assert [answer.usage.cached_tokens for answer in found] == [0, 27, 22]
            return [answer.token_ids for answer in found]

    assert tokens(gpu_model(model, bound_fake(), None, True)) == tokens(rounding_model(model))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("recorded", [False, True])
def test_16_bits_and_fp8_together_stay_near_the_reference(
    folder: Path, dtype: torch.dtype, recorded: bool
) -> None:
    """Logits of up to 2.5, which bf16 alone changes by 0.04: where K and V differ by their last
    bit, they are rounded to neighbours. Without any rounding they would be off by 0.16."""
    model, tokens = model_in(folder, dtype), random_tokens(50)
    served = gpu_model(model, bound_fake(), Watched().recording(2) if recorded else None, True)
    runner = served.make_runner(20, 16)
    assert isinstance(runner, GraphRunner) == recorded
    reference = gpu_model(model, None).make_runner(64, 16)
    assert isinstance(reference, GpuRunner)
    reference._attention = RoundingAttention(reference.memory)
    expected = all_logits(reference, tokens)
    blocks = [3, 17, 6, 0]
    found = [
        runner.forward([Span(tokens[:33], 0, blocks, 33)]),
        runner.forward([Span(tokens[33:49], 33, blocks, 16)]),
        runner.forward([Span(tokens[49:], 49, blocks, 1)]),
    ]
    torch.testing.assert_close(torch.cat(found), expected, rtol=0, atol=0.08)


def test_fp8_is_seen_in_the_answers_numbers(folder: Path) -> None:
    """So that these tests would notice K and V that are not rounded at all."""
    model, tokens = model_in(folder, torch.float32), random_tokens(50)
    exact = all_logits(ModelRunner(model, 64), tokens)
    error = (all_logits(rounding_runner(model, 64), tokens) - exact).abs().max()
    assert 0.1 < error < 0.3


@pytest.mark.parametrize("recorded", [False, True])
def test_memory_in_fp8_is_a_byte_a_number(folder: Path, recorded: bool) -> None:
    model = model_in(folder, torch.float16)
    served = gpu_model(model, bound_fake(), Watched().recording(2) if recorded else None, True)
    memory = served.make_runner(20, 16).memory
    assert memory.bytes_per_block == 2 * 2 * 16 * 2 * 64
    assert memory.num_blocks == 20
    assert getattr(memory, "dtype") == FP8  # noqa: B009


def test_torchs_attention_is_refused_fp8(folder: Path) -> None:
    with pytest.raises(ValueError, match="need FlashInfer's attention: use --kv-dtype auto"):
        gpu_model(model_in(folder, torch.float32), None, None, True)


def test_a_memory_that_cannot_be_had_is_told_in_its_own_bytes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    served = gpu_model(model_in(folder, torch.float16), bound_fake(), None, True)
    monkeypatch.setattr("radix_engine.gpu.served.KVMemory", none_left)
    # 8 blocks of 16 tokens: 2 layers of K and V of 2 heads of 64.
    with pytest.raises(ValueError, match=r"KV memory of 64\.0 KiB"):
        served.make_runner(8, 16)
