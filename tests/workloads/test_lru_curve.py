"""LRU's hit rate at every size in one pass: the same as the product's cache at each of them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from workloads.simulation.lru_curve import lru_curve
from workloads.simulation.serial import SerialCache
from workloads.simulation.serial_calls import SerialCall, hit_rate


def calls_of(paths: list[list[int]], *, reply: int = 0) -> list[SerialCall]:
    """One second apart; the last ``reply`` blocks of each path are not of its prompt."""
    return [
        SerialCall(
            np.array(path, np.int64),
            len(path) - reply,
            4 * (len(path) - reply),
            float(at),
            float(at),
        )
        for at, path in enumerate(paths)
    ]


def test_by_hand() -> None:
    # 1-2 lies below 1-3: of its two blocks 1 is the newest, 2 is behind 1 and 3.
    calls = calls_of([[1, 2], [1, 3], [1, 2]])
    found = lru_curve(calls, 4, [0, 1, 2, 3])
    # Of 24 tokens: 4 and 4 with one block; with three also the second block, less its last token.
    assert found == {0: 0.0, 1: 8 / 24, 2: 8 / 24, 3: 11 / 24}


def test_what_is_known_of_another_path_serves_only_behind_what_is_known() -> None:
    # 2 was stored behind 1; behind 3, which is new, nothing is served. 1 and 2 stay apart.
    calls = calls_of([[1, 2], [3, 2], [1]])
    assert lru_curve(calls, 4, [2, 3, 9]) == {2: 0.0, 3: 3 / 20, 9: 3 / 20}


def test_of_nothing() -> None:
    assert lru_curve([], 4, [1, 2]) == {1: 0.0, 2: 0.0}


@pytest.mark.parametrize("seed", range(6))
def test_it_is_what_the_cache_serves_at_every_size(seed: int) -> None:
    draw = random.Random(seed)
    numbers: dict[tuple[int, ...], int] = {}
    paths = []
    for _ in range(150):
        names = [draw.randrange(2 + depth % 2) for depth in range(draw.randrange(1, 9))]
        prefixes = (tuple(names[: depth + 1]) for depth in range(len(names)))
        paths.append([numbers.setdefault(prefix, len(numbers)) for prefix in prefixes])
    calls = calls_of(paths, reply=1)
    sizes = [1, 2, 3, 5, 8, 13, 21, 34, 55, 300]
    curve = lru_curve(calls, 4, sizes)
    for size in sizes:
        assert curve[size] == pytest.approx(
            hit_rate(calls, SerialCache(size, "lru").hits(calls), 4)
        )
