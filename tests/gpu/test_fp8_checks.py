"""What check-gpu says of K and V in fp8: nothing where they are right, and where they are wrong
what is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from radix_engine.memory.fp8 import FP8
from tests.gpu.fake_flashinfer import FakeFlashInfer, make_fake
from workloads.gpu.checks_ops import check_ops
from workloads.gpu.shapes import HeadShape

SHAPE = HeadShape(4, 2, 64, 96)
WRAPPERS = ("BatchDecodeWithPagedKVCacheWrapper", "BatchPrefillWithPagedKVCacheWrapper")


def wrong(fake: FakeFlashInfer, dtype: torch.dtype = torch.bfloat16) -> list[str]:
    checks = check_ops(fake, torch.device("cpu"), dtype, SHAPE, seed=5, windows=True)
    assert sum("K and V in fp8" in check.name for check in checks) == 5
    return [check.name.removesuffix(f", {SHAPE}") for check in checks if not check.ok]


def test_all_is_right() -> None:
    assert wrong(make_fake()) == []


def without_limit(keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What torch 2.11 makes of numbers that are too large."""
    return tuple(
        torch.where(x.abs() > 464, torch.nan, x).to(FP8).contiguous() for x in (keys, values)
    )  # type: ignore[return-value]


def towards_zero(keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return (keys * 0.94).clamp(-448, 448).to(FP8), (values * 0.94).clamp(-448, 448).to(FP8)


@pytest.mark.parametrize("mistake", [without_limit, towards_zero])
def test_wrong_rounding_is_found_where_all_bits_count(
    monkeypatch: pytest.MonkeyPatch, mistake: Callable[..., Any]
) -> None:
    monkeypatch.setattr("radix_engine.attention.flashinfer_wrappers.rounded", mistake)
    found = wrong(make_fake())
    assert found[0] == "append, K and V in fp8"
    assert all(name.endswith("K and V in fp8") for name in found)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_numbers_that_are_read_wrongly_are_found(wrapper: str) -> None:
    fake = make_fake()
    base = getattr(fake, wrapper)

    class Wrong(base):  # type: ignore[misc, valid-type]
        def run(self, q: Any, blocks: Any, **settings: Any) -> Any:
            scale = 1.1 if blocks.dtype == FP8 else 1.0
            return super().run(q, blocks, k_scale=scale, **settings)

    setattr(fake, wrapper, Wrong)
    kind = "decode" if "Decode" in wrapper else "prefill"
    assert wrong(fake) == [f"{kind}, K and V in fp8"]
