"""Nothing in a step's sampling waits for the device.

Shown with tensors that have shapes and no values: whatever needs a value of one, to decide or to
copy, fails. Copies to them that would wait are refused besides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from radix_engine.gpu.sampling import FlashInferDrawer
from radix_engine.model.sampling import SampleRow, finite_rows, sample_later
from radix_engine.model.sampling_params import SamplingParams

META = torch.device("meta")
SHAPES_ONLY = SimpleNamespace(
    softmax=lambda logits, temperature: torch.empty_like(logits),
    top_k_mask_logits=lambda logits, top_k: torch.empty_like(logits),
    top_p_renorm_probs=lambda probs, top_p, is_deterministic: torch.empty_like(probs),
)
WAYS = (
    SamplingParams(temperature=0.0),
    SamplingParams(),
    SamplingParams(temperature=0.7, min_p=0.1),
    SamplingParams(top_k=5),
    SamplingParams(top_p=0.9),
    SamplingParams(top_k=50, top_p=0.9, min_p=0.02),
)


class NoWaiting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses copies between the host and the device for which the host would wait."""

    copies = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        target = given.get("device")
        if func is torch.ops.aten._to_copy.default and target not in (None, args[0].device):
            assert given.get("non_blocking"), f"a copy of {tuple(args[0].shape)} waits"
            self.copies += 1
        return func(*args, **given)


@pytest.fixture(autouse=True)
def pinned(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """What was pinned: this machine may have no memory to pin."""
    found: list[torch.Tensor] = []

    def pin_memory(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    return found


def queued(work: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, int]:
    """What it gives and how many copies to the device it made."""
    with NoWaiting() as watching:  # type: ignore[no-untyped-call]
        return work(), watching.copies


@pytest.mark.parametrize("count", [1, 6, 300])
def test_tokens_are_drawn_without_waiting(count: int, pinned: list[torch.Tensor]) -> None:
    logits = torch.empty(count, 40, device=META)
    rows = [SampleRow(WAYS[row % len(WAYS)], row, 3) for row in range(count)]
    drawer = FlashInferDrawer(SHAPES_ONLY)
    tokens, copies = queued(lambda: sample_later(logits, rows, drawer))
    assert (tokens.shape, tokens.dtype, tokens.device) == ((count,), torch.int64, META)
    assert copies == len(pinned)
    assert queued(lambda: finite_rows(logits))[0].shape == (count,)


def test_rows_of_one_kind_cost_one_copy() -> None:
    logits = torch.empty(6, 40, device=META)
    for way in WAYS[1:]:
        rows = [SampleRow(way, row, 3) for row in range(6)]
        drawer = FlashInferDrawer(SHAPES_ONLY)
        assert queued(lambda rows=rows, d=drawer: sample_later(logits, rows, d))[1] == 1  # type: ignore[misc]


def test_waiting_would_be_seen() -> None:
    values = torch.empty(3, device=META)
    works: tuple[Callable[[], Any], ...] = (
        lambda: values.sum().item(),
        lambda: values.nonzero(),
        lambda: values[values > 0],
        lambda: bool(values.any()),
    )
    for work in works:
        with pytest.raises((RuntimeError, NotImplementedError)):
            queued(work)
    with pytest.raises(AssertionError, match="waits"):
        queued(lambda: torch.zeros(3).to(META))
