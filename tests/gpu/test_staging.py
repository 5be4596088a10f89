"""A step's integers arrive, and a host buffer waits for the copy of what it held."""

from __future__ import annotations

import numpy as np
import torch

from radix_engine.gpu.staging import HostStaging


class LoggedEvent:
    """An event that writes down what is asked of it."""

    def __init__(self, name: str, log: list[str]) -> None:
        self._name = name
        self._log = log

    def record(self) -> None:
        self._log.append(f"sent {self._name}")

    def synchronize(self) -> None:
        self._log.append(f"wait {self._name}")


def test_integers_arrive_as_int32_views_into_one_tensor() -> None:
    staging = HostStaging(torch.device("cpu"))
    parts = staging.send((np.array([5, 6, 7]), np.array([1]), np.array([], np.int64)))
    assert [part.tolist() for part in parts] == [[5, 6, 7], [1], []]
    assert {part.dtype for part in parts} == {torch.int32}
    assert parts[1].data_ptr() == parts[0].data_ptr() + 12


def test_what_was_sent_stays_whatever_is_sent_later() -> None:
    staging = HostStaging(torch.device("cpu"))
    sent = [staging.send((np.full(count, count),))[0] for count in (3, 2000, 5, 4000, 7)]
    assert [set(part.tolist()) for part in sent] == [{3}, {2000}, {5}, {4000}, {7}]
    assert [len(part) for part in sent] == [3, 2000, 5, 4000, 7]


def test_integers_can_be_sent_to_a_place_of_their_own() -> None:
    staging = HostStaging(torch.device("cpu"))
    target = torch.zeros(4, dtype=torch.int32)
    first, second = staging.send((np.array([1, 2]), np.array([3, 4])), target)
    assert target.tolist() == [1, 2, 3, 4]
    assert (first.data_ptr(), second.data_ptr()) == (target.data_ptr(), target.data_ptr() + 8)


def test_a_host_buffer_is_written_again_only_after_its_last_copy() -> None:
    log: list[str] = []
    names = iter("AB")
    staging = HostStaging(torch.device("cpu"), lambda: LoggedEvent(next(names), log))
    for _ in range(3):
        staging.send((np.array([1]),))
    assert log == ["wait A", "sent A", "wait B", "sent B", "wait A", "sent A"]
