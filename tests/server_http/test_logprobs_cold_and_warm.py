"""Log-probabilities over HTTP when some of the prompt was cached: the cold ones, each a number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient

from server import Engine
from tests.server.prompts import ids
from tests.server_http.asking import OPENAIS, STREAMED, asked
from tests.server_http.real import CHAT, COMPLETIONS, client_of, tiny_engine

P = 16
TOLERANCE = 1e-4  # of the torch path, whose sums depend on what is computed together


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with tiny_engine(tmp_path_factory.mktemp("models") / "tiny") as engine:
        yield engine


@pytest.fixture
def client(engine: Engine) -> Iterator[TestClient]:
    with client_of(engine) as client:
        client.post("/flush_cache")
        yield client


def assert_near(ours: Sequence[float | None], theirs: Sequence[float | None]) -> None:
    assert len(ours) == len(theirs)
    for left, right in zip(ours, theirs, strict=True):
        if left is None or right is None:
            assert left is right
        else:
            assert left == pytest.approx(right, abs=TOLERANCE)


@STREAMED
@pytest.mark.parametrize("top", [0, 1, 5])
@pytest.mark.parametrize("length", [1, P, P + 1, 63, 64, 65])
def test_the_prompts_values_are_the_cold_ones_and_a_warm_prompt_is_served(
    client: TestClient, length: int, top: int, stream: bool
) -> None:
    body = {"prompt": ids(length, 1), "echo": True, "logprobs": top, "max_tokens": 3}
    cold, warm = (asked(client, COMPLETIONS, "", stream=stream, **body) for _ in range(2))
    assert_near(warm.only.logprobs, cold.only.logprobs)
    assert warm.only.text == cold.only.text
    for answer in (cold, warm):
        assert answer.prompt_tokens == length
        values = answer.only.logprobs
        assert len(values) == length + answer.completion_tokens
        assert values[0] is None
        assert all(type(value) is float for value in values[1:])
    # Likeliest tokens are not stored with the prompt: for them all of it is computed.
    stored = (length + cold.completion_tokens - 1) // P * P
    served = 0 if top else max(0, min(length, stored) - 1)
    assert (cold.cached_tokens, warm.cached_tokens) == (0, served)


@OPENAIS
@STREAMED
@pytest.mark.parametrize("padding", [0, 1, 5, 8, 15])
def test_the_first_token_after_a_cached_prompt_has_its_cold_value(
    client: TestClient, path: str, padding: int, stream: bool
) -> None:
    """Wherever in a block the prompt ends."""
    said = "The last token's logits are never cached away." + "." * padding
    asks: dict[str, Any] = {"logprobs": 1}
    if path == CHAT:
        asks = {"logprobs": True, "top_logprobs": 1}
    cold, warm = (asked(client, path, said, stream=stream, **asks) for _ in range(2))
    assert cold.cached_tokens == 0
    assert warm.cached_tokens >= (warm.prompt_tokens - 1) // P * P > 0
    assert warm.only.text == cold.only.text
    assert len(warm.only.logprobs) == warm.completion_tokens
    assert_near(warm.only.logprobs, cold.only.logprobs)
    assert all(type(value) is float for value in warm.only.logprobs)


@OPENAIS
@STREAMED
def test_what_is_as_good_as_impossible_has_the_floor_and_stays_json(
    client: TestClient,
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    stream: bool,
) -> None:
    model = engine._loop._steps._model
    forward = model.forward

    def steep(spans: Any) -> torch.Tensor:
        logits = torch.full_like(forward(spans), -1e30)
        logits[:, 40] = 1e30
        return logits

    monkeypatch.setattr(model, "forward", steep)
    asks: dict[str, Any] = {"logprobs": 5, "echo": True}
    if path == CHAT:
        asks = {"logprobs": True, "top_logprobs": 5}
    answer = asked(client, path, "abc", stream=stream, max_tokens=2, top_k=1, **asks)
    prompt = [] if path == CHAT else [None, -9999.0, -9999.0]
    assert list(answer.only.logprobs) == [*prompt, 0.0, 0.0]
