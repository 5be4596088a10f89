"""Seeds and several choices over HTTP, whole and streamed: whose answer it is, and what counts."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server import Engine
from tests.server.prompts import ids
from tests.server_http.asking import OPENAIS, STREAMED, Answers, asked
from tests.server_http.real import CHAT, COMPLETIONS, client_of, tiny_engine

SAID = "Draw something at random, with many words in between."
DRAWN = {"temperature": 1.0, "max_tokens": 24, "ignore_eos": True}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with tiny_engine(tmp_path_factory.mktemp("models") / "tiny", 128) as engine:
        yield engine


@pytest.fixture
def client(engine: Engine) -> Iterator[TestClient]:
    with client_of(engine) as client:
        client.post("/flush_cache")
        yield client


def drawn(client: TestClient, path: str, seed: int | None, stream: bool = False) -> str:
    return asked(client, path, SAID, stream=stream, seed=seed, **DRAWN).only.text


@OPENAIS
@STREAMED
def test_a_seed_gives_the_same_answer_cold_warm_and_among_others(
    client: TestClient, path: str, stream: bool
) -> None:
    alone = drawn(client, path, 42, stream)
    assert drawn(client, path, 42, not stream) == alone, "warm, and in the other form"
    client.post("/flush_cache")
    for neighbours in ([None, None], [7, 42, 43]):
        with ThreadPoolExecutor(4) as pool:
            others = [pool.submit(drawn, client, path, seed, stream) for seed in neighbours]
            assert drawn(client, path, 42, stream) == alone
            found = [each.result() for each in others]
        for seed, text in zip(neighbours, found, strict=True):
            assert (text == alone) == (seed == 42)


@OPENAIS
def test_without_a_seed_each_call_draws_anew(client: TestClient, path: str) -> None:
    assert len({drawn(client, path, None) for _ in range(4)}) == 4


def four(client: TestClient, path: str, *, stream: bool, **fields: Any) -> Answers:
    prompt: dict[str, Any] = {"prompt": ids(100, 1)} if path == COMPLETIONS else {}
    return asked(client, path, SAID, stream=stream, n=4, **DRAWN | prompt | fields)


@OPENAIS
@STREAMED
def test_of_four_answers_the_prompt_is_computed_and_counted_once(
    client: TestClient, engine: Engine, path: str, stream: bool
) -> None:
    before = engine.counters()
    cold = four(client, path, stream=stream, seed=1)
    length = 100 if path == COMPLETIONS else cold.prompt_tokens
    assert [each.index for each in cold.choices] == [0, 1, 2, 3]
    assert len({each.text for each in cold.choices}) == 4
    assert {each.finish for each in cold.choices} == {"length"}
    assert (cold.prompt_tokens, cold.cached_tokens) == (length, 0)
    assert cold.completion_tokens == 4 * 24
    after = engine.counters()
    for name in ("prompt_tokens", "computed_tokens"):
        assert after[name] - before[name] == length
    assert after["generated_tokens"] - before["generated_tokens"] == 4 * 24
    # What was stored before the request counts: the answers have filled the prompt's last block.
    warm = four(client, path, stream=not stream, seed=1)
    assert (warm.prompt_tokens, warm.cached_tokens) == (length, length - 1)
    assert [each.text for each in warm.choices] == [each.text for each in cold.choices]


@STREAMED
def test_the_first_choice_is_that_of_a_request_for_one(client: TestClient, stream: bool) -> None:
    for path in (COMPLETIONS, CHAT):
        several = asked(client, path, SAID, stream=stream, n=3, seed=5, **DRAWN)
        assert several.choices[0].text == drawn(client, path, 5)
