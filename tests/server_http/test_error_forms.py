"""Whoever refuses a request, from the gate to the engine: a path tells it in its own API's form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from scheduler import Limits
from server.http.access import Access
from server.http.anthropic.schemas import MessagesError
from server.http.error_forms import error_form
from server.http.errors import ApiError
from server.http.schemas import ErrorBody
from server.http.settings import HttpSettings
from tests.server_http.keys import ACME, bearer, ring
from tests.server_http.running import Running, running_server
from tests.server_http.scripted import INFO, TIMEOUT_S

OPENAIS = ("/v1/completions", "/v1/chat/completions")
ANTHROPICS = ("/v1/messages", "/v1/messages/count_tokens")
PATHS = pytest.mark.parametrize("path", [*OPENAIS, *ANTHROPICS])
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
MAX_BODY = 10_000


def body(said: str = "x", **fields: Any) -> dict[str, Any]:
    """What each of them takes."""
    messages = [{"role": "user", "content": said}]
    return {"prompt": said, "messages": messages, "max_tokens": 5, **fields}


def assert_told(
    response: httpx.Response, path: str, code: str, openai: tuple[int, str], own: tuple[int, str]
) -> None:
    """Status and type, in the one form and in the other; the whole body is checked."""
    assert response.headers["content-type"] == "application/json"
    if path.startswith("/v1/messages"):
        told = MessagesError.model_validate_json(response.content, strict=True)
        details = told.error.details
        assert details is not None
        assert (response.status_code, told.error.type, details.error_code) == (*own, code)
        assert told.request_id == response.headers.get("request-id")
        assert told.error.message
    else:
        error = ErrorBody.model_validate_json(response.content, strict=True).error
        assert (response.status_code, error.type, error.code) == (*openai, code)
        assert error.message


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """With keys; a tenant may have one request at a time."""
    limits = "[tenants.acme]\nmax_in_flight = 1\n"
    keys = ring(tmp_path_factory.mktemp("keys"), limits)
    settings = HttpSettings(keys=keys, max_body_bytes=MAX_BODY, wedged_after_s=1.0)
    with running_server(settings=settings) as running:
        yield running


INVALID = "invalid_request_error"
Sent = Callable[[str, bool], tuple[str, str, Any, dict[str, str]]]

# Method, path, body and headers; code; status and type in OpenAI's form and in Anthropic's.
REFUSED: dict[str, tuple[Sent, str, tuple[int, str], tuple[int, str]]] = {
    "no JSON": (
        lambda path, _: ("POST", path, b"{", bearer(ACME)),
        "invalid_json",
        (400, INVALID),
        (400, INVALID),
    ),
    "a wrong field": (
        lambda path, stream: (
            "POST",
            path,
            body(stream=stream, messages=7, temperature="hot"),
            bearer(ACME),
        ),
        "invalid_type",
        (400, INVALID),
        (400, INVALID),
    ),
    "no key": (
        lambda path, stream: ("POST", path, body(stream=stream), {}),
        "invalid_api_key",
        (401, INVALID),
        (401, "authentication_error"),
    ),
    "another model": (
        lambda path, stream: ("POST", path, body(stream=stream, model="other"), bearer(ACME)),
        "model_not_found",
        (404, INVALID),
        (404, "not_found_error"),
    ),
    "a path below": (
        lambda path, stream: ("POST", f"{path}/batches", body(stream=stream), bearer(ACME)),
        "unknown_path",
        (404, INVALID),
        (404, "not_found_error"),
    ),
    "another method": (
        lambda path, _: ("GET", path, b"", bearer(ACME)),
        "method_not_allowed",
        (405, INVALID),
        (405, INVALID),
    ),
    "a long body": (
        lambda path, _: ("POST", path, b" " * (MAX_BODY + 1), bearer(ACME)),
        "body_too_large",
        (413, INVALID),
        (413, "request_too_large"),
    ),
}


@PATHS
@STREAMED
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(server: Running, path: str, stream: bool, case: str) -> None:
    sent, code, openai, own = REFUSED[case]
    method, url, content, headers = sent(path, stream)
    more = {"content": content} if isinstance(content, bytes) else {"json": content}
    response = server.client.request(method, url, headers=headers, **more)
    assert_told(response, path, code, openai, own)


@PATHS
def test_a_body_that_is_too_long_and_does_not_say_so(server: Running, path: str) -> None:
    pieces = iter([b" " * 6_000] * 3)
    response = server.client.post(path, content=pieces, headers=bearer(ACME))
    own = (413, "request_too_large")
    assert_told(response, path, "body_too_large", (413, INVALID), own)


@PATHS
@STREAMED
def test_a_tenant_that_has_come_to_its_limit(server: Running, path: str, stream: bool) -> None:
    prompt = f"{path} {stream} hold"
    connection = server.send("/v1/completions", {"prompt": prompt}, bearer(ACME))
    record = server.engine.record
    record.wait_until(lambda: bool(record.ids_of(prompt)))
    response = server.post(path, body(stream=stream), bearer(ACME))
    limited = (429, "rate_limit_error")
    assert_told(response, path, "tenant_in_flight_limit", limited, limited)
    assert response.headers["retry-after"] == "1"
    connection.close()
    record.wait_until(lambda: record.ids_of(prompt)[0] in record.ended)
    for _ in range(1000):  # its place is given back a moment after that
        if server.post("/v1/completions", body(), bearer(ACME)).status_code == 200:
            return
    raise AssertionError("the place was never given back")


@pytest.mark.parametrize("path", [*OPENAIS, ANTHROPICS[0]])
@STREAMED
def test_a_fault_of_ours_in_an_endpoint(server: Running, path: str, stream: bool) -> None:
    sent = body(f"{path} will crash", stream=stream)
    response = server.post(path, sent, bearer(ACME))
    assert_told(response, path, "internal_error", (500, "server_error"), (500, "api_error"))


@PATHS
def test_a_fault_of_ours_before_any_endpoint(
    server: Running, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(Access, "admit", fail)
        response = server.post(path, body(), bearer(ACME))
    assert_told(response, path, "internal_error", (500, "server_error"), (500, "api_error"))
    assert server.post(path, body(), bearer(ACME)).status_code == 200


@PATHS
@STREAMED
def test_an_engine_that_does_not_get_on(server: Running, path: str, stream: bool) -> None:
    server.engine.stall_s = 40.0
    response = server.post(path, body(stream=stream), bearer(ACME))
    server.engine.stall_s = 0.0
    assert_told(response, path, "engine_wedged", (503, "server_error"), (503, "overloaded_error"))
    assert response.headers["retry-after"] == "10"


@PATHS
def test_a_full_queue_which_is_no_fault_of_the_client(path: str) -> None:
    with running_server() as server:
        server.engine.info = replace(INFO, limits=Limits(256, max_waiting=1))
        server.send("/v1/completions", {"prompt": "one queue"})
        record = server.engine.record
        record.wait_until(lambda: bool(record.ids_of("one queue")))
        response = server.post(path, body())
        own = (529, "overloaded_error")
        assert_told(response, path, "queue_full", (429, "rate_limit_error"), own)
        assert response.headers["retry-after"] == "1"


def test_a_server_that_ends_and_one_whose_engine_has_ended() -> None:
    down = (503, "server_error"), (503, "overloaded_error")
    with running_server(grace_s=TIMEOUT_S) as server:
        server.send("/v1/completions", {"prompt": "first hold"})
        record = server.engine.record
        record.wait_until(lambda: bool(record.ids_of("first hold")))
        server.shutdown.begin()
        for path in (*OPENAIS, *ANTHROPICS):
            response = server.post(path, body())
            assert_told(response, path, "server_shutting_down", *down)
            assert response.headers["retry-after"] == "1"
        server.engine.release()
    with running_server() as server:
        server.engine.die()
        for path in (*OPENAIS, *ANTHROPICS):
            assert_told(server.post(path, body()), path, "engine_stopped", *down)


@pytest.mark.parametrize(
    ("status", "openai", "own"),
    [
        (400, INVALID, INVALID),
        (401, INVALID, "authentication_error"),
        (403, INVALID, "permission_error"),
        (404, INVALID, "not_found_error"),
        (405, INVALID, INVALID),
        (413, INVALID, "request_too_large"),
        (415, INVALID, INVALID),
        (429, "rate_limit_error", "rate_limit_error"),
        (500, "server_error", "api_error"),
        (503, "server_error", "overloaded_error"),
        (504, "server_error", "timeout_error"),
    ],
)
def test_every_status_has_its_type_in_both_forms(status: int, openai: str, own: str) -> None:
    error = ApiError(status, "It cannot be.", code="a_code", headers={"Retry-After": "3"})
    for path in (*OPENAIS, *ANTHROPICS, "/v1/messages/", "/v1/messagesx", "/debug/tree"):
        told = error_form(path)(error, None)
        response = httpx.Response(
            told.status_code, content=bytes(told.body), headers=dict(told.headers)
        )
        as_anthropics = path.startswith("/v1/messages") and path != "/v1/messagesx"
        shown = "/v1/messages" if as_anthropics else "/v1/completions"
        assert_told(response, shown, "a_code", (status, openai), (status, own))
        assert response.headers["retry-after"] == "3"
