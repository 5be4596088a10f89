"""The end of the server: grace for what runs, 503 for what comes, a clean exit."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from server.http import Shutdown, bind, serve
from tests.server_http.processes import server_process
from tests.server_http.running import Running, events, running_server
from tests.server_http.scripted import TIMEOUT_S, ScriptedEngine

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


def held_chat(stream: bool) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "please hold"}], "stream": stream}


@contextmanager
def in_background(server: Running, path: str, body: Any) -> Iterator[list[httpx.Response]]:
    """A request whose answer is in the list once the block has ended."""
    answers: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answers.append(server.post(path, body)))
    before = len(server.engine.record.submitted)
    thread.start()
    server.engine.record.wait_until(lambda: len(server.engine.record.submitted) > before)
    yield answers
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()


def test_streams_end_with_abort_and_done_when_the_grace_is_over() -> None:
    with running_server(grace_s=0.0) as server:
        with in_background(server, CHAT, held_chat(stream=True)) as answers:
            server.stop()
        chunks = events(answers[0])
        assert chunks[-1]["choices"][0]["finish_reason"] == "abort"
        assert chunks[-1]["usage"]["completion_tokens"] == 1


def test_whole_answers_become_a_503_when_the_grace_is_over() -> None:
    with running_server(grace_s=0.0) as server:
        with in_background(server, CHAT, held_chat(stream=False)) as answers:
            server.stop()
        assert answers[0].status_code == 503
        assert answers[0].json()["error"]["code"] == "server_shutting_down"


@pytest.mark.parametrize("stream", [True, False])
def test_within_the_grace_running_requests_end_well_and_new_ones_get_503(stream: bool) -> None:
    with running_server(grace_s=TIMEOUT_S) as server:
        with in_background(server, CHAT, held_chat(stream)) as answers:
            server.shutdown.begin()
            refused = server.post(COMPLETIONS, {"prompt": "too late"})
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "server_shutting_down"
            assert refused.headers["retry-after"] == "1"
            ready = server.client.get("/ready")
            assert (ready.status_code, ready.json()["status"]) == (503, "shutting_down")
            assert server.client.get("/health").status_code == 200, "a restart would end them"
            server.engine.release()
        if stream:
            assert events(answers[0])[-1]["choices"][0]["finish_reason"] == "stop"
        else:
            assert answers[0].json()["choices"][0]["message"]["content"] == "Hello!"
        server.thread.join(TIMEOUT_S)
        assert not server.thread.is_alive()
        assert not server.engine.is_alive()


def test_an_idle_server_ends_without_using_its_grace() -> None:
    with running_server(grace_s=3600.0) as server:
        server.stop()


def test_a_server_asked_to_end_before_it_is_ready_ends() -> None:
    shutdown = Shutdown()
    shutdown.begin()
    addresses: list[str] = []
    serve(ScriptedEngine(), "127.0.0.1", 0, 0.0, addresses.append, shutdown=shutdown)
    assert len(addresses) == 1


def test_a_port_in_use_is_one_line_that_names_the_port_and_the_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit) as stopped:
            serve(ScriptedEngine(), "127.0.0.1", port, 0.0, lambda url: None)
    message = stopped.value.code
    assert isinstance(message, str)  # Python prints a message to stderr and exits with 1
    assert str(port) in message
    assert "--port" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("host", "port", "words"),
    [
        ("no host at all", 0, ("no host at all", "--host")),
        ("127.0.0.1", 70000, ("70000", "--port")),
    ],
)
def test_an_impossible_address_is_one_line(host: str, port: int, words: tuple[str, str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        bind(host, port)
    message = stopped.value.code
    assert isinstance(message, str)
    assert all(word in message for word in words)
    assert "\n" not in message


def test_a_port_may_be_bound_before_the_engine_is_there() -> None:
    with bind("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        addresses: list[str] = []
        shutdown = Shutdown()
        shutdown.begin()
        engine = ScriptedEngine()
        serve(engine, "unused", 0, 0.0, addresses.append, bound=bound, shutdown=shutdown)
    assert addresses == [f"http://127.0.0.1:{port}"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_stream_cleanly_and_serve_returns(number: signal.Signals) -> None:
    engine = ScriptedEngine()
    rest: list[str] = []

    def stream_and_signal(url: str) -> None:
        with httpx.stream("POST", url + CHAT, json=held_chat(stream=True), timeout=60) as response:
            lines = response.iter_lines()
            rest.append(next(lines))
            os.kill(os.getpid(), number)
            rest.extend(line for line in lines if line)

    clients: list[threading.Thread] = []

    def on_ready(url: str) -> None:
        clients.append(threading.Thread(target=stream_and_signal, args=(url,)))
        clients[0].start()

    before = signal.getsignal(number)
    serve(engine, "127.0.0.1", 0, 0.0, on_ready)
    clients[0].join(TIMEOUT_S)
    assert '"finish_reason":"abort"' in rest[-2]
    assert rest[-1] == "data: [DONE]"
    assert not engine.is_alive()
    assert signal.getsignal(number) == before


@pytest.mark.slow
def test_sigterm_ends_the_process_with_status_0_and_no_word() -> None:
    with (
        server_process(grace_s=0.0) as (process, url),
        httpx.stream("POST", url + CHAT, json=held_chat(stream=True), timeout=60) as response,
    ):
        lines = response.iter_lines()
        next(lines)
        process.terminate()
        assert [line for line in lines if line][-1] == "data: [DONE]"
        output, errors = process.communicate(timeout=60)
        assert (process.returncode, output, errors) == (0, "", "")


@pytest.mark.slow
def test_a_second_ctrl_c_ends_the_process_at_once() -> None:
    with (
        server_process(grace_s=3600.0) as (process, url),
        httpx.stream("POST", url + CHAT, json=held_chat(stream=True), timeout=60) as response,
    ):
        lines = response.iter_lines()
        next(lines)
        process.send_signal(signal.SIGINT)
        while httpx.get(url + "/ready", timeout=60).status_code == 200:
            pass
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "Traceback" not in errors
