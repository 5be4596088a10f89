"""A whole model's logits, checked on a CPU over a stand-in for FlashInfer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from radix_engine.model.linear import Linear
from radix_engine.model.weights import LoadedModel
from tests.gpu.fake_flashinfer import FakeFlashInfer, make_fake
from tests.model.helpers import random_tokens, tiny_runner
from workloads.gpu.checks_model import (
    LogitTolerance,
    check_model,
    compare_logits,
    other_best_tokens,
    text_prompts,
)

TOLERANCE = LogitTolerance(typical=0.5, likeliest=0.25, margin=1.0)
PROMPTS = [random_tokens(length, seed=length) for length in (4, 33, 18)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedModel[Linear]]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tiny_runner(tmp_path_factory.mktemp("model"), head_dim=64).model
    torch.set_num_threads(before)


def wrong_ways(fake: FakeFlashInfer, model: LoadedModel[Linear]) -> list[str]:
    """Which of cold, warm and decode were wrong in any way, in order."""
    checks = check_model(fake, model, model, PROMPTS)
    assert len(checks) == 9
    return list(dict.fromkeys(c.name.split(",")[0] for c in checks if not c.ok))


def test_a_model_that_is_right_passes_by_both_kinds_of_kernels(model: LoadedModel[Linear]) -> None:
    fake = make_fake()
    assert wrong_ways(fake, model) == []
    layers = model.config.num_layers
    # Each prompt cold and the second halves together; then the last tokens together.
    assert fake.calls["BatchPrefillWithPagedKVCacheWrapper.run"] == layers * (len(PROMPTS) + 1)
    assert fake.calls["BatchDecodeWithPagedKVCacheWrapper.run"] == layers


def test_a_wrong_decode_is_found_where_it_is_used(model: LoadedModel[Linear]) -> None:
    fake = make_fake()
    right = getattr(fake, "BatchDecodeWithPagedKVCacheWrapper")  # noqa: B009

    class Wrong(right):  # type: ignore[misc, valid-type]
        def run(self, *args: Any, **kwargs: Any) -> Any:
            return super().run(*args, **kwargs) * 0.5

    setattr(fake, right.__name__, Wrong)
    assert wrong_ways(fake, model) == ["decode"]


def test_a_wrong_rotation_is_found_everywhere(model: LoadedModel[Linear]) -> None:
    fake = make_fake()
    name = "apply_rope_with_cos_sin_cache_inplace"
    right = getattr(fake, name)
    setattr(fake, name, lambda *args, is_neox: right(*args, is_neox=False))
    assert wrong_ways(fake, model) == ["cold", "warm", "decode"]


def test_k_and_v_that_are_not_written_are_found_warm(model: LoadedModel[Linear]) -> None:
    fake = make_fake()
    right = getattr(fake, "append_paged_kv_cache")  # noqa: B009
    steps = iter(range(10_000))
    # From the warm step on only the first token of a step is written.
    cold = model.config.num_layers * len(PROMPTS)

    def lazy(*args: Any, **kwargs: Any) -> None:
        count = 1 if next(steps) >= cold else len(args[0])
        right(*(part[:count] for part in args[:4]), *args[4:], **kwargs)

    setattr(fake, "append_paged_kv_cache", lazy)  # noqa: B010
    assert wrong_ways(fake, model) == ["warm", "decode"]


def logits(*rows: list[float]) -> torch.Tensor:
    """Twelve logits a row: those given, and far lower ones."""
    return torch.tensor([row + [-50.0] * (12 - len(row)) for row in rows])


def outcome(found: torch.Tensor, expected: torch.Tensor) -> list[bool]:
    """Of the median, the log-probabilities and the best tokens."""
    return [check.ok for check in compare_logits("x", found, expected, TOLERANCE)]


def test_logits_are_compared_in_three_ways() -> None:
    expected = logits([5.0, 0.0], [5.0, 0.0], [5.0, 0.0])
    assert outcome(expected, expected) == [True, True, True]
    # All logits of two of three tokens are off by 1: their probabilities are not.
    shifted = expected + torch.tensor([[1.0], [1.0], [0.0]])
    assert outcome(shifted, expected) == [False, True, True]
    # One logit of one token is off by 1, an unlikely one.
    unlikely = expected + logits([0.0, 1.0]).clamp(min=0) * torch.tensor([[1.0], [0.0], [0.0]])
    assert outcome(unlikely, expected) == [True, False, True]
    # Another token is the best after one of three.
    other = logits([0.0, 5.0], [5.0, 0.0], [5.0, 0.0])
    assert outcome(other, expected) == [True, False, False]


def test_a_logit_that_is_no_number_is_wrong_in_every_way_but_the_margin() -> None:
    expected = logits([5.0, 0.0])
    found = expected.clone()
    found[0, 3] = float("nan")
    assert outcome(found, expected) == [False, False, False]


def test_only_margins_that_are_wide_decide() -> None:
    expected = logits([1.0, 0.0], [1.5, 0.0], [0.0, 3.0])
    found = logits([0.0, 1.0], [0.0, 1.0], [0.0, 1.0])
    # Margins 1, 1.5 and 3: with more than 1 two are decided, of which the second is another.
    assert other_best_tokens(found, expected, 1.0) == (1, 2)
    assert other_best_tokens(found, expected, 2.0) == (0, 1)
    assert outcome(logits([1.0, 0.0]), logits([0.9, 0.0])) == [True, True, False]


def test_prompts_are_of_different_lengths_and_the_seed_decides_them() -> None:
    def encode(text: str) -> list[int]:
        return list(text.encode())

    prompts = text_prompts(encode, 1)
    assert len(prompts) == 20
    assert prompts == text_prompts(encode, 1) != text_prompts(encode, 2)
    assert 4 <= min(map(len, prompts)) < max(map(len, prompts)) <= 160
    assert len(set(map(len, prompts))) > 10


@pytest.mark.parametrize("length", [1, 7])
def test_prompts_of_any_length_are_taken(model: LoadedModel[Linear], length: int) -> None:
    checks = check_model(make_fake(), model, model, [random_tokens(length), random_tokens(9)])
    assert [check.worst is not None for check in checks[:2]] == [True, True]


def test_the_model_folder_is_only_read_for_its_tokenizer(tmp_path: Path) -> None:
    from tests.tiny import write_tiny_tokenizer
    from workloads.gpu.checks_model import encoder

    write_tiny_tokenizer(tmp_path)
    ids = encoder(tmp_path)("the in")
    assert ids
    assert all(0 <= token < 512 for token in ids)
