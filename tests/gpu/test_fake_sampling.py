"""The fake flashinfer's softmax and filters compute what the real ones do, and refuse what those
get wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.gpu.fake_checks import Rejected
from tests.gpu.fake_flashinfer import make_fake
from tests.gpu.fake_inputs import F16, ints, reference

INFINITE = math.inf


@pytest.fixture(autouse=True)
def fresh() -> None:
    """Other random inputs in every run; a failing one shows its seed."""
    print(f"seed {torch.seed()}")


@pytest.mark.parametrize("temperature", [None, 0.7, torch.tensor([0.5, 1.0, 2.0])])
def test_softmax_agrees_with_the_reference(temperature: Any) -> None:
    logits = 3 * torch.randn(3, 50)
    expected = reference("sampling", "_softmax_reference")(logits, temperature)
    torch.testing.assert_close(make_fake().softmax(logits, temperature), expected)
    assert make_fake().softmax(logits.bfloat16()).dtype == torch.float32


def test_top_k_agrees_with_the_reference() -> None:
    logits = torch.randn(3, 50)
    for count in (1, 7, 50):
        expected = reference("sampling", "_top_k_mask_logits_reference")(logits, count)
        assert torch.equal(make_fake().top_k_mask_logits(logits, count), expected)


def test_top_p_agrees_with_the_reference() -> None:
    probs = torch.randn(3, 50).softmax(dim=-1)
    shares = torch.tensor([0.1, 0.5, 0.9])
    expected = reference("sampling", "_top_p_renorm_probs_reference")(probs, shares)
    found = make_fake().top_p_renorm_probs(probs, shares, is_deterministic=True)
    torch.testing.assert_close(found, expected)
    assert torch.equal(found > 0, expected > 0)


def test_rules_may_differ_by_row_and_equals_stay_together() -> None:
    fake, low = make_fake(), -INFINITE
    logits = torch.tensor([[1.0, 3.0, 2.0, 2.0], [2.0, 2.0, 0.0, 1.0], [0.0, 1.0, 2.0, 3.0]])
    found = fake.top_k_mask_logits(logits, ints(2, 1, 9))
    assert found.tolist() == [[low, 3, 2, 2], [2, 2, low, low], [0, 1, 2, 3]]
    probs = torch.tensor([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125], [0.5, 0.5, 0.0]])
    found = fake.top_p_renorm_probs(probs, torch.tensor([0.6, 0.75, 0.1]), is_deterministic=True)
    assert found.tolist() == [[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]


def soften(**changes: Any) -> None:
    given = {"logits": torch.ones(2, 4), "temperature": torch.ones(2)}
    make_fake().softmax(**given | changes)


def top_k(**changes: Any) -> None:
    given = {"logits": torch.ones(2, 4), "top_k": ints(1, 2)}
    make_fake().top_k_mask_logits(**given | changes)


def top_p(**changes: Any) -> None:
    given = {
        "probs": torch.full((2, 4), 0.25),
        "top_p": torch.tensor([0.5, 1.0]),
        "is_deterministic": True,
    }
    make_fake().top_p_renorm_probs(**given | changes)


NAN = torch.tensor([[0.5, 0.5, 0.0, 0.0], [math.nan, 1.0, 0.0, 0.0]])
STRIDED = torch.full((4, 2), 0.25).T


@pytest.mark.parametrize(
    ("call", "changes", "says"),
    [
        (soften, {"temperature": 0.0}, "temperature must be above 0"),
        (soften, {"temperature": torch.tensor([1.0, 1e-40])}, "no float32 kernel divides by"),
        (soften, {"temperature": torch.tensor([1.0, INFINITE])}, "no float32 kernel divides by"),
        (soften, {"temperature": torch.ones(3)}, "temperature must have 2 entries"),
        (soften, {"logits": NAN}, "logits must have no NaN"),
        (soften, {"logits": STRIDED}, "logits must be contiguous"),
        (soften, {"logits": torch.ones(2, 4, 1)}, "two dimensions"),
        (soften, {"logits": torch.ones(0, 4), "temperature": 1.0}, "must have a row"),
        (top_k, {"logits": NAN}, "logits must have no NaN"),
        (top_k, {"logits": STRIDED}, "logits must be contiguous"),
        (top_k, {"logits": torch.ones(2, 4, dtype=torch.float64)}, "cannot be torch.float64"),
        (top_k, {"top_k": torch.tensor([1, 2])}, "top_k must be int32"),
        (top_k, {"top_k": ints(1)}, "top_k must have 2 entries"),
        (top_k, {"top_k": ints(1, 0)}, "top_k must be at least 1"),
        (top_p, {"probs": NAN}, "probs must have no NaN"),
        (top_p, {"probs": STRIDED}, "probs must be contiguous"),
        (top_p, {"probs": torch.ones(2, 4)}, "must add up to 1"),
        (top_p, {"probs": torch.tensor([[-0.5, 1.5]] * 2)}, "below 0"),
        (top_p, {"top_p": 0.0}, "top_p must lie above 0"),
        (top_p, {"top_p": 1.5}, "top_p must lie above 0 and up to 1"),
        (top_p, {"top_p": torch.full((3,), 0.5)}, "top_p must have 2 entries"),
        (top_p, {"is_deterministic": False}, "changes from run to run"),
    ],
)
def test_a_wrong_call_is_refused(
    call: Callable[..., None], changes: dict[str, Any], says: str
) -> None:
    call()
    with pytest.raises(Rejected, match=says):
        call(**changes)


def test_16_bits_are_taken() -> None:
    soften(logits=torch.ones(2, 4, dtype=F16))
    top_k(logits=torch.ones(2, 4, dtype=F16))
