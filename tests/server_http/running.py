"""A server on a port of its own, on a thread, as a caller of serve() would run it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from server.http import EngineLike, Shutdown, serve
from server.http.settings import HttpSettings
from tests.server_http.scripted import TIMEOUT_S, ScriptedEngine


@dataclass
class Running:
    """A server that accepts connections, and its engine."""

    url: str
    engine: ScriptedEngine
    shutdown: Shutdown
    thread: threading.Thread
    client: httpx.Client
    sent: list[socket.socket] = field(default_factory=list)  # one that is dropped would hang up

    def post(
        self, path: str, body: Any, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """Send a body: bytes as they are, anything else as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.client.post(path, content=content, headers=headers)

    def send(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> socket.socket:
        """Send a request and leave its answer unread, on a connection to hang up."""
        address = urlsplit(self.url)
        assert address.hostname is not None
        assert address.port is not None
        content = json.dumps(body).encode()
        connection = socket.create_connection((address.hostname, address.port), TIMEOUT_S)
        self.sent.append(connection)
        sent = {"Host": "test", "Content-Length": str(len(content)), **(headers or {})}
        lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + content)
        return connection

    def stop(self) -> None:
        """End it and wait for it."""
        self.shutdown.begin()
        self.thread.join(TIMEOUT_S)
        assert not self.thread.is_alive()


@contextmanager
def running_server(grace_s: float = 0.0, settings: HttpSettings | None = None) -> Iterator[Running]:
    """A server with a fresh scripted engine."""
    engine = ScriptedEngine()
    with (
        serving(engine, grace_s, settings) as (url, shutdown, thread),
        httpx.Client(base_url=url, timeout=TIMEOUT_S) as client,
    ):
        running = Running(url, engine, shutdown, thread, client)
        try:
            yield running
        finally:
            engine.text.gate.set()
            engine.release()
            running.stop()
            for connection in running.sent:
                connection.close()


@contextmanager
def serving(
    engine: EngineLike, grace_s: float = 0.0, settings: HttpSettings | None = None
) -> Iterator[tuple[str, Shutdown, threading.Thread]]:
    """A server with any engine: its address, what ends it, and its thread."""
    shutdown = Shutdown()
    address: list[str] = []
    ready = threading.Event()

    def on_ready(url: str) -> None:
        address.append(url)
        ready.set()

    def run() -> None:
        serve(engine, "127.0.0.1", 0, grace_s, on_ready, shutdown=shutdown, settings=settings)

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(TIMEOUT_S)
    try:
        yield address[0], shutdown, thread
    finally:
        shutdown.begin()
        thread.join(TIMEOUT_S)
    assert len(address) == 1


def events(response: httpx.Response) -> list[Any]:
    """The JSON of each event of a stream that ends with [DONE]; checks the framing."""
    assert response.status_code == 200, response.read()
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    *chunks, done, rest = response.read().decode("ascii").split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    assert all(chunk.startswith("data: ") and "\n" not in chunk for chunk in chunks)
    return [json.loads(chunk.removeprefix("data: ")) for chunk in chunks]
