"""Noise before a system prompt does not reach the model, and costs nobody their cached prefix."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.head_noise import HeadNoise, NoiseFilter
from server.http.noise import NOISE_HEADER, CleanHead
from server.http.settings import HttpSettings
from tests.server_http.real import CHAT, client_of, tiny_engine

PROMPT = "You are a helpful assistant. " * 3
ASKED = {"role": "user", "content": "Hello!"}


def noise(number: int) -> str:
    return f"x-anthropic-billing-header: cc_version=2.1; cch={number:05x};"


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def system(content: Any, role: str = "system") -> dict[str, Any]:
    return {"role": role, "content": content}


def cleaned(data: dict[str, Any]) -> int:
    """Strip a body; how many pieces were taken out."""
    head = CleanHead(NoiseFilter(HeadNoise()))
    head.strip(data)
    return head.pieces


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize(
    ("content", "left"),
    [
        (f"{noise(1)}\n{PROMPT}", PROMPT),
        ([text(noise(1)), text(PROMPT)], [text(PROMPT)]),
        ([text(noise(1)), text(noise(2)), text(PROMPT)], [text(PROMPT)]),
        ([text(f"{noise(1)}\n{PROMPT}"), text("more")], [text(PROMPT), text("more")]),
        ([text(PROMPT), text(noise(1))], [text(PROMPT), text(noise(1))]),
        (PROMPT, PROMPT),
    ],
    ids=["line", "part", "parts", "line in a part", "later part", "none"],
)
def test_it_is_taken_from_the_head_of_a_chats_system_prompt(
    role: str, content: Any, left: Any
) -> None:
    body = {"messages": [system(deepcopy(content), role), ASKED]}
    pieces = cleaned(body)
    assert body == {"messages": [system(left, role), ASKED]}
    assert (pieces > 0) == (content != left)


def test_a_message_of_nothing_else_goes_and_the_next_is_looked_at() -> None:
    for content in (noise(1), [text(noise(1))]):
        body = {"messages": [system(content), system(f"{noise(2)}\n{PROMPT}"), ASKED]}
        assert cleaned(body) == 2
        assert body == {"messages": [system(PROMPT), ASKED]}
    body = {"messages": [system(noise(1))]}
    assert cleaned(body) == 1
    assert body == {"messages": [system("")]}


def test_it_is_taken_from_a_system_prompt_beside_the_messages() -> None:
    body: dict[str, Any] = {"system": [text(noise(1)), text(PROMPT)], "messages": [ASKED]}
    assert cleaned(body) == 1
    assert body == {"system": [text(PROMPT)], "messages": [ASKED]}
    body = {"system": noise(1), "messages": [ASKED]}
    assert cleaned(body) == 1
    assert body == {"messages": [ASKED]}


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": noise(1)}]},
        {"messages": [{"role": "user", "content": [text(noise(1))]}, system(noise(2))]},
        {"messages": [system(PROMPT), system(noise(1)), ASKED]},
        {"messages": [system(None), ASKED]},
        {"messages": [system(5)]},
        {"messages": [system([5, text(noise(1))])]},
        {"messages": [system([{"type": "image", "text": noise(1)}])]},
        {"messages": [5]},
        {"messages": "x", "system": 5},
        {"prompt": noise(1)},
        {},
    ],
    ids=str,
)
def test_what_is_not_the_head_of_a_system_prompt_is_left_alone(body: dict[str, Any]) -> None:
    before = str(body)
    assert cleaned(body) == 0
    assert str(body) == before


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models") / "tiny"


@pytest.fixture
def client(folder: Path) -> Iterator[TestClient]:
    with tiny_engine(folder, 64) as engine, client_of(engine) as client:
        yield client


def ask(client: TestClient, *messages: dict[str, Any]) -> tuple[Any, str | None]:
    body = {"messages": [*messages, ASKED], "max_tokens": 1}
    response = client.post(CHAT, json=body)
    assert response.status_code == 200, response.text
    return response.json()["usage"], response.headers.get(NOISE_HEADER)


def test_requests_with_other_noise_share_their_prompt_and_can_see_why(client: TestClient) -> None:
    first, told = ask(client, system([text(noise(1)), text(PROMPT)]))
    assert told == "1"
    second, told = ask(client, system([text(noise(2)), text(PROMPT)]))
    assert told == "1"
    plain, told = ask(client, system(PROMPT))
    assert told is None
    tokens = plain["prompt_tokens"]
    assert first["prompt_tokens"] == second["prompt_tokens"] == tokens
    assert [u["prompt_tokens_details"]["cached_tokens"] for u in (second, plain)] == [
        tokens // 16 * 16
    ] * 2
    (counted,) = client.get("/server_info").json()["head_noise"]
    assert counted["pattern"].startswith("x-anthropic-billing-header")
    assert counted["stripped"] == 2


def test_a_users_words_reach_the_model(client: TestClient) -> None:
    said = {"role": "user", "content": noise(1)}
    usage, told = ask(client, system(PROMPT), said)
    assert told is None
    assert usage["prompt_tokens"] > ask(client, system(PROMPT))[0]["prompt_tokens"] + 20


def test_a_prewarmed_head_is_without_noise_too(client: TestClient) -> None:
    body = {"messages": [system([text(noise(1)), text(PROMPT)])]}
    response = client.post("/v1/cache/prewarm", json=body)
    assert response.headers[NOISE_HEADER] == "1"
    usage, _ = ask(client, system([text(noise(2)), text(PROMPT)]))
    assert usage["prompt_tokens_details"]["cached_tokens"] == response.json()["tokens"]


def test_an_operator_chooses_what_is_noise(folder: Path) -> None:
    settings = HttpSettings(head_noise=HeadNoise((r"Today is \S+\n",)))
    with tiny_engine(folder, 64) as engine, client_of(engine, settings) as client:
        _, told = ask(client, system(f"Today is Monday\n{PROMPT}"))
        again, _ = ask(client, system(f"Today is Tuesday\n{PROMPT}"))
        assert told == "1"
        assert again["prompt_tokens_details"]["cached_tokens"] > 64
        assert ask(client, system(f"{noise(1)}\n{PROMPT}"))[1] is None
