"""Texts as clients get them, from a real engine that is made to say them: streamed as whole, never
a broken character, cut at stop strings wherever tokens end."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server import Engine
from tests.server.forcing import force
from tests.server_http.real import CHAT, COMPLETIONS, client_of, tiny_engine
from tests.tiny import IM_END

MESSAGES = "/v1/messages"
SAID = "alpha beta gamma delta"
WIDE = "d\u00e9j\u00e0 \u732b\U0001f408\u200d\U0001f408 \u0938\u094d\u0924\u0947"
STOPS: list[tuple[list[str], str, str | None]] = [
    (["beta gamma"], "alpha ", "beta gamma"),
    (["ga"], "alpha beta ", "ga"),
    (["zzz"], SAID, None),
    (["delta!"], SAID, None),
    (["\n"], SAID, None),
    (["zzz", "mma d", "elta"], "alpha beta ga", "mma d"),
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with tiny_engine(tmp_path_factory.mktemp("models") / "tiny") as engine:
        yield engine


@pytest.fixture(scope="module")
def client(engine: Engine) -> Iterator[TestClient]:
    with client_of(engine) as client:
        yield client


def body_of(path: str, **fields: Any) -> dict[str, Any]:
    """A request for an answer of at most 60 tokens."""
    said = {"prompt": "say it"} if path == COMPLETIONS else {"messages": [USER]}
    return {"model": "tiny", "max_tokens": 60, "temperature": 0, **said, **fields}


USER = {"role": "user", "content": "say it"}


def prompt_tokens(client: TestClient, path: str) -> int:
    asked = {"prompt": "say it"} if path == COMPLETIONS else {"messages": [USER]}
    count: int = client.post("/tokenize", json=asked).json()["count"]
    return count


def whole(client: TestClient, path: str, **fields: Any) -> tuple[str, str]:
    """The text, and why it ended."""
    response = client.post(path, json=body_of(path, **fields))
    assert response.status_code == 200, response.text
    answer = response.json()
    if path == MESSAGES:
        return "".join(part["text"] for part in answer["content"]), answer["stop_reason"]
    (choice,) = answer["choices"]
    text = choice["text"] if path == COMPLETIONS else choice["message"]["content"]
    return text or "", choice["finish_reason"]


def pieces(client: TestClient, path: str, **fields: Any) -> tuple[list[str], str]:
    """The texts of a stream's chunks, and why it ended."""
    texts, reason = [], ""
    response = client.post(path, json=body_of(path, stream=True, **fields))
    assert response.status_code == 200, response.text
    response.content.decode("ascii")
    for line in response.text.splitlines():
        data = line.removeprefix("data: ")
        if data == line or data == "[DONE]":
            continue
        event = json.loads(data)
        if path == MESSAGES:
            delta = event.get("delta", {})
            texts.append(delta.get("text", ""))
            reason = delta.get("stop_reason") or reason
        for choice in event.get("choices", ()):
            texts.append(choice["text"] if path == COMPLETIONS else choice["delta"].get("content"))
            reason = choice["finish_reason"] or reason
    return [text for text in texts if text], reason


