"""FlashInfer's sampling is tried when a model is loaded; where it fails, torch draws, and one line
in the log says why."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from radix_engine.gpu.sampling import FlashInferDrawer
from radix_engine.gpu.sampling_trial import flashinfer_drawer
from tests.gpu.binding import bound_fake

CPU = torch.device("cpu")
BEGINNING = "Random tokens are drawn by torch, since FlashInfer's sampling fails: "
OPERATIONS = ("softmax", "top_k_mask_logits", "top_p_renorm_probs")


def changed(**operations: Callable[..., Any]) -> SimpleNamespace:
    """The stand-in with other operations."""
    fake = bound_fake()
    return SimpleNamespace(**{name: getattr(fake, name) for name in OPERATIONS} | operations)


def why_not(flashinfer: Any, caplog: pytest.LogCaptureFixture) -> str:
    """What the one line in the log says where it is not used."""
    caplog.clear()
    with caplog.at_level(logging.INFO):
        assert flashinfer_drawer(flashinfer, CPU, 320) is None
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    line = record.getMessage()
    assert "\n" not in line
    assert line.startswith(BEGINNING)
    return line.removeprefix(BEGINNING)


@pytest.mark.parametrize("width", [2, 12, 320, 49152])
def test_what_works_is_used_and_nothing_is_said(
    width: int, caplog: pytest.LogCaptureFixture
) -> None:
    fake = bound_fake()
    with caplog.at_level(logging.INFO):
        assert flashinfer_drawer(fake, CPU, width) == FlashInferDrawer(fake)
    assert caplog.messages == []
    assert set(fake.bound) == set(OPERATIONS)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_is_missing_is_told(name: str, caplog: pytest.LogCaptureFixture) -> None:
    flashinfer = changed()
    delattr(flashinfer, name)
    assert name in why_not(flashinfer, caplog)


def test_an_operation_that_refuses_is_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError("Ninja build failed:\n" + "  curand.h: no such file\n" * 99)

    line = why_not(changed(top_p_renorm_probs=refuse), caplog)
    assert line.startswith("RuntimeError: Ninja build failed: curand.h: no such file")
    assert len(line) <= 300


def one_temperature(logits: torch.Tensor, temperatures: torch.Tensor) -> torch.Tensor:
    return logits.softmax(dim=-1)


def one_more(logits: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
    return logits


def all_of_it(probs: torch.Tensor, top_p: torch.Tensor, is_deterministic: bool) -> torch.Tensor:
    return probs


def unwritten(probs: torch.Tensor, top_p: torch.Tensor, is_deterministic: bool) -> torch.Tensor:
    return torch.full_like(probs, torch.nan)


@pytest.mark.parametrize(
    "operations",
    [
        {"softmax": one_temperature},
        {"top_k_mask_logits": one_more},
        {"top_p_renorm_probs": all_of_it},
        {"top_p_renorm_probs": unwritten},
    ],
    ids=["one_temperature", "one_more", "all_of_it", "unwritten"],
)
def test_an_operation_that_draws_wrong_tokens_is_told(
    operations: dict[str, Callable[..., Any]], caplog: pytest.LogCaptureFixture
) -> None:
    line = why_not(changed(**operations), caplog)
    assert line.startswith("it drew the tokens [")
    assert line.endswith(f"not {[106, 106, 319, 106, 80, 106]}")
