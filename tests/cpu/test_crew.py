"""How many threads a step gets: fewer while another process has a processor."""

from __future__ import annotations

import numpy as np

from radix_engine.cpu.library import Kernels

MS = 1_000_000


def sizes(kernels: Kernels, most: int, took: list[int], waited: list[int]) -> list[int]:
    steps, waits = np.array(took, np.int64), np.array(waited, np.int64)
    out = np.empty(len(steps), np.int32)
    kernels.replay_crew(most, len(steps), steps.ctypes.data, waits.ctypes.data, out.ctypes.data)
    return [int(size) for size in out]


def test_on_processors_of_its_own_all_threads_run(kernels: Kernels) -> None:
    assert sizes(kernels, 2, [8 * MS] * 500, [MS // 2] * 500) == [2] * 500


def test_one_bad_step_changes_nothing(kernels: Kernels) -> None:
    waited = [0] * 10 + [5 * MS] + [0] * 100
    assert sizes(kernels, 2, [8 * MS] * len(waited), waited) == [2] * len(waited)


def test_steps_that_wait_for_half_their_time_soon_run_on_one_thread_less(kernels: Kernels) -> None:
    result = sizes(kernels, 2, [20 * MS] * 10, [10 * MS] * 10)
    assert result[:2] == [2, 2]
    assert 1 in result[:4]


def test_several_neighbours_leave_as_many_threads_less(kernels: Kernels) -> None:
    result = sizes(kernels, 4, [20 * MS] * 20, [10 * MS] * 20)
    assert [size for i, size in enumerate(result) if i == 0 or size != result[i - 1]][:4] == [
        4,
        3,
        2,
        1,
    ]


def test_all_threads_are_tried_again_ever_more_rarely(kernels: Kernels) -> None:
    """A neighbour that stays costs a few steps of a few seconds."""
    result = sizes(kernels, 2, [20 * MS] * 1000, [10 * MS] * 1000)
    with_all = [i for i, size in enumerate(result) if size == 2]
    assert len(with_all) < 60
    assert max(with_all) > 900  # it is still tried


def test_when_the_neighbour_has_gone_all_threads_run_again(kernels: Kernels) -> None:
    waited = [10 * MS] * 50 + [0] * 200
    assert sizes(kernels, 2, [20 * MS] * 250, waited)[-50:] == [2] * 50


def test_one_thread_stays_one(kernels: Kernels) -> None:
    assert sizes(kernels, 1, [20 * MS] * 20, [0] * 20) == [1] * 20
