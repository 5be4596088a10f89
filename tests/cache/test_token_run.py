from __future__ import annotations

import pytest

from radix_engine.cache import pack, unpack
from radix_engine.cache.token_run import common_prefix_bytes


def test_packing_and_unpacking_keeps_every_id() -> None:
    tokens = [0, 1, 255, 256, 65_536, 2**31 - 1]
    assert unpack(pack(tokens)) == tokens
    assert len(pack(tokens)) == 4 * len(tokens)


def test_an_id_that_is_no_int32_is_refused() -> None:
    with pytest.raises(OverflowError):
        pack([2**31])


@pytest.mark.parametrize(
    ("left", "offset", "right", "unit", "shared"),
    [
        ([1, 2, 3, 4], 0, [1, 2, 3, 4], 1, 4),
        ([1, 2, 3, 4], 0, [1, 2, 3, 5], 1, 3),
        ([1, 2, 3, 4], 0, [1, 2, 3, 5], 2, 2),
        ([1, 2, 3, 4], 0, [9, 2, 3, 4], 1, 0),
        ([1, 2, 3, 4], 2, [3, 4, 5], 1, 2),
        ([1, 2, 3, 4], 2, [3, 5, 5], 1, 1),
        ([1, 2, 3, 4, 5], 0, [1, 2, 3], 2, 2),
        ([1, 2, 3], 0, [1, 2, 3, 4, 5], 2, 2),
        ([1, 2, 3], 3, [1, 2], 1, 0),
        ([1], 0, [], 1, 0),
        ([7, 256], 0, [7, 1], 1, 1),  # the second token's lowest byte differs from the first on
        ([7, 2**24], 0, [7, 0], 1, 1),  # and here its highest alone
    ],
)
def test_the_common_prefix_is_in_whole_units(
    left: list[int], offset: int, right: list[int], unit: int, shared: int
) -> None:
    assert common_prefix_bytes(pack(left), offset * 4, pack(right), unit * 4) == shared * 4


def test_a_difference_is_found_at_every_position_of_a_long_run() -> None:
    tokens = list(range(200))
    for position in range(200):
        other = [*tokens[:position], 777, *tokens[position + 1 :]]
        assert common_prefix_bytes(pack(tokens), 0, pack(other), 4) == position * 4
        assert common_prefix_bytes(pack(tokens), 0, pack(other), 64) == position // 16 * 64
