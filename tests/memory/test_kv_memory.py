"""The KV memory: its shape, its rows and its size."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from radix_engine.memory.kv_memory import KVMemory


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_layer_is_one_zeroed_tensor_of_all_blocks(dtype: torch.dtype) -> None:
    memory = KVMemory(3, 10, 16, 2, 8, dtype)
    assert [tuple(layer.shape) for layer in memory.layers] == [(10, 2, 16, 2, 8)] * 3
    for layer in memory.layers:
        assert layer.dtype == dtype
        assert layer.is_contiguous()
        assert not layer.any()
    assert memory.bytes_per_block == 3 * 2 * 16 * 2 * 8 * dtype.itemsize
    assert memory.num_bytes == 10 * memory.bytes_per_block


def test_layers_share_no_memory() -> None:
    memory = KVMemory(2, 3, 4, 1, 2, torch.float32)
    memory.layers[0].fill_(1.0)
    assert not memory.layers[1].any()


def test_layers_may_differ_in_heads_and_width() -> None:
    memory = KVMemory.of_layers([(2, 8), (1, 16), (4, 8)], 10, 16, torch.bfloat16)
    assert [tuple(layer.shape) for layer in memory.layers] == [
        (10, 2, 16, 2, 8),
        (10, 2, 16, 1, 16),
        (10, 2, 16, 4, 8),
    ]
    assert memory.bytes_per_block == 2 * 16 * (16 + 16 + 32) * 2
    memory.layers[1].fill_(1.0)
    assert not memory.layers[0].any()
    assert not memory.layers[2].any()
    memory.rows(2)[3] = 1.0
    memory.copy_rows([(0, 9, 4)])
    assert memory.layers[2][9, 0, 3].eq(1).all()
    with pytest.raises(ValueError, match="num_layers must be at least 1"):
        KVMemory.of_layers([], 10, 16, torch.float32)


def test_rows_are_a_view_with_k_and_v_one_block_size_apart() -> None:
    memory = KVMemory(2, 5, 16, 2, 8, torch.float32)
    rows = memory.rows(1)
    assert tuple(rows.shape) == (5 * 2 * 16, 2, 8)
    block, offset = 3, 7
    rows[2 * 16 * block + offset] = 1.0
    rows[2 * 16 * block + offset + 16] = 2.0
    assert memory.layers[1][block, 0, offset].eq(1).all()
    assert memory.layers[1][block, 1, offset].eq(2).all()
    assert memory.layers[1].sum() == 2 * 8 * 3
    assert not memory.layers[0].any()


@pytest.mark.parametrize(
    "field", ["num_layers", "num_blocks", "block_size", "num_kv_heads", "head_dim"]
)
def test_a_size_below_one_is_refused_by_name(field: str) -> None:
    names = ("num_layers", "num_blocks", "block_size", "num_kv_heads", "head_dim")
    sizes: dict[str, Any] = dict.fromkeys(names, 1)
    with pytest.raises(ValueError, match=f"{field} must be at least 1, not 0"):
        KVMemory(**(sizes | {field: 0}), dtype=torch.float32)


def test_rows_are_copied_in_all_layers_and_the_source_stays() -> None:
    memory = KVMemory(2, 5, 4, 2, 8, torch.float32)
    for index, layer in enumerate(memory.layers):
        layer.copy_(torch.arange(layer.numel()).view_as(layer) + 1000 * index)
    before = [layer.clone() for layer in memory.layers]
    memory.copy_rows([(1, 3, 3)])
    for layer, old in zip(memory.layers, before, strict=True):
        assert torch.equal(layer[3, :, :3], old[1, :, :3])
        assert torch.equal(layer[3, :, 3:], old[3, :, 3:])
        assert torch.equal(layer[[0, 1, 2, 4]], old[[0, 1, 2, 4]])


def test_a_block_may_be_the_target_of_a_copy_after_having_been_a_source() -> None:
    memory = KVMemory(1, 3, 4, 1, 2, torch.float32)
    for block in range(3):
        memory.layers[0][block] = block
    memory.copy_rows([(0, 1, 2), (2, 0, 4), (2, 2, 1)])
    assert memory.layers[0][1, :, :2].eq(0).all()
    assert memory.layers[0][0].eq(2).all()
    assert memory.layers[0][2].eq(2).all()


@pytest.mark.parametrize("copy", [(0, 3, 1), (3, 0, 1), (-1, 0, 1), (0, 1, 0), (0, 1, 5)])
def test_copies_of_what_does_not_exist_are_refused(copy: tuple[int, int, int]) -> None:
    memory = KVMemory(1, 3, 4, 1, 2, torch.float32)
    with pytest.raises(ValueError, match="must"):
        memory.copy_rows([copy])
