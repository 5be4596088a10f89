"""/tokenize and /detokenize: the tokens that the model is given, and their text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import server.tokens
from server import Engine
from server.http.settings import HttpSettings
from server.http.tokenize import Detokenized, Tokenized
from server.text import TextCodec
from server.tokens import MOST_TOKENS
from tests.server.forcing import force
from tests.server_http.real import CHAT, COMPLETIONS, ask, client_of, conversation, tiny_engine
from tests.tiny import IM_END, IM_START, make_tiny_folder

TEXT = " the cat, \u732b\U0001f408"
CONTEXT = 1024


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with tiny_engine(tmp_path_factory.mktemp("models") / "tiny") as engine:
        yield engine


@pytest.fixture(scope="module")
def client(engine: Engine) -> Iterator[TestClient]:
    with client_of(engine) as client:
        yield client


def tokenized(client: TestClient, **body: Any) -> Tokenized:
    response = client.post("/tokenize", json=body)
    assert response.status_code == 200, response.text
    found = Tokenized.model_validate_json(response.text, strict=True)
    assert found.count == len(found.tokens)
    assert found.max_model_len == CONTEXT
    return found


def text_of(client: TestClient, tokens: list[int]) -> str:
    response = client.post("/detokenize", json={"tokens": tokens})
    assert response.status_code == 200, response.text
    return Detokenized.model_validate_json(response.text, strict=True).prompt


def refused(client: TestClient, path: str, body: Any) -> dict[str, Any]:
    response = client.post(path, json=body)
    error: dict[str, Any] = response.json()["error"]
    assert response.status_code == 400, error
    assert error["type"] == "invalid_request_error"
    return error


def test_a_text_has_the_tokens_that_a_completion_gets(client: TestClient, engine: Engine) -> None:
    found = tokenized(client, prompt=TEXT)
    assert found.tokens == engine.text.encode(TEXT)
    assert found.tokens[:2] == [263, 32], "' the' and a blank of the tokenizer's merges"
    assert found.token_strs is None
    answer = ask(client, COMPLETIONS, prompt=TEXT)
    assert answer["usage"]["prompt_tokens"] == found.count
    assert tokenized(client, prompt="").tokens == []
    assert tokenized(client, prompt="<|im_start|>a").tokens[0] == IM_START


def test_token_strs_are_the_vocabularys(client: TestClient) -> None:
    found = tokenized(client, prompt=" the \u00e9<|im_end|>", return_token_strs=True)
    assert found.token_strs == ["\u0120the", "\u0120", "\u00c3", "\u00a9", "<|im_end|>"]
    assert tokenized(client, prompt="a", return_token_strs=False).token_strs is None


def test_a_conversation_has_the_tokens_that_a_chat_gets(client: TestClient, engine: Engine) -> None:
    messages = conversation("be brief", "hello", "good day", "and?")
    found = tokenized(client, messages=messages)
    assert found.tokens == engine.text.render_chat(messages)
    assert ask(client, CHAT, messages=messages)["usage"]["prompt_tokens"] == found.count
    open_end = tokenized(client, messages=messages, add_generation_prompt=False)
    assert found.tokens[: open_end.count] == open_end.tokens
    assert text_of(client, found.tokens[open_end.count :]) == "<|im_start|>assistant\n"
    going_on = tokenized(client, messages=messages[:-1], continue_final_message=True)
    assert text_of(client, going_on.tokens).endswith("<|im_start|>assistant\ngood day")


def test_an_answer_that_comes_back_has_the_tokens_that_it_had_in_its_own_namespace(
    client: TestClient, engine: Engine
) -> None:
    """Whatever text they make: what the next turn is charged for is what is told."""
    said: list[dict[str, Any]] = [{"role": "user", "content": "go on"}]
    words = [*engine.text.encode("t"), *engine.text.encode("h")]  # in place of the token "th"
    with pytest.MonkeyPatch.context() as patch:
        force(engine, patch, tokenized(client, messages=said).count, [*words, IM_END])
        answer = ask(client, CHAT, messages=said, max_tokens=9, cache_salt="s")
    assert answer["choices"][0]["message"]["content"] == "th"
    said += [{"role": "assistant", "content": "th"}, {"role": "user", "content": "more"}]
    found = tokenized(client, messages=said, cache_salt="s")
    fresh = tokenized(client, messages=said)
    assert fresh.tokens == engine.text.render_chat(said)
    assert found.count == fresh.count + 1
    answer = ask(client, CHAT, messages=said, cache_salt="s")
    assert answer["usage"]["prompt_tokens"] == found.count


def test_tokens_that_the_tokenizer_adds_are_there_on_request_and_never_twice(
    client: TestClient, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_tiny_folder(tmp_path / "tiny", tokenizer=True)
    definition = json.loads((folder / "tokenizer.json").read_text())
    added = {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    mark = {"id": "<|im_start|>", "ids": [IM_START], "tokens": ["<|im_start|>"]}
    definition["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [added, text],
        "pair": [added, text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|im_start|>": mark},
    }
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    monkeypatch.setattr(engine, "text", TextCodec(folder))
    plain = tokenized(client, prompt="ab", add_special_tokens=False).tokens
    assert tokenized(client, prompt="ab").tokens == [IM_START, *plain]
    assert tokenized(client, prompt="ab", add_special_tokens=True).tokens == [IM_START, *plain]
    assert tokenized(client, prompt="<|im_start|>ab").tokens == [IM_START, *plain]
    assert tokenized(client, prompt="").tokens == [IM_START]
    messages = conversation("s", "u")
    for added_too in (None, False, True):  # the template begins with the same token
        found = tokenized(client, messages=messages, add_special_tokens=added_too)
        assert found.tokens == engine.text.render_chat(messages)


def test_whatever_is_tokenized_comes_back(client: TestClient) -> None:
    for text in (TEXT, "", "<|im_start|>user\nhi<|im_end|>\n", "a\u0000b\r\n\t", "\u2028"):
        assert text_of(client, tokenized(client, prompt=text).tokens) == text
    assert text_of(client, [IM_START, IM_END]) == "<|im_start|><|im_end|>"


def test_a_chats_whole_body_is_taken_and_strange_fields_are_named(client: TestClient) -> None:
    messages = conversation("s", "u")
    body = {"messages": messages, "max_tokens": 5, "temperature": 0.5, "stream": True, "odd": 1}
    response = client.post("/tokenize", json=body)
    assert response.json()["count"] == tokenized(client, messages=messages).count
    assert response.headers["x-ignored-fields"] == "odd"
    assert response.headers["x-request-id"].startswith("tok-")
    response = client.post("/detokenize", json={"tokens": [], "odd": 1})
    assert response.headers["x-ignored-fields"] == "odd"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": conversation("a")}, "prompt"),
        ("/tokenize", {"prompt": ["a"]}, "prompt"),
        ("/tokenize", {"prompt": [1, 2]}, "prompt"),
        ("/tokenize", {"prompt": None}, "prompt"),
        ("/tokenize", {"prompt": "a", "add_special_tokens": "yes"}, "add_special_tokens"),
        ("/tokenize", {"prompt": "a", "return_token_strs": 1}, "return_token_strs"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"messages": [{"role": "user"}]}, "messages[0]"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
        ("/detokenize", {"tokens": [1, -1]}, "tokens"),
        ("/detokenize", {"tokens": [1, 2.0]}, "tokens"),
        ("/detokenize", {"tokens": [True]}, "tokens"),
        ("/detokenize", {"tokens": [10**9]}, "tokens[0]"),
        ("/detokenize", {"tokens": [10**12]}, "tokens"),
        ("/detokenize", {"tokens": [1, 512]}, "tokens[1]"),
        ("/detokenize", {"tokens": [1] * (MOST_TOKENS + 1)}, "tokens"),
    ],
)
def test_what_is_wrong_is_refused_by_name(
    client: TestClient, path: str, body: Any, param: str
) -> None:
    error = refused(client, path, body)
    assert error["param"] == param
    assert text_of(client, [263]) == " the"


def test_a_text_that_cannot_fit_is_refused_before_it_is_tokenized(
    client: TestClient, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_tiny_folder(tmp_path / "tiny", tokenizer=True)
    monkeypatch.setattr(engine, "text", TextCodec(folder, CONTEXT))
    error = refused(client, "/tokenize", {"prompt": "a" * 100_000})
    assert error["code"] == "context_length_exceeded"
    assert "100000 characters" in error["message"]
    assert "1024 tokens" in error["message"]
    assert tokenized(client, prompt="ab " * 2000).count > CONTEXT, "a little longer is counted"
    # As many characters as may be, and each is several tokens.
    monkeypatch.setattr(server.tokens, "MOST_TOKENS", 20_000)
    monkeypatch.setattr(engine, "text", TextCodec(folder, CONTEXT))
    error = refused(client, "/tokenize", {"prompt": "\U0001f408" * 10_000})
    assert error["code"] == "context_length_exceeded"
    assert "40000 tokens" in error["message"]


def test_another_model_is_a_404_and_an_alias_is_not(engine: Engine) -> None:
    with client_of(engine, HttpSettings(model_aliases=("gpt-*",))) as client:
        for path, body in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [70]})):
            assert client.post(path, json={**body, "model": "gpt-4"}).status_code == 200
            response = client.post(path, json={**body, "model": "other"})
            assert response.status_code == 404
            assert response.json()["error"]["code"] == "model_not_found"


def test_nothing_is_generated_or_stored(client: TestClient, engine: Engine) -> None:
    engine.flush_cache()
    before = engine.counters()
    tokenized(client, prompt=TEXT * 20)
    tokenized(client, messages=conversation(TEXT * 20, "a"))
    assert engine.counters() == before
    assert engine.state()["blocks_cached"] == 0
