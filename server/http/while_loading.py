"""What answers on the server's port while the model is being loaded: that it is."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from server.http.error_forms import error_form
from server.http.errors import ApiError

_BACKLOG = 2048
_RETRY_AFTER = "5"  # seconds


@contextmanager
def answering_while_loading(bound: socket.socket) -> Iterator[None]:
    """In the ``with`` block, a thread answers on this socket: /health with 200, all else with 503.

    The socket stays open. Who connects while one server hands over to the other waits in its queue.
    """
    config = uvicorn.Config(
        _answer,
        lifespan="off",
        ws="none",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(
        target=server.run, args=([bound.dup()],), name="while-loading", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    """The application."""
    loading = _loading()
    if scope["path"] == "/health":
        response: Response = JSONResponse({"status": "ok"})
    elif scope["path"] == "/ready":
        told = {"status": "loading", "reason": loading.message}
        response = JSONResponse(told, loading.status, loading.headers)
    else:
        response = error_form(scope["path"])(loading, None)
    response.headers["Connection"] = "close"
    await response(scope, receive, send)


def _loading() -> ApiError:
    return ApiError(
        503,
        "The model is being loaded, so no requests are taken yet. Send the request again later.",
        code="loading",
        headers={"Retry-After": _RETRY_AFTER},
    )
