"""K and V rounded to 8 bits: what they become, what they take, and that copies keep every bit."""

from __future__ import annotations

import pytest
import torch

from radix_engine.memory.fp8 import FP8, rounded
from radix_engine.memory.kv_memory import KVMemory

NAN, INF = float("nan"), float("inf")
# 3 bits behind the leading one: 1 to 2 in steps of 1/8, 256 to 448 in steps of 32; ties to even.
ROUNDED = (
    (0.0, 0.0),
    (1.0, 1.0),
    (1.0625, 1.0),
    (1.1, 1.125),
    (1.1875, 1.25),
    (-3.3, -3.25),
    (17.0, 16.0),
    (300.0, 288.0),
    (448.0, 448.0),
    (460.0, 448.0),
    (465.0, 448.0),
    (-60000.0, -448.0),
    (INF, 448.0),
    (-INF, -448.0),
    (2**-6, 2**-6),
    (2**-9, 2**-9),
    (1.5 * 2**-9, 2**-8),
    (2**-11, 0.0),
)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_numbers_are_rounded_and_what_is_too_large_becomes_the_largest(dtype: torch.dtype) -> None:
    given, expected = (torch.tensor(column) for column in zip(*ROUNDED, strict=True))
    given = given.to(dtype)
    keys, values = rounded(given.view(1, -1, 1), -given.view(1, -1, 1))
    assert keys.dtype == values.dtype == FP8
    # 1.1, -3.3 and 460 are no numbers of 16 bits, but all between the same two of 8 bits.
    assert keys.float().flatten().tolist() == expected.tolist()
    assert values.float().flatten().tolist() == (-expected).tolist()


def test_no_number_that_is_too_large_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose conversion makes 448 of it, or NaN in older versions."""
    right, largest = torch.Tensor.to, []

    def watched(self: torch.Tensor, *args: object) -> torch.Tensor:
        largest.append(float(self.abs().max()))
        return right(self, *args)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(torch.Tensor, "to", watched)
    rounded(torch.full((1, 1, 4), 1e4), torch.full((1, 1, 4), -INF))
    assert largest == [448.0]


def test_what_is_no_number_stays_none() -> None:
    keys, values = rounded(torch.full((2, 1, 4), NAN), torch.zeros(2, 1, 4))
    assert keys.float().isnan().all()
    assert not values.float().any()


def test_k_and_v_come_in_their_order_out_of_one_projection_and_stay_as_they_were_there() -> None:
    heads = torch.arange(2 * 5 * 4, dtype=torch.bfloat16).view(2, 5, 4)
    before = heads.clone()
    keys, values = rounded(heads[:, 1:3], heads[:, 3:])
    # Up to 16 all whole numbers are among fp8's, then every other one.
    assert keys[0].float().tolist() == [[4, 5, 6, 7], [8, 9, 10, 11]]
    assert values[0].float().tolist() == [[12, 13, 14, 15], [16, 16, 18, 20]]
    assert keys.stride(-1) == values.stride(-1) == 1
    assert torch.equal(heads, before)


def test_a_memory_in_fp8_takes_a_byte_a_number() -> None:
    memory = KVMemory(3, 10, 16, 2, 8, FP8)
    assert memory.bytes_per_block == 3 * 2 * 16 * 2 * 8
    assert memory.num_bytes == 10 * memory.bytes_per_block
    for layer in memory.layers:
        assert not layer.float().any()


def test_copied_rows_keep_every_bit() -> None:
    memory = KVMemory(2, 3, 4, 1, 64, FP8)
    for layer in memory.layers:
        # Every number that there is, NaN included, in each row.
        layer.view(torch.uint8).copy_(torch.arange(64, dtype=torch.uint8))
        layer[1].view(torch.uint8).add_(64)
        layer[2].view(torch.uint8).add_(191)
    memory.copy_rows([(2, 0, 3), (1, 2, 1)])
    for layer in memory.layers:
        rows = layer.view(torch.uint8)[..., 0, 0]
        assert rows[0].tolist() == [[191, 191, 191, 0]] * 2
        assert rows[1].tolist() == [[64] * 4] * 2
        assert rows[2].tolist() == [[64, 191, 191, 191]] * 2
        assert layer.view(torch.uint8)[0, 1, 2, 0].tolist() == list(range(191, 255))
