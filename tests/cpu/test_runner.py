"""Blocks, batches and refusals of the compiled forward pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from radix_engine.cpu.library import Kernels
from radix_engine.cpu.packing import CpuPacking
from radix_engine.cpu.runner import CpuRunner, layer_block_bytes, unsupported
from radix_engine.model.batch import Span
from radix_engine.model.config import read_config
from radix_engine.model.linear import TorchPacking
from radix_engine.model.load import load_model
from radix_engine.model.runner import ModelRunner
from radix_engine.model.source import ModelFolder
from tests.cpu.running import runner_of, tiny_folder
from tests.model.helpers import logits_of, random_tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("runner"))


@pytest.fixture(scope="module")
def runner(kernels: Kernels, folder: Path) -> CpuRunner:
    return runner_of(kernels, folder, "bf16", "bf16")


@pytest.mark.parametrize(
    ("format", "kv_type", "worst"),
    [
        ("fp32", "int8", 0.02),
        ("bf16", "bf16", 0.03),
        ("bf16", "int8", 0.03),
        ("int8", "bf16", 0.03),
    ],
)
def test_smaller_numbers_cost_a_stated_error(
    kernels: Kernels, folder: Path, format: str, kv_type: str, worst: float
) -> None:
    """Relative to the logits' own size, against float32 throughout."""
    tokens, table = random_tokens(400), list(range(30))
    model = load_model(ModelFolder(folder, "tiny"), TorchPacking(torch.float32))
    expected = logits_of(ModelRunner(model, 64), tokens, table)
    result = runner_of(kernels, folder, format, kv_type).forward([Span(tokens, 0, table, 1)])[0]
    assert float((result - expected).norm() / expected.norm()) < worst


@pytest.mark.parametrize(("format", "kv_type"), [("fp32", "fp32"), ("bf16", "bf16")])
def test_what_unused_blocks_and_rows_hold_never_reaches_the_logits(
    kernels: Kernels, tmp_path: Path, format: str, kv_type: str
) -> None:
    # Heads of 32: dimensions that only pad are zeros from the start, and nobody writes there.
    runner = runner_of(kernels, tiny_folder(tmp_path, head_dim=32), format, kv_type)
    sequences = [random_tokens(length, length) for length in (3, 20, 33, 300)]
    tables = [[0], [1, 2], [3, 4, 5], list(range(6, 25))]
    spans = [Span(s, 0, t, 1) for s, t in zip(sequences, tables, strict=True)]
    expected = runner.forward(spans)
    for layer in runner.memory.layers:
        layer.view(torch.float32 if kv_type == "fp32" else torch.bfloat16).fill_(float("nan"))
    assert torch.equal(runner.forward(spans), expected)
    for layer in runner.memory.layers:
        layer.view(torch.float32 if kv_type == "fp32" else torch.bfloat16).fill_(float("inf"))
    for tokens, table in zip(sequences, tables, strict=True):
        runner.forward([Span(tokens[:-1], 0, table, 0)])
    last = [
        Span(tokens[-1:], len(tokens) - 1, table, 1)
        for tokens, table in zip(sequences, tables, strict=True)
    ]
    assert torch.equal(runner.forward(last), expected)


def test_a_span_reads_blocks_that_another_span_of_the_same_step_fills(runner: CpuRunner) -> None:
    shared = random_tokens(32, 1)
    tails = [random_tokens(7, 2), random_tokens(1, 3)]
    expected = [runner.forward([Span(shared + tail, 0, [0, 1, 2], 1)])[0] for tail in tails]
    spans = [
        Span(tails[0], 32, [50, 40, 60], 1),
        Span(shared, 0, [50, 40], 0),
        Span(tails[1], 32, [50, 40, 61], 1),
    ]
    assert torch.equal(runner.forward(spans), torch.stack(expected))


