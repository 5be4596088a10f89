"""What a body says about the cache, and what the engine makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server import Engine
from tests.server_http.real import (
    CHAT,
    COMPLETIONS,
    ask,
    cached,
    client_of,
    conversation,
    tiny_engine,
)

TEXT = "a prompt that is much longer than three blocks of sixteen tokens"
MESSAGES = conversation("You are a helpful assistant that answers in one word.", "Hello!")
BODIES: dict[str, dict[str, Any]] = {COMPLETIONS: {"prompt": TEXT}, CHAT: {"messages": MESSAGES}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models") / "tiny"


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    with tiny_engine(folder, 256) as engine:
        yield engine


@pytest.fixture
def client(engine: Engine) -> Iterator[TestClient]:
    with client_of(engine) as client:
        client.post("/flush_cache")
        yield client


def refused(client: TestClient, path: str, **body: Any) -> dict[str, Any]:
    response = client.post(path, json={**BODIES[path], **body})
    assert response.status_code == 400, response.text
    error: dict[str, Any] = response.json()["error"]
    return error


def retained(client: TestClient) -> list[Any]:
    data: list[Any] = client.get("/v1/cache/retained").json()["data"]
    return data


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_only_requests_with_the_same_salt_share(client: TestClient, path: str) -> None:
    body = BODIES[path]
    for first, second in (
        ({"cache_salt": "one"}, {"cache_salt": "two"}),
        ({"cache_salt": "one"}, {}),
        ({}, {"cache_salt": "one"}),
        ({"cache_salt": "one"}, {"cache_salt": "One"}),
    ):
        client.post("/flush_cache")
        assert cached(client, path, **body, **first) == 0
        assert cached(client, path, **body, **second) == 0
        assert cached(client, path, **body, **first) > 32
        assert cached(client, path, **body, **second) > 32


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize(
    "fields",
    [
        {"cache_salt": ""},
        {"cache_salt": 7},
        {"cache_salt": "x" * 1025},
        {"cache_mode": "bypass"},
        {"cache_mode": True},
        {"cache_retention_s": 0},
        {"cache_retention_s": "5m"},
        {"cache_retention_s": 604_801},
        {"prompt_cache_options": {"mode": "never"}},
        {"prompt_cache_options": {"ttl": "0s"}},
        {"prompt_cache_options": {"ttl": "8d"}},
        {"prompt_cache_options": {"ttl": "30"}},
        {"prompt_cache_options": "30m"},
        {"prompt_cache_retention": "1h"},
        {"session_id": 5},
        {"rid": 5},
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_by_name(
    client: TestClient, path: str, fields: dict[str, Any]
) -> None:
    error = refused(client, path, **fields)
    (name,) = fields
    assert error["param"].startswith(name)
    assert name in error["message"]


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_modes_read_and_store_as_they_say(client: TestClient, engine: Engine, path: str) -> None:
    body = BODIES[path]

    def nodes() -> int:
        return len(client.get("/debug/tree").json()["nodes"])

    empty = nodes()
    for mode in ("none", "read-only"):
        assert cached(client, path, **body, cache_mode=mode) == 0
        assert nodes() == empty
    assert cached(client, path, **body, cache_mode="default") == 0
    stored = nodes()
    assert cached(client, path, **body, cache_mode="none") == 0
    usage = ask(client, path, **body, cache_mode="none")["usage"]
    assert usage["prompt_tokens_details"]["match_end"]["reason"] == "bypassed"
    assert cached(client, path, **body, cache_mode="read-only") > 32
    assert nodes() == stored


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"cache_retention_s": 90}, 90),
        ({"prompt_cache_options": {"ttl": "2m"}}, 120),
        ({"prompt_cache_options": {"mode": "implicit", "ttl": "1h"}}, 3600),
        ({"prompt_cache_retention": "24h"}, 86_400),
        ({"prompt_cache_retention": "in_memory"}, None),
        ({"prompt_cache_options": {"mode": "explicit", "ttl": "1h"}}, None),
        ({"prompt_cache_options": {}}, None),
        ({}, None),
    ],
    ids=str,
)
def test_the_whole_prompt_is_kept_for_as_long_as_a_field_says(
    client: TestClient, path: str, fields: dict[str, Any], seconds: int | None
) -> None:
    usage = ask(client, path, **BODIES[path], **fields)["usage"]
    kept = retained(client)
    if seconds is None:
        assert "cache_retention" not in usage
        assert kept == []
        return
    told = usage["cache_retention"]
    assert told["retained_tokens"] == usage["prompt_tokens"] // 16 * 16
    assert told["refused"] is None
    (entry,) = kept
    assert (entry["id"], entry["tokens"]) == (told["id"], told["retained_tokens"])
    assert seconds - 20 < entry["seconds_left"] <= seconds
    assert (entry["tenant"], entry["salted"], entry["session"]) == (None, False, None)


def parts(*texts: str, marks: dict[int, Any]) -> list[dict[str, Any]]:
    """Text parts, some of which are marked."""
    return [
        {"type": "text", "text": text}
        | ({"prompt_cache_breakpoint": marks[place]} if place in marks else {})
        for place, text in enumerate(texts)
    ]


LONG = "This sentence has some more words than a block has tokens. "


def marked(**fields: Any) -> dict[str, Any]:
    mark = {"mode": "explicit"}
    system = parts(LONG, LONG, marks={0: {**mark, "ttl": "12h"}})
    asked = parts(LONG, LONG, LONG, marks={0: mark, 1: {**mark, "ttl": "5m"}})
    messages = [{"role": "system", "content": system}, {"role": "user", "content": asked}]
    return {"messages": messages, **fields}


def tokens_of(engine: Engine, text: str) -> int:
    return len(engine.text.encode(text)) // 16 * 16


def test_marked_prefixes_are_kept_and_in_explicit_mode_only_these(
    client: TestClient, engine: Engine
) -> None:
    usage = ask(client, CHAT, **marked(prompt_cache_options={"mode": "explicit"}))["usage"]
    system = "<|im_start|>system\n" + LONG
    asked = system + LONG + "<|im_end|>\n<|im_start|>user\n" + LONG
    expected = [tokens_of(engine, text) for text in (system, asked, asked + LONG)]
    kept = retained(client)
    assert [each["tokens"] for each in kept] == expected
    left = [each["seconds_left"] for each in kept]
    for seconds, about in zip(left, (43_200, 1800, 300), strict=True):
        assert about - 20 < seconds <= about
    assert usage["cache_retention"]["retained_tokens"] == expected[-1]
    assert usage["cache_retention"]["id"] == kept[-1]["id"]


def test_of_the_marks_the_last_four_count_and_the_whole_prompt_is_one(
    client: TestClient, engine: Engine
) -> None:
    mark = {"mode": "explicit"}
    six = parts(*[LONG] * 6, marks=dict.fromkeys(range(6), mark))
    body = {"messages": [{"role": "user", "content": six}]}
    for fields, kept in (({}, 4), ({"cache_retention_s": 60}, 4)):
        client.request("DELETE", "/v1/cache/retained")
        ask(client, CHAT, **body, **fields)
        assert len(retained(client)) == kept
    lengths = [each["tokens"] for each in retained(client)]
    start = "<|im_start|>user\n"
    assert lengths[:3] == [tokens_of(engine, start + LONG * count) for count in (4, 5, 6)]


def test_a_mark_that_is_wrong_says_where_it_is(client: TestClient) -> None:
    for mark in ({"ttl": "1y"}, {"mode": "implicit"}, "here", 5):
        messages = [{"role": "user", "content": parts("a", "b", marks={1: mark})}]
        error = refused(client, CHAT, messages=messages)
        assert "messages[0].content[1].prompt_cache_breakpoint" in error["message"]


@pytest.mark.parametrize(
    "options", [{"index": "hash"}, {"enabled": False}], ids=["hash", "no cache"]
)
def test_where_nothing_can_be_kept_the_fields_are_named_as_ignored(
    folder: Path, options: dict[str, Any]
) -> None:
    fields = {
        "cache_retention_s": 60,
        "prompt_cache_retention": "24h",
        "prompt_cache_options": {"ttl": "5m"},
        "prompt_cache_key": "k",
        "cache_mode": "read-only",
        "rid": "mine",
    }
    with tiny_engine(folder, **options) as engine, client_of(engine) as client:
        response = client.post(CHAT, json={**marked(), **fields, "max_tokens": 1})
        assert response.status_code == 200
        named = set(response.headers["X-Ignored-Fields"].split(", "))
        assert named == {
            "cache_retention_s",
            "prompt_cache_retention",
            "prompt_cache_options",
            "prompt_cache_breakpoint",
        }
        assert "cache_retention" not in response.json()["usage"]
        listed = client.get("/v1/cache/retained")
        assert (listed.status_code, listed.json()["error"]["code"]) == (404, "no_tree")


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_no_cache_field_is_called_unknown(client: TestClient, path: str) -> None:
    fields = {
        "cache_salt": "s",
        "cache_mode": "default",
        "cache_retention_s": 5,
        "prompt_cache_key": "",
        "prompt_cache_options": {"mode": "implicit", "ttl": "30m"},
        "prompt_cache_retention": "in-memory",
        "session_id": "x",
        "rid": ["a", "b"],
    }
    response = client.post(path, json={**BODIES[path], **fields, "max_tokens": 1})
    assert response.status_code == 200, response.text
    assert "X-Ignored-Fields" not in response.headers


@pytest.mark.parametrize(
    ("fields", "headers", "session"),
    [
        ({"session_id": "b", "prompt_cache_key": "k"}, {"X-Session-ID": "h"}, "b"),
        ({"prompt_cache_key": "k"}, {"X-Session-ID": "h"}, "k"),
        ({"session_id": "", "prompt_cache_key": ""}, {"X-Session-ID": "h1"}, "h1"),
        ({}, {"x-claude-code-session-id": "h2"}, "h2"),
        ({}, {"session-id": "h3"}, "h3"),
        ({}, {"X-Session-Affinity": "h4"}, "h4"),
        ({}, {"X-Session-ID": "h5", "X-Session-Affinity": "no"}, "h5"),
        ({}, {}, None),
    ],
    ids=str,
)
def test_a_session_is_named_in_the_body_or_a_header(
    client: TestClient,
    engine: Engine,
    fields: dict[str, str],
    headers: dict[str, str],
    session: str | None,
) -> None:
    def seen() -> dict[str, int]:
        return {each.name: each.requests for each in engine.cache_control.sessions(None)}

    before = seen()
    body = {"prompt": TEXT, "max_tokens": 1, "cache_retention_s": 60, **fields}
    assert client.post(COMPLETIONS, json=body, headers=headers).status_code == 200
    new = {name: count for name, count in seen().items() if before.get(name) != count}
    assert new == ({} if session is None else {session: 1})
    assert retained(client)[0]["session"] == session


def test_a_miss_says_why_and_what_was_lost(client: TestClient) -> None:
    body = BODIES[COMPLETIONS]
    cold = ask(client, COMPLETIONS, **body)["usage"]["prompt_tokens_details"]
    assert cold["cached_tokens"] == 0
    client.post("/flush_cache")
    lost = ask(client, COMPLETIONS, **body)["usage"]["prompt_tokens_details"]["match_end"]
    assert lost.pop("lost_tokens") > 32
    assert lost == {"reason": "evicted", "position": 0, "cause": "flush", "branch_tokens": 0}
    other = {"prompt": TEXT[:20] + "!" * 40}
    gone = ask(client, COMPLETIONS, **other)["usage"]["prompt_tokens_details"]
    assert gone["match_end"]["reason"] == "diverged"
    assert gone["match_end"]["position"] == gone["cached_tokens"] > 0
    assert gone["match_end"]["branch_tokens"] >= 32
