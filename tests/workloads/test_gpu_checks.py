"""The checks that a GPU is put through, run on a CPU over a stand-in for FlashInfer.

Over the stand-in as it is they find nothing; over one with a mistake they find that one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
import torch

from radix_engine.gpu.graphs import Graph
from tests.gpu.fake_flashinfer import FakeFlashInfer, make_fake
from workloads.gpu.checks_cascade import cascade_case, check_cascade
from workloads.gpu.checks_graphs import Repeats, check_graphs, decode_spans
from workloads.gpu.checks_ops import check_ops, spans_of, uninitialised_is_nan
from workloads.gpu.outcomes import Check
from workloads.gpu.shapes import HEAD_SHAPES, HeadShape, llama_shape, random_model, small_shape

CPU = torch.device("cpu")
SHAPE = HeadShape(4, 2, 64, 96)
CONFIG = llama_shape(
    num_layers=2,
    hidden_size=64,
    num_heads=4,
    num_kv_heads=2,
    head_dim=64,
    intermediate_size=96,
    vocab_size=128,
    context_length=512,
)
DECODE = "BatchDecodeWithPagedKVCacheWrapper"
PREFILL = "BatchPrefillWithPagedKVCacheWrapper"
CASCADE = "MultiLevelCascadeAttentionWrapper"
Mutation = Callable[[FakeFlashInfer], None]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tiny matrices gain nothing from more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def wrong(checks: list[Check]) -> set[str]:
    """What was wrong, by the names' beginnings."""
    return {check.name.split(", ")[0] for check in checks if not check.ok}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_operations_that_are_right_pass_and_each_was_called(dtype: torch.dtype) -> None:
    fake = make_fake()
    checks = check_ops(fake, CPU, dtype, SHAPE, seed=1, windows=True)
    assert wrong(checks) == set()
    assert len({check.name for check in checks}) == len(checks) == 26
    for name in (
        *(f"{wrapper}.run" for wrapper in (DECODE, PREFILL, CASCADE)),
        "append_paged_kv_cache",
        "rmsnorm",
        "fused_add_rmsnorm",
        "silu_and_mul",
        "apply_rope_with_cos_sin_cache_inplace",
    ):
        assert fake.calls[name] >= 2, name


def replaced(name: str, change: Callable[..., Any]) -> Mutation:
    """``change`` gets the right function before the call's own arguments."""

    def mutate(fake: FakeFlashInfer) -> None:
        right = getattr(fake, name)
        setattr(fake, name, lambda *args, **kwargs: change(right, *args, **kwargs))

    return mutate


def method(wrapper: str, name: str, change: Callable[..., Any]) -> Mutation:
    """The same for a wrapper's method; ``change`` gets the wrapper first."""

    def mutate(fake: FakeFlashInfer) -> None:
        base = getattr(fake, wrapper)
        right = getattr(base, name)

        def changed(self: Any, *args: Any, **kwargs: Any) -> Any:
            return change(self, right, *args, **kwargs)

        setattr(fake, wrapper, type(wrapper, (base,), {name: changed}))

    return mutate


def no_weight(right: Any, x: torch.Tensor, weight: torch.Tensor, eps: float) -> Any:
    return right(x, torch.ones_like(weight), eps)


def no_sum(right: Any, x: torch.Tensor, residual: torch.Tensor, *rest: Any) -> None:
    right(x, residual.clone(), *rest)


