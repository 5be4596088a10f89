"""A part's runner has used each kind of kernels before it is asked for a step."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from radix_engine.gpu.warm import (
    warm_flashinfer_fp8_runner,
    warm_flashinfer_runner,
    warm_torch_runner,
)
from radix_engine.gpu.warm_steps import warm_up_steps
from radix_engine.memory.fp8 import FP8
from radix_engine.model.batch import Span
from radix_engine.model.config import read_config
from radix_engine.model.linear import TorchPacking
from radix_engine.model.load import load_model
from radix_engine.model.source import ModelFolder
from radix_engine.parallel.group import Group
from radix_engine.parallel.packing import load_part
from tests.gpu.fake_flashinfer import FakeFlashInfer, make_fake
from tests.gpu.fp8_reference import rounding_runner
from tests.model.helpers import random_tokens
from tests.parallel.helpers import all_processes, one_process, same_logits, tiny_model

PACKAGE = """
import sys
from tests.gpu.fake_flashinfer import make_fake
sys.modules[__name__] = make_fake()
"""
KINDS = (
    "BatchPrefillWithPagedKVCache",
    "BatchDecodeWithPagedKVCache",
    "MultiLevelCascadeAttention",
)


@pytest.fixture
def flashinfer(monkeypatch: pytest.MonkeyPatch) -> FakeFlashInfer:
    """What is imported as flashinfer."""
    fake = make_fake()
    monkeypatch.setenv("FLASHINFER_USE_CUDA_NORM", "1")  # put back afterwards
    monkeypatch.setitem(sys.modules, "flashinfer", fake)
    return fake


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """Two processes that both find the fake as a package."""
    threads = torch.get_num_threads()
    folder = tmp_path_factory.mktemp("packages")
    (folder / "flashinfer.py").write_text(PACKAGE, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLASHINFER_USE_CUDA_NORM", "1")
        patch.delitem(sys.modules, "flashinfer", raising=False)
        patch.syspath_prepend(folder)
        torch.set_num_threads(1)
        with Group(2) as group:
            yield group
        sys.modules.pop("flashinfer", None)
    torch.set_num_threads(threads)


def folder_of(path: Path, window: int | None = None) -> ModelFolder:
    """Heads that FlashInfer's kernels know."""
    if window is None:
        return tiny_model(path, head_dim=64)
    return tiny_model(path, "mistral", head_dim=64, sliding_window=window)


def test_every_kind_of_kernels_is_used_beforehand(
    tmp_path: Path, flashinfer: FakeFlashInfer
) -> None:
    model = load_model(folder_of(tmp_path), TorchPacking(torch.float32))
    warm_flashinfer_runner(model, 64, 16)
    for kind in KINDS:
        assert flashinfer.calls[f"{kind}Wrapper.run"] > 0
    for function in ("append_paged_kv_cache", "rmsnorm", "fused_add_rmsnorm", "silu_and_mul"):
        assert flashinfer.calls[function] > 0


@pytest.mark.parametrize(("num_blocks", "longest"), [(64, 304), (5, 80), (1, 16)])
def test_the_steps_reach_beyond_the_window_where_there_is_room(
    tmp_path: Path, num_blocks: int, longest: int
) -> None:
    config = read_config(folder_of(tmp_path, window=288).path)
    steps = list(warm_up_steps(config, num_blocks, 16))
    spans = [span for step in steps for span in step]
    assert {len(span.tokens) for span in spans} == {1, 2}
    # A window of 288 and a block: 19 blocks; the second of two tokens is the last of them.
    assert max(span.start + len(span.tokens) for span in spans) == longest
    assert min(span.start for span in spans) == 0
    assert max(max(span.block_table) for span in spans) < num_blocks


def test_a_process_needs_no_other_to_get_warm(tmp_path: Path) -> None:
    part = load_part(tiny_model(tmp_path), torch.float32, torch.device("cpu"), 1, 2)
    assert not dist.is_initialized()
    runner = warm_torch_runner(part, 8, 16)
    with pytest.raises(ValueError, match="process group has not been initialized"):
        runner.forward([Span([1], 0, [0], 1)])


def test_a_context_of_one_token_is_enough(tmp_path: Path) -> None:
    model = load_model(tiny_model(tmp_path, max_position_embeddings=1), TorchPacking(torch.float32))
    runner = warm_torch_runner(model, 1, 16)
    assert runner.forward([Span([1], 0, [0], 1)]).shape == (1, 512)


def test_with_fp8_every_kind_of_kernels_is_used_over_k_and_v_in_it(
    tmp_path: Path, flashinfer: FakeFlashInfer
) -> None:
    written: set[torch.dtype] = set()
    append = getattr(flashinfer, "append_paged_kv_cache")  # noqa: B009

    def watched(*args: Any, **settings: Any) -> None:
        written.add(args[4].dtype)
        append(*args, **settings)

    setattr(flashinfer, "append_paged_kv_cache", watched)  # noqa: B010
    model = load_model(folder_of(tmp_path), TorchPacking(torch.float16))
    runner = warm_flashinfer_fp8_runner(model, 64, 16)
    assert runner.memory.bytes_per_block == 2 * 2 * 16 * 2 * 64
    for kind in KINDS:
        assert flashinfer.calls[f"{kind}Wrapper.run"] > 0
    assert written == {FP8}


def test_two_processes_with_k_and_v_in_fp8_compute_what_one_computes(
    group: Group, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path)
    one = rounding_runner(load_model(folder, TorchPacking(torch.float32)), 64)
    two = all_processes(group, folder, make_runner=warm_flashinfer_fp8_runner)
    assert two.memory.bytes_per_block == one.memory.bytes_per_block // 4
    first, second = random_tokens(40, 1), random_tokens(12, 2)
    same_logits(one, two, [Span(first[:33], 0, [4, 2, 9], 2), Span(second[:11], 0, [7], 1)])
    for runner in (one, two):
        runner.copy_rows([(4, 30, 16), (2, 31, 9)])
    same_logits(one, two, [Span(first[25:], 25, [30, 31, 9], 7), Span(second[11:], 11, [7], 1)])


@pytest.mark.parametrize("make_runner", [warm_torch_runner, warm_flashinfer_runner])
@pytest.mark.parametrize("window", [None, 24])
def test_two_processes_with_warm_runners_compute_what_one_computes(
    group: Group, tmp_path: Path, make_runner: object, window: int | None
) -> None:
    folder = folder_of(tmp_path, window)
    one, two = one_process(folder), all_processes(group, folder, make_runner=make_runner)  # type: ignore[arg-type]
    assert two.memory.bytes_per_block == one.memory.bytes_per_block
    first, second = random_tokens(40, 1), random_tokens(12, 2)
    same_logits(one, two, [Span(first[:33], 0, [4, 2, 9], 2), Span(second[:11], 0, [7], 1)])
    same_logits(one, two, [Span(first[33:], 33, [4, 2, 9], 7), Span(second[11:], 11, [7], 1)])
