"""What a recorded step reads stays in place, and is replaced only when nobody needs it any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from radix_engine.attention.flashinfer_graphs import FlashInferGraphs
from tests.gpu.attention_pair import (
    DECODES,
    Pair,
    spans_of,
)
from tests.gpu.graph_attention import graphs_over


class Places:
    """A flashinfer that only writes down which tensors its kernels would be launched with."""

    def __init__(self) -> None:
        self.launched: list[list[tuple[int, tuple[int, ...]]]] = []
        self.buffers: list[torch.Tensor] = []
        self.planned: list[tuple[int, ...]] = []

    def append_paged_kv_cache(self, *tensors: torch.Tensor, kv_layout: str) -> None:
        self._launch(tensors)

    def CUDAGraphBatchDecodeWithPagedKVCacheWrapper(self, *given: Any, **_: Any) -> Any:
        self.buffers += given[1:4]
        return self

    def plan(
        self, indptr: torch.Tensor, indices: torch.Tensor, *_: Any, window_left: int, **__: Any
    ) -> None:
        assert indices.data_ptr() == self.buffers[1].data_ptr()  # where it is copied to
        self.buffers[0][: len(indptr)] = indptr
        self.planned.append((window_left, len(indices)))

    def run(self, queries: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        self._launch((queries, memory, *self.buffers))
        return queries

    def _launch(self, tensors: Sequence[torch.Tensor]) -> None:
        self.launched.append([(each.data_ptr(), tuple(each.shape)) for each in tensors])


def test_whatever_is_planned_the_launches_are_the_same() -> None:
    pair, places = Pair(spans_of(DECODES)), Places()
    attention = graphs_over(pair, [None], places).attention(2)
    tensors = [tensor[:2] for tensor in pair.inputs()]
    launched = []
    for sizes in ([(0, 1), (0, 1)], [(100, 1), (5, 1)], [(3, 1), (127, 1)]):
        attention.plan(spans_of(sizes)).attend(0, *tensors)
        launched.append(places.launched[-2:])
    assert launched[0] == launched[1] == launched[2]
    assert [count for _, count in places.planned] == [2, 8, 9]


def test_a_window_longer_than_a_context_stays_a_window() -> None:
    pair, places = Pair(spans_of(DECODES)), Places()
    attention = graphs_over(pair, [1000, None], places).attention(1)
    attention.plan(spans_of([(3, 1)]))
    assert places.planned == [(999, 1), (-1, 1)]


def test_sizes_share_their_integers() -> None:
    pair, places = Pair(spans_of(DECODES)), Places()
    graphs = graphs_over(pair, [None], places)
    graphs.attention(4)
    graphs.attention(2)
    first, second = places.buffers[:3], places.buffers[3:]
    assert [each.data_ptr() for each in first] == [each.data_ptr() for each in second]
    assert [len(each) for each in first] == [5, 4 * 8, 4]
    assert [len(each) for each in second] == [3, 4 * 8, 2]
    assert all(each.data_ptr() % 16 == 0 for each in first)


def test_a_plan_asks_nothing_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, places = Pair(spans_of(DECODES)), Places()
    attention = graphs_over(pair, [None, 9], places).attention(4)
    asked: Counter[str] = Counter()

    def note(name: str) -> Any:
        def method(*_: Any) -> Any:
            asked[name] += 1
            raise AssertionError("this waits for the device")

        return method

    for name in ("item", "tolist", "cpu", "__bool__", "__int__", "__float__", "__index__"):
        monkeypatch.setattr(torch.Tensor, name, note(name))
    attention.plan(pair.spans)
    monkeypatch.undo()
    assert not asked
    assert len(places.planned) == 2


class LoggedMark:
    """A mark that writes down when it is set and waited for, and what the host then holds."""

    def __init__(self, places: Places) -> None:
        self.graphs: FlashInferGraphs | None = None
        self._places = places
        self.log: list[tuple[str, int, list[int]]] = []

    def set(self) -> None:
        self._note("set")

    def wait(self) -> None:
        self._note("wait")

    def _note(self, what: str) -> None:
        assert self.graphs is not None
        positions = self.graphs.host.positions[:2].tolist()
        self.log.append((what, len(self._places.planned), positions))


def test_a_steps_integers_are_replaced_only_when_those_before_are_copied() -> None:
    """Whichever size the step before had: they lie in the same place."""
    pair, places = Pair(spans_of(DECODES)), Places()
    mark = LoggedMark(places)
    graphs = graphs_over(pair, [None, 9], places, mark=mark)
    mark.graphs = graphs
    two, one = graphs.attention(2), graphs.attention(1)
    two.plan(spans_of([(8, 1), (5, 1)]))
    one.plan(spans_of([(3, 1)]))
    assert mark.log == [
        ("wait", 0, [0, 0]),
        ("set", 2, [8, 5]),
        ("wait", 2, [8, 5]),
        ("set", 4, [3, 5]),
    ]