def test_a_copied_block_continues_as_its_source(runner: CpuRunner) -> None:
    tokens = random_tokens(20, 4)
    runner.forward([Span(tokens[:19], 0, [1, 2], 0)])
    expected = runner.forward([Span(tokens[19:], 19, [1, 2], 1)])
    runner.copy_rows([(2, 7, 3), (7, 7, 3)])
    assert torch.equal(runner.forward([Span(tokens[19:], 19, [1, 7], 1)]), expected)
    for wrong, message in (((0, 64, 1), "below 64"), ((0, 1, 17), "between 1 and 16")):
        with pytest.raises(ValueError, match=message):
            runner.copy_rows([wrong])


def test_logits_come_in_span_order_and_only_where_wanted(runner: CpuRunner) -> None:
    tokens = random_tokens(12)
    spans = [
        Span(tokens[:5], 0, [0], 0),
        Span(tokens[:9], 0, [1], 2),
        Span(tokens[:1], 0, [2], 1),
        Span(tokens[:12], 0, [3], 1),
    ]
    expected = [runner.forward([Span(tokens[:n], 0, [9], 1)])[0] for n in (8, 9, 1, 12)]
    assert torch.equal(runner.forward(spans), torch.stack(expected))
    assert runner.forward(spans[:1]).shape == runner.forward([]).shape == (0, 512)


@pytest.mark.parametrize(
    ("span", "message"),
    [
        (Span([], 0, [0], 1), "at least one token"),
        (Span([1], -1, [0], 1), "positions"),
        (Span([1] * 17, 0, [0], 1), "needs 2 blocks"),
        (Span([1], 1024, list(range(65)), 1), "context of 1024"),
        (Span([1], 0, [64], 1), "outside 0 to 63"),
        (Span([1], 0, [-1], 1), "outside 0 to 63"),
        (Span([512], 0, [0], 1), "outside 0 to 511"),
        (Span([-1], 0, [0], 1), "outside 0 to 511"),
        (Span([1], 0, [0], 2), "num_logits must lie between 0 and 1, not 2"),
    ],
)
def test_a_span_that_does_not_fit_is_refused(runner: CpuRunner, span: Span, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        runner.forward([span])


def test_the_memory_is_as_large_as_was_said(kernels: Kernels, folder: Path) -> None:
    """2 KV heads of 16 dimensions, padded to 32; int8 with a float each for K and V a token."""
    config = read_config(folder)
    sizes = {kv: layer_block_bytes(kernels, config, kv) for kv in ("fp32", "bf16", "int8")}
    assert sizes == {
        "fp32": 2 * 2 * 16 * 32 * 4,
        "bf16": 2 * 2 * 16 * 32 * 2,
        "int8": 2 * 2 * 16 * (32 + 4),
    }
    memory = runner_of(kernels, folder, "bf16", "int8", num_blocks=10).memory
    assert memory.bytes_per_block == 2 * sizes["int8"]
    assert memory.num_bytes == 10 * memory.bytes_per_block


def test_shapes_that_the_kernels_do_not_cover_are_named(tmp_path: Path) -> None:
    assert unsupported(read_config(tiny_folder(tmp_path))) is None
    wrong: dict[str, dict[str, Any]] = {
        "hidden_size 80 is not": {"hidden_size": 80},
        "intermediate_size 120 is not": {"intermediate_size": 120},
        "head_dim 24 is not": {"head_dim": 24},
    }
    for message, overrides in wrong.items():
        reason = unsupported(read_config(tiny_folder(tmp_path / message, **overrides)))
        assert reason is not None
        assert message in reason


def test_weights_are_kept_once(kernels: Kernels, folder: Path) -> None:
    """A panel of 32 outputs is as large as its numbers; 8 and 4 bits come with fp16 scales."""
    sizes = {}
    for format in ("fp32", "bf16", "int8", "int4"):
        packing = CpuPacking(kernels, format, torch.float32)
        down = load_model(ModelFolder(folder, "tiny"), packing).layers[0].down
        sizes[format] = down.data.nbytes / (down.outputs * down.columns)
    assert sizes == {"fp32": 4, "bf16": 2, "int8": 1 + 2 / 32, "int4": 0.5 + 4 / 32}