def a_row_unwritten(right: Any, both: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = right(both)
    out = torch.empty_like(result)
    out[:-1] = result[:-1]
    return out


def neighbours_rotated(right: Any, *args: Any, is_neox: bool) -> None:
    right(*args, is_neox=not is_neox)


def a_head_too_many_rotated(
    right: Any, positions: Any, queries: Any, keys: torch.Tensor, *rest: Any, **kwargs: Any
) -> None:
    wider = keys.as_strided((len(keys), keys.shape[1] + 64), keys.stride())
    right(positions, queries, wider, *rest, **kwargs)


def last_token_lost(
    right: Any, keys: Any, values: Any, rows: Any, positions: Any, *rest: Any, **kwargs: Any
) -> None:
    right(keys[:-1], values[:-1], rows[:-1], positions[:-1], *rest, **kwargs)


def one_key_less(
    self: Any, right: Any, indptr: Any, indices: Any, last: torch.Tensor, *rest: Any, **kwargs: Any
) -> None:
    right(self, indptr, indices, torch.clamp(last - 1, min=1), *rest, **kwargs)


def another_scale(self: Any, right: Any, *args: Any, sm_scale: float, **kwargs: Any) -> None:
    right(self, *args, sm_scale=sm_scale * 1.05, **kwargs)


def only_two_keys(self: Any, right: Any, *args: Any, **kwargs: Any) -> None:
    right(self, *args, **(kwargs | {"window_left": 1}))


def not_causal(self: Any, right: Any, *args: Any, causal: bool, **kwargs: Any) -> None:
    right(self, *args, causal=False, **kwargs)


def shared_part_dropped(self: Any, right: Any, *args: Any) -> Any:
    shared = self._batch_prefill_wrappers
    self._batch_prefill_wrappers = shared[-1:]
    try:
        return right(self, *args)
    finally:
        self._batch_prefill_wrappers = shared


MISTAKES: dict[str, tuple[Mutation, set[str]]] = {
    "a norm without its weight": (replaced("rmsnorm", no_weight), {"rms norm", "norm per head"}),
    "a sum that is not kept": (replaced("fused_add_rmsnorm", no_sum), {"fused add norm's sum"}),
    "a row that is not written": (replaced("silu_and_mul", a_row_unwritten), {"silu and mul"}),
    "a token that is not written": (
        replaced("append_paged_kv_cache", last_token_lost),
        {"append"},
    ),
    "a rotation of neighbours": (
        replaced("apply_rope_with_cos_sin_cache_inplace", neighbours_rotated),
        {"rotation"},
    ),
    "a rotation that changes values": (
        replaced("apply_rope_with_cos_sin_cache_inplace", a_head_too_many_rotated),
        {"values beside a rotation"},
    ),
    "a scale that is a little off": (method(DECODE, "plan", another_scale), {"decode"}),
    "a key less": (method(DECODE, "plan", one_key_less), {"decode"}),
    "a prompt that sees ahead": (method(PREFILL, "plan", not_causal), {"prefill"}),
    "a cascade of one level": (method(CASCADE, "run", shared_part_dropped), {"cascade"}),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_operation_that_is_wrong_is_found_and_no_other(mistake: str) -> None:
    mutate, found = MISTAKES[mistake]
    fake = make_fake()
    mutate(fake)
    assert wrong(check_ops(fake, CPU, torch.bfloat16, SHAPE, seed=2)) == found


def test_what_is_not_initialised_is_nan_meanwhile() -> None:
    with uninitialised_is_nan():
        assert torch.empty(3, dtype=torch.bfloat16).isnan().all()
        assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()


def test_spans_behind_shared_blocks_have_all_other_blocks_for_themselves() -> None:
    spans = spans_of([(0, 1), (15, 2), (20, 1)], shared=2)
    assert [(span.start, span.length) for span in spans] == [(32, 1), (47, 2), (52, 1)]
    assert [list(span.block_table) for span in spans] == [[0, 1, 6], [0, 1, 5, 4], [0, 1, 3, 2]]


class Forgetting(Repeats):
    """A graph that never runs again."""

    def record(self, body: Callable[[], torch.Tensor]) -> tuple[Graph, torch.Tensor]:
        return _Nothing(), body()


class _Nothing:
    def replay(self) -> None:
        """Leaves the output of the recording."""


class Counting(Repeats):
    """Counts replays by size."""

    def __init__(self) -> None:
        self.replays: list[int] = []

    def record(self, body: Callable[[], torch.Tensor]) -> tuple[Graph, torch.Tensor]:
        graph, output = super().record(body)
        return _Counted(graph, self.replays, len(output)), output


class _Counted:
    def __init__(self, graph: Graph, replays: list[int], size: int) -> None:
        self._graph, self._replays, self._size = graph, replays, size

    def replay(self) -> None:
        self._replays.append(self._size)
        self._graph.replay()


def graph_checks(recorder: Repeats, fake: FakeFlashInfer | None = None) -> list[Check]:
    return check_graphs(
        fake or make_fake(),
        CPU,
        torch.float32,
        CONFIG,
        recorder,
        batches=(1, 3, 9),
        contexts=(2, 70),
        seed=3,
    )


def test_replayed_steps_equal_computed_ones_and_every_batch_was_replayed() -> None:
    recorder = Counting()
    checks = graph_checks(recorder)
    assert len(checks) == 12
    assert wrong(checks) == set()
    assert recorder.replays == [1, 1, 4, 4, 16, 16]


def test_a_replay_that_does_nothing_is_found() -> None:
    names = [check.name for check in graph_checks(Forgetting()) if not check.ok]
    assert len(names) == 12


def test_a_graph_whose_plan_is_wrong_is_found_against_steps_without_padding() -> None:
    fake = make_fake()
    method("CUDAGraphBatchDecodeWithPagedKVCacheWrapper", "plan", only_two_keys)(fake)
    names = [check.name for check in graph_checks(Repeats(), fake) if not check.ok]
    assert names
    assert all(name.endswith("not padded") for name in names)


def test_decodes_lack_their_last_token_and_share_no_block() -> None:
    spans = decode_spans(Random(0), CONFIG, 12, batch=3, context=40)
    assert [span.start for span in spans] == [39, 34, 29]
    blocks = [block for span in spans for block in span.block_table]
    assert [len(span.block_table) for span in spans] == [3, 3, 2]
    assert len(set(blocks)) == 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shared", [256, 1024])
def test_a_cascade_equals_reading_all_for_each(dtype: torch.dtype, shared: int) -> None:
    fake = make_fake()
    case = cascade_case(fake, CPU, dtype, SHAPE, shared, seed=4, requests=3, own=20)
    check = check_cascade(case)
    assert check.ok, check
    assert fake.calls[f"{CASCADE}.run"] == fake.calls[f"{DECODE}.run"] == 1


def test_a_cascade_without_its_shared_part_is_found() -> None:
    fake = make_fake()
    method(CASCADE, "run", shared_part_dropped)(fake)
    case = cascade_case(fake, CPU, torch.bfloat16, SHAPE, 256, seed=4, requests=3, own=20)
    assert not check_cascade(case).ok


def test_too_little_shared_for_a_cascade_is_refused() -> None:
    with pytest.raises(ValueError, match="0 shared tokens were found instead of 128"):
        cascade_case(make_fake(), CPU, torch.float32, SHAPE, 128, seed=4, requests=3, own=20)


def test_both_ways_to_decode_are_among_the_shapes() -> None:
    groups = [shape.num_heads // shape.num_kv_heads for shape in HEAD_SHAPES]
    assert groups == [4, 3]  # from 4 on tensor cores decode
    assert [small_shape(shape).hidden_size for shape in HEAD_SHAPES] == [4096, 576]


def test_random_weights_are_made_for_plain_shapes_only() -> None:
    with pytest.raises(ValueError, match="plain Llama shape"):
        random_model(dataclasses.replace(CONFIG, qk_norm=True), torch.float32, CPU, 0)
