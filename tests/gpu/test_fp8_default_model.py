"""The default model with K and V in fp8 says nearly what it says without."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from radix_engine.gpu.served import gpu_model
from radix_engine.model.batch import Span
from radix_engine.model.linear import TorchPacking
from radix_engine.model.load import load_model
from radix_engine.model.served import Runner
from radix_engine.model.source import resolve_model
from server.text import TextCodec
from tests.gpu.binding import bound_fake
from tests.test_default_model import TEXT

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def few_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_perplexity_stays_near_that_of_float32() -> None:
    """Over these 256 tokens it rises by 0.5%, over all 517 by 1.6%."""
    folder = resolve_model(None)
    tokens = list(TextCodec(folder.path, 8192).encode(TEXT.strip()))[:256]
    model = load_model(folder, TorchPacking(torch.float32))
    blocks = -(-len(tokens) // 16)
    span = Span(tokens, 0, list(range(blocks)), len(tokens))
    exact, fp8 = (
        perplexity(gpu_model(model, bound_fake(), None, given).make_runner(blocks, 16), span)
        for given in (False, True)
    )
    assert fp8 != exact
    assert 0.98 < fp8 / exact < 1.02


def perplexity(runner: Runner, span: Span) -> float:
    """Of each token but the first, after those before it."""
    logits = runner.forward([span])
    following = torch.tensor(span.tokens[1:]).unsqueeze(1)
    return float((-logits.log_softmax(-1)[:-1].gather(1, following).mean()).exp())
