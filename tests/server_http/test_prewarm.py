"""A head that is prewarmed is what the first real request is served, to the token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server import Engine
from server.http.cache_schemas import Prewarmed
from tests.server_http.real import (
    CHAT,
    COMPLETIONS,
    ask,
    cached,
    client_of,
    conversation,
    tiny_engine,
)

PREWARM = "/v1/cache/prewarm"
SYSTEM = "You are a helpful assistant. " * 3
HEAD = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n"
TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models") / "tiny"


@pytest.fixture
def engine(folder: Path) -> Iterator[Engine]:
    with tiny_engine(folder, 96) as engine:
        yield engine


@pytest.fixture
def client(engine: Engine) -> Iterator[TestClient]:
    with client_of(engine) as client:
        yield client


def prewarm(client: TestClient, **body: Any) -> Any:
    response = client.post(PREWARM, json=body)
    assert response.status_code == 200, response.text
    Prewarmed.model_validate_json(response.content, strict=True)
    return response.json()


@pytest.mark.parametrize("question", ["Hello!", "\n\nHello!", " hello", "x" * 40])
@pytest.mark.parametrize("padding", range(0, 18, 3))
def test_the_first_real_request_is_served_the_rendered_head(
    client: TestClient, engine: Engine, question: str, padding: int
) -> None:
    system = SYSTEM + "." * padding  # so that heads end anywhere in a block
    head = HEAD.replace(SYSTEM, system)
    done = prewarm(client, messages=[{"role": "system", "content": system}])
    assert done["tokens"] == len(engine.text.encode(head))
    assert (done["cached"], done["computed"]) == (0, done["tokens"])
    assert done["match_end"]["reason"] == "cold"
    assert engine.counters()["generated_tokens"] == 0
    assert cached(client, CHAT, messages=conversation(system, question)) == done["tokens"]


def test_a_second_prewarm_finds_all_of_it(client: TestClient) -> None:
    messages = [{"role": "system", "content": SYSTEM}]
    first = prewarm(client, messages=messages)
    again = prewarm(client, messages=messages)
    assert (again["tokens"], again["cached"], again["computed"]) == (
        first["tokens"],
        first["tokens"],
        0,
    )


@pytest.mark.parametrize(
    ("said", "expected", "more"),
    [
        ((), HEAD, ("Hello",)),
        (("Hi",), f"{HEAD}Hi<|im_end|>\n<|im_start|>assistant\n", ("Yes?", "Fine.")),
        (
            ("Hi", "Yes?"),
            f"{HEAD}Hi<|im_end|>\n<|im_start|>assistant\nYes?<|im_end|>\n<|im_start|>user\n",
            ("Fine.",),
        ),
    ],
    ids=["system", "user", "assistant"],
)
def test_the_head_ends_where_whoever_is_next_begins(
    client: TestClient, engine: Engine, said: tuple[str, ...], expected: str, more: tuple[str, ...]
) -> None:
    done = prewarm(client, messages=conversation(SYSTEM, *said))
    assert done["tokens"] == len(engine.text.encode(expected))
    longer = conversation(SYSTEM, *said, *more)
    assert cached(client, CHAT, messages=longer) == done["tokens"]


@pytest.mark.parametrize("tokens", [False, True])
def test_a_prompt_can_be_prewarmed_too(client: TestClient, engine: Engine, tokens: bool) -> None:
    ids = list(engine.text.encode(SYSTEM))
    done = prewarm(client, prompt=ids if tokens else SYSTEM)
    assert done["tokens"] == len(ids)
    assert cached(client, COMPLETIONS, prompt=[*ids, *ids[5:9]]) == len(ids)


def test_without_partial_blocks_it_is_served_in_whole_blocks(folder: Path) -> None:
    with tiny_engine(folder, partial_blocks=False) as engine, client_of(engine) as client:
        done = prewarm(client, messages=[{"role": "system", "content": SYSTEM}])
        found = cached(client, CHAT, messages=conversation(SYSTEM, "Hello!"))
        assert found == done["tokens"] // 16 * 16
        assert engine.counters()["computed_tokens"] < 2 * done["tokens"]


def test_it_stays_for_the_time_asked_for_with_its_last_block(client: TestClient) -> None:
    body = {"messages": [{"role": "system", "content": SYSTEM}]}
    done = prewarm(client, **body, cache_retention_s=60, name="helper", session_id="s")
    assert (done["retained"], done["refused"]) == (done["tokens"], None)
    (entry,) = client.get("/v1/cache/retained").json()["data"]
    assert (entry["id"], entry["name"], entry["session"]) == (done["retention_id"], "helper", "s")
    for seed in range(40):  # more than the memory holds
        ask(client, COMPLETIONS, prompt=[4 + seed] * 80)
    assert cached(client, CHAT, messages=conversation(SYSTEM, "Hello!")) == done["tokens"]
    assert client.delete(f"/v1/cache/retained/{done['retention_id']}").json() == {"released": 1}
    for seed in range(40):
        ask(client, COMPLETIONS, prompt=[54 + seed] * 80)
    assert cached(client, CHAT, messages=conversation(SYSTEM, "Hello!")) == 0


def test_it_is_for_those_with_the_same_salt(client: TestClient) -> None:
    done = prewarm(client, messages=[{"role": "system", "content": SYSTEM}], cache_salt="s")
    messages = conversation(SYSTEM, "Hello!")
    assert cached(client, CHAT, messages=messages) == 0
    assert cached(client, CHAT, messages=messages, cache_salt="s") == done["tokens"]


def test_a_body_as_a_chat_has_it_is_taken(client: TestClient) -> None:
    body = {"messages": [{"role": "system", "content": SYSTEM}], "tools": [TOOL]}
    done = prewarm(client, **body, temperature=0.5, max_tokens=100, stream=True, model="tiny")
    assert done["object"] == "cache.prewarm"
    assert done["tokens"] > 0


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, None),
        ({"messages": []}, None),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": "x", "messages": [{"role": "system", "content": "y"}]}, None),
        ({"prompt": "x", "cache_mode": "none"}, "cache_mode"),
        ({"prompt": "x", "cache_mode": "read-only"}, "cache_mode"),
        ({"prompt": "x", "model": "other"}, "model"),
        ({"prompt": "x", "continue_final_message": True}, "continue_final_message"),
        ({"prompt": [1, 10_000]}, "prompt"),
        ({"prompt": "x" * 4000}, "prompt"),
    ],
    ids=str,
)
def test_what_cannot_be_prewarmed_is_refused(
    client: TestClient, body: dict[str, Any], param: str | None
) -> None:
    response = client.post(PREWARM, json=body)
    assert response.status_code in (400, 404)
    assert response.json()["error"]["param"] == param


def test_without_a_cache_there_is_nothing_to_prewarm(folder: Path) -> None:
    with tiny_engine(folder, enabled=False) as engine, client_of(engine) as client:
        response = client.post(PREWARM, json={"prompt": SYSTEM})
        assert (response.status_code, response.json()["error"]["code"]) == (400, "nothing_stored")
