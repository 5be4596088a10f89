"""Clients that hang up, and engines that fail while a client listens."""

from __future__ import annotations

from typing import Any

import pytest

from server.http.schemas import ErrorBody
from tests.server_http.running import Running, events

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


def body_for(path: str, prompt: str, stream: bool) -> dict[str, Any]:
    if path == COMPLETIONS:
        return {"prompt": prompt, "stream": stream}
    return {"messages": [{"role": "user", "content": prompt}], "stream": stream}


@pytest.mark.parametrize("script", ["hold", "queue"])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_a_hang_up_aborts_the_request(
    server: Running, path: str, stream: bool, script: str
) -> None:
    record = server.engine.record
    prompt = f"{path} {stream} {script}"
    connection = server.send(path, body_for(path, prompt, stream))
    record.wait_until(lambda: bool(record.ids_of(prompt)))
    (request_id,) = record.ids_of(prompt)
    if stream:
        assert b"200 OK" in connection.recv(1000)
    assert request_id not in record.aborted
    connection.close()
    record.wait_until(lambda: request_id in record.aborted and request_id in record.ended)


def test_a_hang_up_after_a_long_body_aborts_the_request(server: Running) -> None:
    # A body beyond the server's buffer has it stop reading for a while; it must resume to see this.
    record = server.engine.record
    connection = server.send(COMPLETIONS, {"prompt": "long queue", "metadata": {"x": "y" * 10**6}})
    record.wait_until(lambda: bool(record.ids_of("long queue")))
    connection.close()
    record.wait_until(lambda: record.ids_of("long queue")[0] in record.ended)


@pytest.mark.parametrize("stream", [True, False])
def test_a_hang_up_aborts_every_prompt_that_has_not_ended(server: Running, stream: bool) -> None:
    record = server.engine.record
    prompts = [f"{stream} done", f"{stream} one hold", f"{stream} two queue"]
    connection = server.send(COMPLETIONS, {"prompt": prompts, "stream": stream})
    record.wait_until(lambda: bool(record.ids_of(prompts[2])))
    first, second, third = (record.ids_of(prompt)[0] for prompt in prompts)
    record.wait_until(lambda: first in record.ended)
    connection.close()
    record.wait_until(lambda: {second, third} <= set(record.aborted) & record.ended)


def test_a_hang_up_while_the_text_is_tokenised_leaves_nothing_running(server: Running) -> None:
    record, text = server.engine.record, server.engine.text
    connection = server.send(COMPLETIONS, {"prompt": ["gate queue", "another queue"]})
    assert text.at_gate.wait(10)
    connection.close()
    assert server.client.get("/health").status_code == 200  # the loop is not blocked meanwhile
    text.gate.set()
    # A later request passes the same threads, so the first has been submitted or dropped by then.
    server.post(COMPLETIONS, {"prompt": "later"})
    record.wait_until(lambda: set(record.submitted) == record.ended)


def test_an_engine_error_is_a_500(server: Running) -> None:
    response = server.post(COMPLETIONS, {"prompt": "will fail"})
    error = ErrorBody.model_validate_json(response.content, strict=True).error
    assert response.status_code == 500
    assert (error.code, error.type) == ("engine_error", "server_error")
    assert "the script says so" in error.message


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_an_engine_error_in_a_stream_is_an_event_before_done(server: Running, path: str) -> None:
    *chunks, last = events(server.post(path, body_for(path, "stream will fail", stream=True)))
    assert ErrorBody.model_validate(last).error.code == "engine_error"
    assert chunks


def test_an_engine_error_in_one_choice_ends_the_others(server: Running) -> None:
    prompts = ["waits with hold", "breaks and fail"]
    *_, last = events(server.post(COMPLETIONS, {"prompt": prompts, "stream": True}))
    assert "error" in last
    record = server.engine.record
    (held,) = record.ids_of(prompts[0])
    record.wait_until(lambda: held in record.aborted)
