"""What a step of the GPU's runner writes, refuses and asks of the device; run on a CPU."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from radix_engine.attention.torch_paged import TorchAttention
from radix_engine.gpu.ops import TorchOps
from radix_engine.gpu.runner import GpuRunner
from radix_engine.memory.kv_memory import KVMemory
from radix_engine.model.batch import Follow, Span
from radix_engine.model.runner import ModelRunner
from tests.gpu.runners import MAKERS, NUM_BLOCKS, all_logits, assert_near, over_torch, tiny_model
from tests.model.helpers import random_tokens


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> ModelRunner:
    return tiny_model(tmp_path_factory.mktemp("llama"), "llama")


@pytest.mark.parametrize(
    ("places", "rows", "message"),
    [
        ([2], [0], "a place of another step's token lies outside 0 to 1"),
        ([-1], [0], "a place of another step's token lies outside 0 to 1"),
        ([0], [2], "a row of another step's token lies outside 0 to 1"),
        ([0, 1], [0, -1], "a row of another step's token lies outside 0 to 1"),
        ([0, 1], [0], "1 tokens of another step cannot go to 2 places"),
        ([], [], "0 tokens of another step cannot go to 0 places"),
    ],
)
def test_tokens_of_another_step_that_do_not_fit_are_refused(
    llama: ModelRunner, places: list[int], rows: list[int], message: str
) -> None:
    runner = over_torch(llama.model)
    spans = [Span([1], 0, [0], 1), Span([2], 0, [1], 1)]
    with pytest.raises(ValueError, match=message):
        runner.forward_following(spans, Follow(torch.tensor([4, 5]), places, rows))
    assert all(not layer.any() for layer in runner.memory.layers)


@pytest.mark.parametrize("maker", MAKERS)
def test_a_step_that_wants_no_logits_still_writes_every_layer(
    llama: ModelRunner, maker: str
) -> None:
    runner = MAKERS[maker](llama.model)
    tokens = random_tokens(20)
    assert runner.forward([Span(tokens, 0, [1, 2], 0)]).shape == (0, 512)
    written = [layer[[1, 2]].clone() for layer in runner.memory.layers]
    runner.forward([Span(tokens, 0, [3, 4], 1)])
    for before, layer in zip(written, runner.memory.layers, strict=True):
        assert before[0].abs().sum(dim=(-1, -2)).min() > 0
        torch.testing.assert_close(before, layer[[3, 4]], rtol=0, atol=1e-5)
    assert runner.forward([]).shape == (0, 512)


def test_copied_rows_are_a_hit(llama: ModelRunner) -> None:
    runner = over_torch(llama.model)
    tokens = random_tokens(12)
    runner.forward([Span(tokens, 0, [3], 0)])
    runner.copy_rows([(3, 8, 10)])
    other = tokens[:10] + random_tokens(4, 1)
    logits = runner.forward([Span(other[10:], 10, [8], 1)])
    assert_near(logits, all_logits(llama, other)[-1:])


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("family", ["llama", "qwen3", "qwen2"])
def test_bfloat16_stays_near_float32(tmp_path: Path, maker: str, family: str) -> None:
    exact = tiny_model(tmp_path / "exact", family)
    rounded = tiny_model(tmp_path / "rounded", family, dtype=torch.bfloat16)
    runner = MAKERS[maker](rounded.model)
    tokens = random_tokens(40)
    logits, expected = all_logits(runner, tokens), all_logits(exact, tokens)
    assert logits.dtype == torch.float32
    # Logits here have a deviation of 0.6; some roundings to 8 bits come to some hundredths.
    torch.testing.assert_close(logits, expected, rtol=0, atol=0.1)


@pytest.mark.parametrize(
    ("span", "message"),
    [
        (Span([], 0, [0], 1), "at least one token"),
        (Span([1], 0, [0], 2), "num_logits must be from 0 to the span's 1 tokens, not 2"),
        (Span([1], -1, [0], 1), "positions"),
        (Span([1] * 17, 0, [0], 1), "needs 2 blocks"),
        (Span([1], 1024, list(range(65)), 1), "context of 1024"),
        (Span([1], 0, [NUM_BLOCKS], 1), "outside 0 to 63"),
        (Span([512], 0, [0], 1), "outside 0 to 511"),
        (Span([-1], 0, [0], 1), "outside 0 to 511"),
    ],
)
def test_a_span_that_does_not_fit_is_refused_and_nothing_is_written(
    llama: ModelRunner, span: Span, message: str
) -> None:
    runner = over_torch(llama.model)
    with pytest.raises(ValueError, match=message):
        runner.forward([Span([3], 0, [5], 1), span])
    assert all(not layer.any() for layer in runner.memory.layers)


def test_a_memory_of_another_model_is_refused(llama: ModelRunner) -> None:
    for layers, heads, head_dim in [(1, 2, 64), (2, 4, 64), (2, 2, 128)]:
        memory = KVMemory(layers, 4, 16, heads, head_dim, torch.float32)
        with pytest.raises(ValueError, match=r"cannot use a memory of . layers"):
            GpuRunner(llama.model, memory, TorchAttention(memory), TorchOps())


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts torch's operations, and apart those that write int32 into a tensor."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: Counter[str] = Counter()
        self.integer_copies = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.seen[name] += 1
        self.integer_copies += name == "copy_" and args[0].dtype == torch.int32
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("follow", [None, Follow(torch.tensor([9, 8]), [20], [1])])
def test_a_step_asks_nothing_of_the_device_and_sends_its_integers_at_once(
    llama: ModelRunner, monkeypatch: pytest.MonkeyPatch, follow: Follow | None
) -> None:
    runner = over_torch(llama.model)
    spans = [Span(random_tokens(20), 0, [1, 2], 2), Span([7], 0, [3], 1)]
    for _ in range(2):
        runner.forward(spans)  # both host buffers are there now

    def refuse(*_: Any) -> Any:
        raise AssertionError("this waits for the device")

    for name in ("item", "tolist", "cpu", "numpy", "__bool__", "__int__", "__float__"):
        monkeypatch.setattr(torch.Tensor, name, refuse)
    with Watch() as watch:
        runner.forward_following(spans, follow)
    monkeypatch.undo()
    assert not {"_local_scalar_dense", "item", "nonzero", "equal", "is_nonzero"} & set(watch.seen)
    assert watch.seen["embedding"] == 1
    assert watch.integer_copies == 1
