"""What cannot be is told in Anthropic's form, and raised by its client as what it is."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import anthropic
import pytest

from scheduler import Limits
from server.http.anthropic.schemas import MessagesError
from server.http.settings import HttpSettings
from tests.server_http.keys import ACME, ring
from tests.server_http.running import Running, running_server

PATHS = ("/v1/messages", "/v1/messages/count_tokens")
ASKED: list[Any] = [{"role": "user", "content": "x"}]


def body(**fields: Any) -> dict[str, Any]:
    return {"max_tokens": 5, "messages": ASKED, **fields}


def user(*blocks: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"messages": [*ASKED, {"role": "assistant", "content": list(blocks)}]}


CALL = {"type": "tool_use", "id": "a", "name": "look", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "a"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
DOCUMENT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": ""}}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"max_tokens": None}, "max_tokens", "integer"),
        ({"max_tokens": -1}, "max_tokens", "greater than or equal to 0"),
        ({"max_tokens": "5"}, "max_tokens", "valid integer"),
        ({"temperature": 2.5}, "temperature", "less than or equal to 2"),
        ({"top_p": 0}, "top_p", "greater than 0"),
        ({"top_k": -1}, "top_k", "greater than or equal to 0"),
        ({"stop_sequences": [""]}, "stop_sequences[0]", "at least 1 character"),
        ({"stop_sequences": ["x"] * 17}, "stop_sequences", "at most 16"),
        ({"stop_sequences": "x"}, "stop_sequences", "valid list"),
        ({"stream": "yes"}, "stream", "boolean"),
        ({"messages": []}, "messages", "at least 1 item"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role", "'user'"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "required"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "string or a list"),
        (user(), "messages[0]", "content is empty"),
        (user("x"), "messages[0].content", "content[0] must be an object with a type"),
        (user({"type": "text"}), "messages[0].content", "content[0].text is required"),
        (user({"type": "text", "text": 5}), "messages[0].content", "content[0].text"),
        (user(IMAGE), "messages[0].content", "content[0] is of type 'image'"),
        (user(DOCUMENT), "messages[0].content", "content[0] is of type 'document'"),
        (
            user({"type": "text", "text": "x"}, {**RESULT, "content": [IMAGE]}),
            "messages[0].content",
            "content[1].content[0] is of type 'image'",
        ),
        (user({"type": "tool_result"}), "messages[0].content", "content[0].tool_use_id is req"),
        (user(CALL), "messages[0]", "'tool_use', which is not for the role user"),
        (assistant(RESULT), "messages[1]", "'tool_result', which is not for the role assistant"),
        (assistant({**CALL, "input": "{}"}), "messages[1].content", "content[0].input"),
        (assistant(CALL), "messages", "has no text"),
        (assistant({"type": "thinking", "thinking": "hm"}), "messages", "has no text"),
        ({"messages": [{"role": "assistant", "content": ""}]}, "messages", "has no text"),
        ({"system": [IMAGE]}, "system", "content[0] is of type 'image'"),
        ({"system": 5}, "system", "string or a list"),
        ({"tools": [SEARCH]}, "tools[0]", "'web_search_20250305' is not supported"),
        ({"tools": [{"name": "x"}]}, "tools[0].input_schema", "required"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name", "required"),
        ({"tool_choice": {"type": "any"}}, "tool_choice", "there are no tools"),
        ({"tool_choice": {"type": "required"}}, "tool_choice.type", "'any'"),
        (
            {
                "tools": [{"name": "x", "input_schema": {}}],
                "tool_choice": {"type": "tool", "name": "y"},
            },
            "tool_choice",
            "'y', which is none of the tools",
        ),
        ({"thinking": {"type": "maybe"}}, "thinking.type", "'disabled'"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type", "json_s"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers", "not supported"),
        ({"cache_mode": "never"}, "cache_mode", "'read-only'"),
    ],
    ids=str,
)
def test_a_wrong_field_is_named(
    server: Running, fields: dict[str, Any], param: str, words: str
) -> None:
    response = server.post("/v1/messages", body(**fields))
    told = MessagesError.model_validate_json(response.content, strict=True)
    assert response.status_code == 400, response.text
    assert told.error.type == "invalid_request_error"
    assert words in told.error.message
    assert param in told.error.message
    assert told.error.details is not None
    assert told.error.details.param == param
    assert told.request_id == response.headers["request-id"] == response.headers["x-request-id"]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with keys, where a tenant may have one request at a time."""
    folder = tmp_path_factory.mktemp("keys")
    limits = "[tenants.acme]\nmax_in_flight = 1\n"
    settings = HttpSettings(keys=ring(folder, limits), max_body_bytes=10_000)
    with running_server(settings=settings) as running:
        yield running


def client_of(server: Running, key: str = "unused") -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0)


TOO_HOT = {"temperature": 3}


def raised(client: anthropic.Anthropic, **fields: Any) -> anthropic.APIStatusError:
    with pytest.raises(anthropic.APIStatusError) as error, client:
        client.messages.create(**{"model": "scripted-1", **body(), **fields})
    return error.value