def stop_field(path: str, stops: list[str]) -> dict[str, Any]:
    return {"stop_sequences" if path == MESSAGES else "stop": stops}


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT, MESSAGES])
@pytest.mark.parametrize(("stops", "text", "found"), STOPS)
def test_a_stop_string_cuts_the_text_wherever_tokens_end(
    client: TestClient,
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    stops: list[str],
    text: str,
    found: str | None,
) -> None:
    if path == MESSAGES and stops == ["\n"]:
        stops = ["\nx"]  # Anthropic's API takes none of white space alone
    count = prompt_tokens(client, path)
    force(engine, monkeypatch, count, [*engine.text.encode(SAID), IM_END])
    said, reason = whole(client, path, **stop_field(path, stops))
    parts, streamed_reason = pieces(client, path, **stop_field(path, stops))
    assert said == "".join(parts) == text
    ended = {MESSAGES: "stop_sequence"}.get(path, "stop") if found else None
    assert reason == streamed_reason == (ended or {MESSAGES: "end_turn"}.get(path, "stop"))


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT, MESSAGES])
def test_no_chunk_has_a_part_of_a_character(
    client: TestClient, engine: Engine, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    tokens = engine.text.encode(WIDE)
    assert len(tokens) > len(WIDE) + 12
    force(engine, monkeypatch, prompt_tokens(client, path), [*tokens, IM_END])
    parts, reason = pieces(client, path)
    assert "".join(parts) == whole(client, path)[0] == WIDE
    assert reason in ("stop", "end_turn")
    assert len(parts) > 5
    assert all("\ufffd" not in part for part in parts)


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT, MESSAGES])
def test_a_character_that_is_cut_off_shows_once_as_replaced(
    client: TestClient, engine: Engine, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    tokens = engine.text.encode("ab\U0001f408")
    assert len(tokens) == 6
    force(engine, monkeypatch, prompt_tokens(client, path), tokens)
    parts, reason = pieces(client, path, max_tokens=5)
    assert "".join(parts) == whole(client, path, max_tokens=5)[0]
    assert "".join(parts).startswith("ab\ufffd")
    assert reason in ("length", "max_tokens")


@pytest.mark.parametrize("seed", range(12))
def test_whatever_tokens_come_a_stream_joins_to_the_whole(
    client: TestClient, engine: Engine, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Bytes of no characters, special tokens and unfinished ones among them."""
    draw = random.Random(seed)
    answer = [draw.randrange(512) for _ in range(60)]
    answer[10:20] = engine.text.encode("\u732b\U0001f408\u00e9")
    force(engine, monkeypatch, prompt_tokens(client, COMPLETIONS), answer)
    shown = {"skip_special_tokens": bool(seed % 2), "ignore_eos": True}
    text, reason = whole(client, COMPLETIONS, **shown)
    parts, streamed_reason = pieces(client, COMPLETIONS, **shown)
    assert ("".join(parts), streamed_reason) == (text, reason) == (text, "length")
    for _ in range(4):  # stops that are somewhere in it, and do not begin inside a character
        start = draw.randrange(len(text) - 3)
        stop = text[start : start + draw.randrange(1, 4)]
        expected = text[: text.index(stop)]
        assert whole(client, COMPLETIONS, stop=stop, **shown) == (expected, "stop")
        parts, reason = pieces(client, COMPLETIONS, stop=stop, **shown)
        assert ("".join(parts), reason) == (expected, "stop")


@pytest.mark.parametrize(("length", "fits"), [(1020, 4), (1021, 3), (1022, 2), (1023, 1)])
def test_an_answer_reaches_exactly_to_the_end_of_the_context(
    tmp_path: Path, length: int, fits: int
) -> None:
    with tiny_engine(tmp_path / "tiny", 80) as engine, client_of(engine) as client:
        assert engine.info.context_length == 1024
        body = {"prompt": [65] * length, "max_tokens": 4, "temperature": 0, "ignore_eos": True}
        answer = client.post(COMPLETIONS, json=body).json()
        assert answer["usage"]["completion_tokens"] == fits
        assert answer["choices"][0]["finish_reason"] == "length"
        too_long = client.post(COMPLETIONS, json={"prompt": [65] * 1024, "max_tokens": 1})
        assert too_long.status_code == 400
        assert too_long.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("prompt", ["", [], [""], [[]]])
@pytest.mark.parametrize(
    "fields", [{}, {"max_tokens": 0, "echo": True}, {"max_tokens": 0, "echo": True, "logprobs": 1}]
)
def test_an_empty_prompt_is_refused_whatever_is_asked_of_it(
    client: TestClient, prompt: Any, fields: dict[str, Any]
) -> None:
    response = client.post(COMPLETIONS, json={"prompt": prompt, **fields})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "prompt"
    assert client.post(COMPLETIONS, json=body_of(COMPLETIONS)).status_code == 200


def test_an_echo_without_an_answer_is_the_prompt(client: TestClient) -> None:
    prompts: list[tuple[Any, list[str]]] = [
        ("a", ["a"]),
        ([65, 66], ["AB"]),
        (["a", "b"], ["a", "b"]),
        ([[65], [66, 67]], ["A", "BC"]),
    ]
    for prompt, texts in prompts:
        body = {"prompt": prompt, "max_tokens": 0, "echo": True}
        answer = client.post(COMPLETIONS, json=body).json()
        assert [choice["text"] for choice in answer["choices"]] == texts
        assert answer["usage"]["completion_tokens"] == 0
        assert {choice["finish_reason"] for choice in answer["choices"]} == {"length"}
