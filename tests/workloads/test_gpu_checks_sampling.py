"""The check of FlashInfer's sampling, run on a CPU over a stand-in: it finds each mistake."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from radix_engine.model.sampling_draw import Draw
from radix_engine.model.sampling_params import SamplingParams
from tests.gpu.fake_flashinfer import make_fake
from workloads.gpu.checks_sampling import ROWS, check_sampling, misses
from workloads.gpu.outcomes import Check

CPU = torch.device("cpu")
WIDTH = 900

Change = Callable[..., Any]


def found_over(name: str | None = None, change: Change | None = None) -> list[Check]:
    """What is found where the stand-in's function ``name`` is changed: ``change`` gets the right
    one before the call's own arguments."""
    fake = make_fake()
    if name is not None and change is not None:
        right = getattr(fake, name)
        setattr(fake, name, lambda *args, **kwargs: change(right, *args, **kwargs))
    seed = int(torch.seed()) % 2**31
    print(f"seed {seed}")
    return check_sampling(fake, CPU, torch.bfloat16, WIDTH, seed)


def wrong(checks: list[Check]) -> set[str]:
    return {check.name.split(", ")[0] for check in checks if not check.ok}


def test_sampling_that_is_right_passes_with_inputs_of_any_seed() -> None:
    checks = found_over()
    assert wrong(checks) == set()
    assert len({check.name for check in checks}) == len(checks) == 7


def no_temperature(right: Change, logits: torch.Tensor, temperature: torch.Tensor) -> Any:
    return right(logits, torch.ones_like(temperature))


def first_temperature(right: Change, logits: torch.Tensor, temperature: torch.Tensor) -> Any:
    return right(logits, temperature[:1].expand(len(logits)))


def one_more(right: Change, logits: torch.Tensor, top_k: torch.Tensor) -> Any:
    return right(logits, top_k + 1)


def a_little_more(right: Change, probs: Any, top_p: torch.Tensor, **rest: Any) -> Any:
    return right(probs, (top_p + 0.01).clamp(max=1.0), **rest)


def not_normalised(right: Change, probs: torch.Tensor, *rest: Any, **more: Any) -> Any:
    return torch.where(right(probs, *rest, **more) > 0, probs, 0.0)


def last_row_unwritten(right: Change, *args: Any, **kwargs: Any) -> torch.Tensor:
    result: torch.Tensor = right(*args, **kwargs)
    if len(result) < ROWS:
        return result  # the stand-in refuses to draw from NaN
    out = torch.empty_like(result)
    out[:-1] = result[:-1]
    return out


MISTAKES: dict[str, tuple[str, Change, set[str]]] = {
    "no temperature": ("softmax", no_temperature, {"softmax", "tokens"}),
    "one temperature for all": (
        "softmax",
        first_temperature,
        {"softmax", "tokens", "tokens alone"},
    ),
    "a token too many": ("top_k_mask_logits", one_more, {"top k"}),
    "a larger share": (
        "top_p_renorm_probs",
        a_little_more,
        {"what top p has too much", "tokens"},
    ),
    "sums that are not 1": ("top_p_renorm_probs", not_normalised, {"top p"}),
    "rows that are not written": ("softmax", last_row_unwritten, {"softmax"}),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str) -> None:
    name, change, seen = MISTAKES[mistake]
    assert wrong(found_over(name, change)) >= seen


# 0.5, 0.25, 0.125, 0.125
LOGITS = torch.tensor([[0.125, 0.5, 0.125, 0.25]]).log()


@pytest.mark.parametrize(
    ("params", "number", "token", "off"),
    [
        # In the order of ids they begin at 0, 0.125, 0.625 and 0.75.
        (SamplingParams(), 0.6, 1, 0.0),
        (SamplingParams(), 0.7, 1, 0.075),
        (SamplingParams(), 0.1, 1, 0.025),
        # Likeliest first, 1, 3, 0 and 2 begin at 0, 0.5, 0.75 and 0.875.
        (SamplingParams(top_p=0.99), 0.8, 0, 0.0),
        (SamplingParams(top_p=0.99), 0.9, 0, 0.025),
        (SamplingParams(top_k=2), 0.7, 3, 0.0),
        (SamplingParams(top_k=2), 0.7, 1, 0.7 - 2 / 3),
        (SamplingParams(top_k=2), 0.7, 0, math.inf),
        (SamplingParams(top_k=3), 0.99, 0, 0.0),
        (SamplingParams(top_k=3), 0.99, 2, math.inf),
        (SamplingParams(min_p=0.4), 0.9, 3, 0.0),
        (SamplingParams(min_p=0.4), 0.9, 2, math.inf),
        (SamplingParams(top_p=0.7), 0.9, 3, 0.0),
        (SamplingParams(top_p=0.7), 0.9, 0, math.inf),
        (SamplingParams(top_p=0.75 + 1e-7), 0.99, 3, 0.0),  # where it cuts may be off by so much
        (SamplingParams(top_p=0.75 + 1e-7), 0.99, 0, 0.0),
        (SamplingParams(), 0.5, 4, math.inf),
    ],
)
def test_how_far_a_token_is_off_is_told(
    params: SamplingParams, number: float, token: int, off: float
) -> None:
    [found] = misses(LOGITS, [Draw(params, number)], [token], 1e-5).tolist()
    assert found == pytest.approx(off, abs=1e-6)
