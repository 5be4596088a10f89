"""Limits over HTTP: told at once while what was let in still runs, and every place given back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from scheduler import Limits
from server.http.settings import HttpSettings
from tests.server_http.keys import ACME, BETA, bearer, ring
from tests.server_http.running import Running, running_server
from tests.server_http.scripted import INFO, TIMEOUT_S

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
LIMITS = "[tenants.acme]\nmax_in_flight = 3\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running_server(settings=HttpSettings(keys=ring(tmp_path, LIMITS))) as running:
        yield running


def start(server: Running, prompt: str | list[str], key: str = ACME, **fields: Any) -> Any:
    """Send a request whose answer does not come, and wait until the engine has it."""
    prompts = [prompt] if isinstance(prompt, str) else prompt
    connection = server.send(COMPLETIONS, {"prompt": prompt, **fields}, bearer(key))
    record = server.engine.record
    record.wait_until(lambda: all(record.ids_of(each) for each in prompts))
    return connection


def ask(server: Running, prompt: Any = "quick", key: str = ACME) -> httpx.Response:
    return server.post(COMPLETIONS, {"prompt": prompt}, bearer(key))


def is_refused(response: httpx.Response, code: str) -> bool:
    assert response.status_code == 429, response.text
    assert int(response.headers["retry-after"]) >= 1
    assert response.json()["error"]["type"] == "rate_limit_error"
    found: str = response.json()["error"]["code"]
    return found == code


def is_submitted(server: Running, count: int) -> bool:
    return len(server.engine.record.submitted) == count


def wait_for_a_place(server: Running) -> None:
    """Until a request is let in; a hang-up is noticed a moment after it."""
    for _ in range(1000):
        response = ask(server)
        if response.status_code == 200:
            return
    raise AssertionError(response.text)


def test_beyond_its_requests_in_flight_a_tenant_is_told_at_once(server: Running) -> None:
    for count in range(3):
        start(server, f"{count} hold")
    for path in (COMPLETIONS, CHAT):
        body = {"prompt": "x", "messages": [{"role": "user", "content": "x"}]}
        response = server.post(path, body, bearer(ACME))
        assert is_refused(response, "tenant_in_flight_limit")
        assert "max_in_flight" in response.json()["error"]["message"]
    assert not server.engine.record.ended, "what was let in still runs"
    assert ask(server, key=BETA).status_code == 200
    server.engine.release()
    record = server.engine.record
    record.wait_until(lambda: len(record.ended) == 4)
    wait_for_a_place(server)


def test_beyond_its_queue_a_tenant_is_told_at_once(tmp_path: Path) -> None:
    keys = ring(tmp_path, "[tenants.acme]\nmax_queued = 2\n")
    with running_server(settings=HttpSettings(keys=keys)) as server:
        start(server, "1 queue")
        start(server, "2 queue")
        assert is_refused(ask(server), "tenant_queue_full")
        assert ask(server, key=BETA).status_code == 200
        server.engine.release()
        record = server.engine.record
        record.wait_until(lambda: len(record.ended) == 3)
        assert ask(server).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
def test_a_hang_up_gives_the_places_back(server: Running, stream: bool) -> None:
    connection = start(server, ["a hold", "b hold", "c queue"], stream=stream)
    assert is_refused(ask(server), "tenant_in_flight_limit")
    connection.close()
    wait_for_a_place(server)
    start(server, ["d hold", "e hold", "f hold"])


def test_a_hang_up_while_the_text_is_tokenised_gives_the_places_back(server: Running) -> None:
    text = server.engine.text
    connection = server.send(COMPLETIONS, {"prompt": ["gate hold"] * 2}, bearer(ACME))
    assert text.at_gate.wait(TIMEOUT_S)
    connection.close()
    text.gate.set()
    wait_for_a_place(server)
    record = server.engine.record
    record.wait_until(lambda: set(record.submitted) == record.ended)
    start(server, ["d hold", "e hold", "f hold"])


@pytest.mark.parametrize(
    ("prompt", "status"),
    [("will fail", 500), ("will crash", 500), ("", 400), ("x" * 300, 400), (["y", "x" * 300], 400)],
)
def test_an_error_gives_the_places_back(server: Running, prompt: Any, status: int) -> None:
    for _ in range(4):
        assert ask(server, prompt).status_code == status
    start(server, ["d hold", "e hold", "f hold"])


def test_a_body_that_is_no_json_or_too_long_gives_the_place_back(tmp_path: Path) -> None:
    settings = HttpSettings(max_body_bytes=1000, keys=ring(tmp_path, LIMITS))
    with running_server(settings=settings) as server:
        for _ in range(4):
            assert server.post(COMPLETIONS, b"{", bearer(ACME)).status_code == 400
            long = server.post(COMPLETIONS, b" " * 1001, bearer(ACME))
            assert long.status_code == 413
            assert "--max-body-size" in long.json()["error"]["message"]
        start(server, ["d hold", "e hold", "f hold"])


def test_an_answered_prompt_of_several_gives_its_place_back(server: Running) -> None:
    start(server, ["a hold", "b", "c"])
    record = server.engine.record
    record.wait_until(lambda: len(record.ended) == 2)
    wait_for_a_place(server)
    start(server, ["d hold", "e hold"])
    assert is_refused(ask(server), "tenant_in_flight_limit")


def test_more_prompts_than_a_tenant_may_ever_have_are_a_400(server: Running) -> None:
    response = ask(server, ["x"] * 4)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "too_many_prompts")
    assert "max_in_flight" in error["message"]


def test_one_client_that_asks_again_and_again_is_never_refused(tmp_path: Path) -> None:
    keys = ring(tmp_path, "[tenants.acme]\nmax_in_flight = 1\nmax_queued = 1\n")
    with running_server(settings=HttpSettings(keys=keys)) as server:
        for count in range(200):
            stream = count % 2 == 1
            body = {"prompt": "again", "stream": stream}
            assert server.post(COMPLETIONS, body, bearer(ACME)).status_code == 200


def test_of_fifty_the_overflow_is_told_while_the_rest_waits_and_is_then_served() -> None:
    """Fault F7: the queue's limit is 8."""
    with running_server() as server:
        server.engine.info = replace(INFO, limits=Limits(256, max_waiting=8))
        statuses: list[int] = []

        def ask_one(prompt: str) -> None:
            statuses.append(server.post(COMPLETIONS, {"prompt": prompt}).status_code)

        served = [threading.Thread(target=ask_one, args=(f"{n} queue",)) for n in range(8)]
        record = server.engine.record
        for count, thread in enumerate(served, start=1):
            thread.start()
            record.wait_until(partial(is_submitted, server, count))
        overflow = [server.post(COMPLETIONS, {"prompt": "late"}) for _ in range(42)]
        assert all(is_refused(response, "queue_full") for response in overflow)
        assert (len(record.submitted), record.ended, statuses) == (8, set(), [])
        server.engine.release()
        for thread in served:
            thread.join(TIMEOUT_S)
        assert statuses == [200] * 8


def test_a_flood_is_refused_before_its_texts_are_tokenised() -> None:
    with running_server() as server:
        server.engine.info = replace(INFO, limits=Limits(256, max_waiting=1))
        server.send(COMPLETIONS, {"prompt": "gate"})
        assert server.engine.text.at_gate.wait(TIMEOUT_S)
        for _ in range(3):
            assert is_refused(server.post(COMPLETIONS, {"prompt": "late"}), "queue_full")
        assert server.engine.record.submitted == {}


@pytest.mark.parametrize(
    ("most", "asked", "given"),
    [(None, None, None), (None, 7, 7), (60.0, None, 60.0), (60.0, 7, 7), (60.0, 61, 60.0)],
)
def test_the_servers_timeout_is_a_bound_and_a_default(
    most: float | None, asked: float | None, given: float | None
) -> None:
    with running_server(settings=HttpSettings(request_timeout_s=most)) as server:
        assert server.post(COMPLETIONS, {"prompt": "p", "timeout_s": asked}).status_code == 200
        ((_, params),) = server.engine.record.submitted.values()
        assert params.timeout_s == given
