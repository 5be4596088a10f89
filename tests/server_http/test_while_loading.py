"""What a server says on its port before it has a model."""

from __future__ import annotations

from collections.abc import Iterator

import anthropic
import httpx
import pytest

from server.http.anthropic.schemas import MessagesError
from server.http.lifecycle import bind
from server.http.schemas import ErrorBody, Health, Ready
from server.http.while_loading import answering_while_loading
from tests.server_http.scripted import TIMEOUT_S


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with bind("127.0.0.1", 0) as listener, answering_while_loading(listener):
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_the_process_lives_and_is_not_ready(url: str) -> None:
    health = httpx.get(f"{url}/health", timeout=TIMEOUT_S)
    assert Health.model_validate_json(health.content).status == "ok"
    assert health.status_code == 200
    ready = httpx.get(f"{url}/ready", timeout=TIMEOUT_S)
    assert Ready.model_validate_json(ready.content, strict=True).status == "loading"
    assert (ready.status_code, ready.headers["retry-after"]) == (503, "5")
    assert ready.headers["connection"] == "close"


@pytest.mark.parametrize("path", ["/v1/models", "/v1/chat/completions", "/metrics"])
def test_all_else_is_refused_for_now(url: str, path: str) -> None:
    response = httpx.post(f"{url}{path}", json={}, timeout=TIMEOUT_S)
    error = ErrorBody.model_validate_json(response.content, strict=True).error
    assert (response.status_code, error.code) == (503, "loading")
    assert response.headers["retry-after"] == "5"
    assert response.headers["connection"] == "close"


def test_messages_are_refused_in_their_own_form(url: str) -> None:
    response = httpx.post(f"{url}/v1/messages", json={}, timeout=TIMEOUT_S)
    told = MessagesError.model_validate_json(response.content, strict=True)
    assert told.error.type == "overloaded_error"
    with (
        anthropic.Anthropic(base_url=url, api_key="unused", max_retries=0) as client,
        pytest.raises(anthropic.ServiceUnavailableError) as refused,
    ):
        client.messages.create(
            model="any", max_tokens=1, messages=[{"role": "user", "content": "x"}]
        )
    assert refused.value.error_code == "loading"
