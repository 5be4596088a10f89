"""A real engine whose steps a test allows one by one, and requests whose answers nobody reads."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from server import Engine

COMPLETIONS = "/v1/completions"
TIMEOUT_S = 20.0


class Steps:
    """Lets the engine make so many steps and holds it inside of the next."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        self._allowed = threading.Semaphore(0)
        self._changed = threading.Condition()
        model = engine._loop._steps._model
        self._forward: Callable[[Any], Any] = model.forward
        monkeypatch.setattr(model, "forward", self._held)

    def allow(self, count: int) -> None:
        self._allowed.release(count)

    def wait_until_begun(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.begun >= count, TIMEOUT_S)

    def _held(self, spans: Any) -> Any:
        with self._changed:
            self.begun += 1
            self._changed.notify_all()
        assert self._allowed.acquire(timeout=TIMEOUT_S)
        return self._forward(spans)


@contextmanager
def asked(url: str, body: dict[str, Any]) -> Iterator[socket.socket]:
    """A request whose answer nobody reads."""
    content = json.dumps({"ignore_eos": True, "temperature": 0, **body}).encode()
    address = urlsplit(url)
    with closing(socket.create_connection((address.hostname or "", address.port or 0))) as line:
        head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
        line.sendall(head.encode() + content)
        yield line


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)
