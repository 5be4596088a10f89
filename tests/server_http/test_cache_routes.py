"""Who may see and steer what of the cache: tenants their own, operators all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server import Engine
from server.http.cache_schemas import PublicList, PublicPrefixBody, RetainedList
from server.http.settings import HttpSettings
from tests.server_http.keys import ACME, BETA, OPERATOR, bearer, ring
from tests.server_http.real import CHAT, COMPLETIONS, client_of, conversation, tiny_engine

RETAINED, PUBLIC = "/v1/cache/retained", "/v1/cache/public"
SYSTEM = "You are a helpful assistant that answers in one word. "
LONG = "a prompt that is much longer than three blocks of sixteen tokens, of one tenant"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with tiny_engine(tmp_path / "tiny", 128) as engine:
        yield engine


@pytest.fixture
def client(engine: Engine, tmp_path: Path) -> Iterator[TestClient]:
    with client_of(engine, HttpSettings(keys=ring(tmp_path))) as client:
        yield client


def usage(client: TestClient, key: str, path: str = COMPLETIONS, **body: Any) -> Any:
    sent = {"max_tokens": 1, "temperature": 0, **body}
    response = client.post(path, json=sent, headers=bearer(key))
    assert response.status_code == 200, response.text
    return response.json()["usage"]


def cached(client: TestClient, key: str, path: str = COMPLETIONS, **body: Any) -> int:
    count: int = usage(client, key, path, **body)["prompt_tokens_details"]["cached_tokens"]
    return count


def listed(client: TestClient, key: str, path: str = RETAINED) -> list[Any]:
    response = client.get(path, headers=bearer(key))
    assert response.status_code == 200, response.text
    schema = RetainedList if path == RETAINED else PublicList
    schema.model_validate_json(response.content, strict=True)
    data: list[Any] = response.json()["data"]
    return data


def released(client: TestClient, key: str, path: str) -> int:
    response = client.delete(path, headers=bearer(key))
    count: int = response.json()["released"] if response.status_code == 200 else 0
    assert response.status_code in (200, 404)
    return count


def test_a_tenant_sees_and_lets_go_its_own_and_an_operator_all(client: TestClient) -> None:
    for key in (ACME, BETA):
        for salt in ({}, {"cache_salt": "s"}):
            usage(client, key, prompt=LONG, cache_retention_s=60, **salt)
    assert [(each["tenant"], each["salted"]) for each in listed(client, ACME)] == [
        ("acme", False),
        ("acme", True),
    ]
    assert {each["tenant"] for each in listed(client, BETA)} == {"beta"}
    assert len(listed(client, OPERATOR)) == 4
    theirs = listed(client, BETA)[0]["id"]
    assert released(client, ACME, f"{RETAINED}/{theirs}") == 0
    assert released(client, ACME, RETAINED) == 2
    assert released(client, BETA, f"{RETAINED}/{theirs}") == 1
    assert released(client, OPERATOR, RETAINED) == 1
    assert listed(client, OPERATOR) == []


def test_a_tenant_cannot_keep_more_than_its_share_and_is_told_so(client: TestClient) -> None:
    kept = [
        usage(client, ACME, prompt=[4 + seed] * 80, cache_retention_s=60)["cache_retention"]
        for seed in range(5)
    ]
    assert [each["refused"] for each in kept] == [None, None, None, "limit", "limit"]
    assert [each["retained_tokens"] for each in kept] == [80, 80, 80, 0, 0]  # of 256
    of_beta = usage(client, BETA, prompt=LONG, cache_retention_s=60)["cache_retention"]
    assert of_beta["refused"] is None


def test_an_unknown_prefix_is_a_404(client: TestClient) -> None:
    for path in (RETAINED, PUBLIC):
        response = client.delete(f"{path}/none", headers=bearer(OPERATOR))
        assert (response.status_code, response.json()["error"]["code"]) == (404, "unknown_prefix")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", PUBLIC),
        ("GET", PUBLIC),
        ("DELETE", f"{PUBLIC}/x"),
        ("POST", "/flush_cache"),
        ("POST", "/reset_prefix_cache"),
    ],
)
def test_what_is_for_operators_is_for_operators(client: TestClient, method: str, path: str) -> None:
    for key, status in ((ACME, 403), ("wrong", 401)):
        response = client.request(method, path, headers=bearer(key), json={"prompt": LONG})
        assert response.status_code == status


def mark(client: TestClient, **body: Any) -> Any:
    response = client.post(PUBLIC, json=body, headers=bearer(OPERATOR))
    assert response.status_code == 200, response.text
    PublicPrefixBody.model_validate_json(response.content, strict=True)
    return response.json()


def test_tenants_share_what_is_public_and_nothing_else(client: TestClient) -> None:
    messages = conversation(SYSTEM, "Hello! " * 10)
    assert cached(client, ACME, CHAT, messages=messages) == 0
    assert cached(client, BETA, CHAT, messages=messages) == 0
    shared = mark(client, messages=[{"role": "system", "content": SYSTEM}], name="system")
    assert shared["tokens"] % 16 == 0
    assert shared["tokens"] > 32
    assert cached(client, ACME, CHAT, messages=messages) == 0
    assert cached(client, BETA, CHAT, messages=messages) == shared["tokens"]
    assert cached(client, BETA, CHAT, messages=messages) > shared["tokens"] + 16
    assert listed(client, OPERATOR, PUBLIC) == [shared]
    assert released(client, OPERATOR, f"{PUBLIC}/{shared['id']}") == 1
    assert listed(client, OPERATOR, PUBLIC) == []
    client.post("/flush_cache", headers=bearer(OPERATOR))
    assert cached(client, ACME, CHAT, messages=messages) == 0
    assert cached(client, BETA, CHAT, messages=messages) == 0


@pytest.mark.parametrize("form", ["text", "tokens"])
def test_a_prefix_is_marked_by_text_or_tokens_once(
    client: TestClient, engine: Engine, form: str
) -> None:
    ids = list(engine.text.encode(LONG))
    shared = mark(client, prompt=LONG if form == "text" else ids)
    assert shared["tokens"] == len(ids) // 16 * 16
    assert mark(client, prompt=ids, name="again")["id"] == shared["id"]
    assert [each["name"] for each in listed(client, OPERATOR, PUBLIC)] == ["again"]
    cached(client, ACME, prompt=ids)
    assert cached(client, BETA, prompt=[*ids, 9]) == shared["tokens"]


def test_less_than_a_block_cannot_be_public(client: TestClient) -> None:
    response = client.post(PUBLIC, json={"prompt": "short"}, headers=bearer(OPERATOR))
    assert (response.status_code, response.json()["error"]["code"]) == (400, "prefix_too_short")


@pytest.mark.parametrize("path", ["/flush_cache", "/reset_prefix_cache"])
def test_the_cache_can_be_emptied_under_both_names(client: TestClient, path: str) -> None:
    cached(client, ACME, prompt=LONG)
    response = client.post(path, headers=bearer(OPERATOR))
    assert response.status_code == 200
    assert response.json()["freed_blocks"] >= 3
    assert cached(client, ACME, prompt=LONG) == 0


def test_the_model_and_the_server_say_what_can_be_cached(client: TestClient) -> None:
    (card,) = client.get("/v1/models", headers=bearer(ACME)).json()["data"]
    info = client.get("/server_info", headers=bearer(OPERATOR)).json()
    assert card["min_cacheable_tokens"] == info["cache"]["min_cacheable_tokens"] == 1
