"""Bodies that no server should be sent: each is refused in its endpoint's own form, with the field,
the limit and what to do; and the next good request is served.

All generating endpoints, and those that only look at a prompt, over a real engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import BaseModel

from scheduler import Limits
from server.http.anthropic.request import CountRequest, MessagesRequest
from server.http.anthropic.schemas import MessagesError
from server.http.cache_routes import PublicRequest
from server.http.debug.explain_request import ExplainRequest
from server.http.openai.chat_request import ChatRequest
from server.http.openai.completions import CompletionRequest
from server.http.prewarm import PrewarmRequest
from server.http.schemas import ErrorBody
from server.http.settings import HttpSettings
from server.http.tokenize import DetokenizeRequest, TokenizeChatRequest
from tests.server_http.real import client_of, tiny_engine

SAID = "A text of more than sixteen tokens, surely."
SAYS = {"messages": [{"role": "user", "content": SAID}]}
MAX_BODY = 1 << 20

ENDPOINTS: dict[str, tuple[type[BaseModel], dict[str, Any]]] = {
    "/v1/completions": (CompletionRequest, {"prompt": SAID, "max_tokens": 2}),
    "/v1/chat/completions": (ChatRequest, {**SAYS, "max_tokens": 2}),
    "/v1/messages": (MessagesRequest, {**SAYS, "max_tokens": 2}),
    "/v1/messages/count_tokens": (CountRequest, SAYS),
    "/v1/cache/prewarm": (PrewarmRequest, {"prompt": SAID}),
    "/v1/cache/public": (PublicRequest, {"prompt": SAID}),
    "/debug/explain": (ExplainRequest, {"prompt": SAID}),
    "/tokenize": (TokenizeChatRequest, SAYS),
    "/detokenize": (DetokenizeRequest, {"tokens": [65]}),
}

# What no endpoint can read, and a word that its message has.
UNREADABLE: list[tuple[bytes, str]] = [
    (b"", "JSON"),
    (b"{", "JSON"),
    (b'{"a": 1}}', "JSON"),
    (b"{'a': 1}", "JSON"),
    (b'{"temperature": NaN}', "NaN"),
    (b'{"temperature": Infinity}', "Infinity"),
    (b'{"model": "\xff"}', "UTF-8"),
    (b'{"model": "\\ud800"}', "JSON"),
    (b'{"model": ' + b"[" * 10_000, "JSON"),
    (b"[]", "object"),
    (b"null", "object"),
    (b"7", "object"),
    (b'"prompt"', "object"),
]

# A field, a value that it cannot have, and words that its message has besides the field's name.
WRONG: list[tuple[str, Any, tuple[str, ...]]] = [
    ("temperature", -1, ("0",)),
    ("temperature", 2.5, ("2",)),
    ("temperature", "1", ("'1'",)),
    ("temperature", True, ("True",)),
    ("top_p", 0, ("above 0",)),
    ("top_p", 2, ("1",)),
    ("top_k", -2, ("no limit",)),
    ("top_k", 1.5, ("whole number",)),
    ("min_p", 1.5, ("1",)),
    ("repetition_penalty", 0, ("0.01",)),
    ("presence_penalty", 3, ("2",)),
    ("frequency_penalty", [], ("2",)),
    ("logit_bias", {"x": 1}, ("token id",)),
    ("max_tokens", -1, ("2147483647",)),
    ("max_tokens", 10**12, ("2147483647",)),
    ("max_tokens", "many", ("'many'",)),
    ("max_completion_tokens", 0, ("1",)),
    ("min_tokens", -1, ("0",)),
    ("n", 0, ("1", "128")),
    ("n", 10**12, ("128",)),
    ("best_of", 0, ("1",)),
    ("seed", 2**70, ("64 bits",)),
    ("stop", ["x"] * 1000, ("1000", "16")),
    ("stop", [""], ("1 to 1000",)),
    ("stop_sequences", ["x"] * 1000, ("1000",)),
    ("stop_sequences", "x", ("list",)),
    ("stop_token_ids", [0] * 1000, ("128",)),
    ("stop_token_ids", ["x"], ("'x'",)),
    ("logprobs", 10**6, ()),
    ("top_logprobs", 10**6, ("20",)),
    ("stream", "yes", ("'yes'",)),
    ("stream_options", [], ("include_usage",)),
    ("ignore_eos", 1, ("true",)),
    ("timeout_s", 0, ("more than 0",)),
    ("timeout_s", 10**9, ("86400",)),
    ("priority", 10**9, ("1000000",)),
    ("model", 5, ("5",)),
    ("prompt", "", ()),
    ("prompt", [], ()),
    ("prompt", [-1], ("0",)),
    ("prompt", [10**12], ()),
    ("prompt", {"text": "x"}, ()),
    ("prompt", [[]], ()),
    ("messages", "hi", ("list",)),
    ("messages", [7], ()),
    ("messages", [{"role": "ghost", "content": "x"}], ("role",)),
    ("messages", [{"role": "user"}], ("content",)),
    ("messages", [{"role": "user", "content": 5}], ("content",)),
    ("messages", [{"role": "user", "content": [{"type": "smell"}]}], ("smell",)),
    ("system", 5, ("string",)),
    ("tools", "look", ("list",)),
    ("tools", [{"type": "function"}], ()),
    ("tool_choice", "perhaps", ()),
    ("tool_choice", {"type": "tool"}, ()),
    ("response_format", {"type": "xml"}, ("json_schema",)),
    ("output_config", {"format": {"type": "xml"}}, ("json_schema",)),
    ("thinking", {"type": "hard"}, ("disabled",)),
    ("structured_outputs", {"regex": 5}, ("string",)),
    ("guided_regex", 5, ("string",)),
    ("guided_choice", ["x"] * 10_001, ("10000",)),
    ("cache_salt", "", ("1",)),
    ("cache_salt", "x" * 2000, ("1024",)),
    ("cache_mode", "never", ("read-only",)),
    ("cache_retention_s", 0, ("more than 0",)),
    ("cache_retention_s", 10**9, ("604800",)),
    ("prompt_cache_options", {"ttl": "soon"}, ("30m",)),
    ("session_id", 7, ("string",)),
    ("name", "", ("1",)),
    ("request_id", 7, ()),
    ("tokens", "x", ("list",)),
    ("tokens", [-1], ("0",)),
    ("tokens", [10**12], ("0",)),
    ("tokens", [511, 512], ("tokens[1]", "512")),
]

# These cannot be kept to; only an engine knows. Both endpoints that take them.
UNKEPT: list[tuple[str, Any, tuple[str, ...]]] = [
    ("guided_regex", "(((", ("guided_regex",)),
    ("guided_regex", "(?=look)", ("guided_regex",)),
    ("guided_json", {"type": "nonsense"}, ("guided_json",)),
    ("guided_json", {"not": {"type": "string"}}, ("not",)),
    ("guided_json", "{", ("guided_json", "JSON")),
    ("guided_grammar", "no grammar", ("guided_grammar",)),
    ("guided_choice", [], ("guided_choice",)),
    ("logit_bias", {"512": 1}, ("512", "511")),
    ("stop_token_ids", [-1], ("below 0",)),
    ("stop_token_ids", [512], ("512", "511")),
    ("min_tokens", 99, ("99", "max_tokens is 2")),
    ("n", 5, ("--max-running",)),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder: Path = tmp_path_factory.mktemp("model")
    settings = HttpSettings(max_body_bytes=MAX_BODY)
    with (
        tiny_engine(folder, 16, Limits(64, 4)) as engine,
        client_of(engine, settings) as client,
    ):
        yield client


def refusal(client: TestClient, path: str, content: Any) -> tuple[int, str, str | None]:
    """The status, the message and the field of an error, whose form is checked."""
    response = client.post(path, content=content)
    if path.startswith("/v1/messages"):
        told = MessagesError.model_validate_json(response.content, strict=True).error
        assert told.type
        details = response.json()["error"].get("details", {})
        return response.status_code, told.message, details.get("param")
    error = ErrorBody.model_validate_json(response.content, strict=True).error
    assert error.type == "invalid_request_error"
    assert error.code
    return response.status_code, error.message, error.param


def assert_still_serving(client: TestClient, path: str) -> None:
    _, good = ENDPOINTS[path]
    response = client.post(path, json=good)
    assert response.status_code == 200, response.text


def cases_of(path: str) -> list[tuple[str, Any, tuple[str, ...]]]:
    fields = ENDPOINTS[path][0].model_fields
    return [(name, value, words) for name, value, words in WRONG if name in fields]


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(("body", "word"), UNREADABLE)
def test_what_cannot_be_read_is_a_400_that_says_what_to_send(
    client: TestClient, path: str, body: bytes, word: str
) -> None:
    status, message, field = refusal(client, path, body)
    assert (status, field) == (400, None)
    assert word in message
    assert "object" in message, "what to send"
    assert_still_serving(client, path)


@pytest.mark.parametrize(
    ("path", "name", "value", "words"),
    [(path, *case) for path in ENDPOINTS for case in cases_of(path)],
)
def test_a_wrong_value_is_refused_by_name_with_its_limit(
    client: TestClient, path: str, name: str, value: Any, words: tuple[str, ...]
) -> None:
    _, good = ENDPOINTS[path]
    body = {**good, name: value}
    if path in ("/v1/cache/prewarm", "/v1/cache/public", "/debug/explain") and name == "messages":
        del body["prompt"]
    status, message, field = refusal(client, path, json.dumps(body))
    assert status == 400, message
    assert field is not None
    assert field.startswith(name), (field, message)
    missing = [word for word in words if word not in message]
    assert not missing, message
    assert len(message) < 700
    assert_still_serving(client, path)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize(("name", "value", "words"), UNKEPT)
def test_what_the_engine_cannot_do_is_refused_before_anything_runs(
    client: TestClient, path: str, name: str, value: Any, words: tuple[str, ...]
) -> None:
    _, good = ENDPOINTS[path]
    status, message, field = refusal(client, path, json.dumps({**good, name: value}))
    assert (status, field) == (400, name)
    assert [word for word in words if word not in message] == [], message
    assert_still_serving(client, path)


@pytest.mark.parametrize("path", ENDPOINTS)
def test_another_models_name_is_a_404(client: TestClient, path: str) -> None:
    _, good = ENDPOINTS[path]
    status, message, field = refusal(client, path, json.dumps({**good, "model": "gpt-9"}))
    assert (status, field) == (404, "model")
    assert "'tiny'" in message
    assert_still_serving(client, path)


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_body_of_50_mb_is_a_413_that_names_the_limit(
    client: TestClient, path: str, announced: bool
) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(50):
            yield b" " * 1_000_000

    body = b" " * 50_000_000 if announced else pieces()
    status, message, _ = refusal(client, path, body)
    assert status == 413
    assert str(MAX_BODY) in message
    assert "--max-body-size" in message
    assert_still_serving(client, path)


@pytest.mark.parametrize("path", list(ENDPOINTS)[:5])
def test_a_prompt_beyond_the_kv_memory_is_refused_at_once_and_the_next_is_served(
    client: TestClient, path: str
) -> None:
    """The model's context would hold it: the memory has 16 blocks of 16 tokens."""
    _, good = ENDPOINTS[path]
    said = "z" * 300
    other = (
        {"prompt": said} if "prompt" in good else {"messages": [{"role": "user", "content": said}]}
    )
    if path.endswith("count_tokens"):
        assert client.post(path, json={**good, **other}).status_code == 200, "it only counts"
        return
    status, message, field = refusal(client, path, json.dumps({**good, **other}))
    assert (status, field) == (400, "messages" if "messages" in good else "prompt")
    assert "256" in message
    assert "--kv-memory" in message
    assert_still_serving(client, path)


def test_an_answer_that_would_outgrow_the_kv_memory_ends_as_long_as_it_gets(
    client: TestClient,
) -> None:
    body = {"prompt": "z" * 200, "max_tokens": 100, "ignore_eos": True, "temperature": 0}
    answer = client.post("/v1/completions", json=body).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 256 - 200 + 1