def test_a_field(server: Running) -> None:
    error = raised(client_of(server), extra_body=TOO_HOT)
    assert isinstance(error, anthropic.BadRequestError)
    assert (error.type, error.error_code) == ("invalid_request_error", "invalid_value")
    assert error.request_id is not None
    assert error.request_id.startswith("msg_")


def test_a_prompt_that_is_too_long_is_told_in_the_words_that_clients_know(server: Running) -> None:
    long: Any = [{"role": "user", "content": "x" * 300}]
    error = raised(client_of(server), messages=long)
    assert isinstance(error, anthropic.BadRequestError)
    assert error.error_code == "context_length_exceeded"
    assert error.api_message is not None
    assert error.api_message.startswith("prompt is too long: ")
    assert "300 tokens" in error.api_message


def test_another_model(server: Running) -> None:
    error = raised(client_of(server), model="claude-x")
    assert isinstance(error, anthropic.NotFoundError)
    assert (error.type, error.error_code) == ("not_found_error", "model_not_found")
    assert "--model-alias" in str(error)


def test_no_key(keyed: Running) -> None:
    error = raised(client_of(keyed))
    assert isinstance(error, anthropic.AuthenticationError)
    assert (error.type, error.error_code) == ("authentication_error", "invalid_api_key")
    assert raised(client_of(keyed, ACME), extra_body=TOO_HOT).status_code == 400


def test_a_body_that_is_too_large(keyed: Running) -> None:
    error = raised(client_of(keyed, ACME), system="x" * 10_000)
    assert isinstance(error, anthropic.ContentTooLargeError)
    assert error.type == "request_too_large"  # type: ignore[comparison-overlap]


def test_a_tenants_limit(keyed: Running) -> None:
    sent = {**body(), "messages": [{"role": "user", "content": "limited hold"}]}
    connection = keyed.send("/v1/messages", sent, {"x-api-key": ACME})
    keyed.engine.record.wait_until(lambda: bool(keyed.engine.record.ids_of("limited hold")))
    error = raised(client_of(keyed, ACME))
    assert isinstance(error, anthropic.RateLimitError)
    assert (error.type, error.error_code) == ("rate_limit_error", "tenant_in_flight_limit")
    assert error.response.headers["retry-after"] == "1"
    counting = keyed.post("/v1/messages/count_tokens", {"messages": ASKED}, {"x-api-key": ACME})
    assert counting.status_code == 429
    connection.close()


def test_a_full_queue_is_the_servers_load(caplog: pytest.LogCaptureFixture) -> None:
    with running_server() as server:
        limits = Limits(256, max_waiting=1)
        server.engine.info = replace(server.engine.info, limits=limits)
        sent = {**body(), "messages": [{"role": "user", "content": "queue"}]}
        connection = server.send("/v1/messages", sent)
        server.engine.record.wait_until(lambda: bool(server.engine.record.ids_of("queue")))
        with caplog.at_level(logging.INFO, logger="server.http"):
            error = raised(client_of(server))
        assert isinstance(error, anthropic.OverloadedError)
        (line,) = (each.__dict__["fields"] for each in caplog.records if each.msg == "request")
        assert (line["status"], line["code"], line["outcome"]) == (529, "queue_full", "refused")
        assert (error.type, error.error_code) == ("overloaded_error", "queue_full")
        assert error.response.headers["retry-after"] == "1"
        connection.close()


def test_an_engine_that_has_ended() -> None:
    with running_server() as server:
        server.engine.die()
        error = raised(client_of(server))
    assert isinstance(error, anthropic.ServiceUnavailableError)
    assert (error.type, error.error_code) == ("overloaded_error", "engine_stopped")


def test_an_engine_error(server: Running) -> None:
    failing: Any = [{"role": "user", "content": "will fail"}]
    error = raised(client_of(server), messages=failing)
    assert isinstance(error, anthropic.InternalServerError)
    assert (error.status_code, error.type) == (500, "api_error")
    assert "the script says so" in str(error)
    crashing: Any = [{"role": "user", "content": "will crash"}]
    assert raised(client_of(server), messages=crashing).error_code == "internal_error"


def test_an_engine_error_in_a_stream(server: Running) -> None:
    failing: Any = [{"role": "user", "content": "will fail"}]
    with client_of(server) as client, pytest.raises(anthropic.APIStatusError) as error:
        list(client.messages.create(**body(messages=failing), model="scripted-1", stream=True))
    assert (error.value.type, error.value.error_code) == ("api_error", "engine_error")


@pytest.mark.parametrize("path", PATHS)
def test_all_that_is_below_the_path_tells_errors_in_this_form(server: Running, path: str) -> None:
    for response, status, kind in (
        (server.client.get(path), 405, "invalid_request_error"),
        (server.post(f"{path}/batches", {}), 404, "not_found_error"),
        (server.post(path, b"{"), 400, "invalid_request_error"),
    ):
        told = MessagesError.model_validate_json(response.content, strict=True)
        assert (response.status_code, told.error.type) == (status, kind)
    other = server.post("/v1/messages_of_others", {}).json()
    assert set(other) == {"error"}
