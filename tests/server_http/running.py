"""A server on a port of its own, on a thread, as a caller of serve() would run it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from server.http import Shutdown, serve
from tests.server_http.scripted import TIMEOUT_S, ScriptedEngine


@dataclass
class Running:
    """A server that accepts connections, and its engine."""

    url: str
    engine: ScriptedEngine
    shutdown: Shutdown
    thread: threading.Thread
    client: httpx.Client

    def post(self, path: str, body: Any) -> httpx.Response:
        """Send a body: bytes as they are, anything else as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.client.post(path, content=content)

    def send(self, path: str, body: Any) -> socket.socket:
        """Send a request and leave its answer unread, on a connection to hang up."""
        address = urlsplit(self.url)
        assert address.hostname is not None
        assert address.port is not None
        content = json.dumps(body).encode()
        connection = socket.create_connection((address.hostname, address.port), TIMEOUT_S)
        connection.sendall(
            f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {len(content)}\r\n\r\n".encode()
            + content
        )
        return connection

    def stop(self) -> None:
        """End it and wait for it."""
        self.shutdown.begin()
        self.thread.join(TIMEOUT_S)
        assert not self.thread.is_alive()


@contextmanager
def running_server(grace_s: float = 0.0) -> Iterator[Running]:
    """A server with a fresh scripted engine."""
    engine, shutdown = ScriptedEngine(), Shutdown()
    address: list[str] = []
    ready = threading.Event()

    def on_ready(url: str) -> None:
        address.append(url)
        ready.set()

    def run() -> None:
        serve(engine, "127.0.0.1", 0, grace_s, on_ready, shutdown=shutdown)

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(TIMEOUT_S)
    with httpx.Client(base_url=address[0], timeout=TIMEOUT_S) as client:
        running = Running(address[0], engine, shutdown, thread, client)
        try:
            yield running
        finally:
            engine.text.gate.set()
            engine.release()
            running.stop()
    assert len(address) == 1


def events(response: httpx.Response) -> list[Any]:
    """The JSON of each event of a stream that ends with [DONE]; checks the framing."""
    assert response.status_code == 200, response.read()
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    *chunks, done, rest = response.read().decode("ascii").split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    assert all(chunk.startswith("data: ") and "\n" not in chunk for chunk in chunks)
    return [json.loads(chunk.removeprefix("data: ")) for chunk in chunks]
