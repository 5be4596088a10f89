"""Server-sent events as OpenAI's clients read them."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from fastapi import Response
from starlette.types import Receive, Scope, Send

from server.http.long_json import long_json

DONE = b"data: [DONE]\n\n"

_to_json = json.JSONEncoder(separators=(",", ":")).encode


def event(data: Mapping[str, Any]) -> bytes:
    """One event. ASCII only: some clients split lines at any Unicode line separator."""
    return b"data: " + _to_json(data).encode("ascii") + b"\n\n"


def long_event(data: Mapping[str, Any]) -> bytes:
    """The same of data with many entries, on a thread beside others."""
    return b"data: " + long_json(data, _to_json).encode("ascii") + b"\n\n"


class EventStream(Response):
    """A response that sends each piece of ``events`` as soon as it is there.

    ``on_end`` is called once, however the stream ends, even if it never began.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        on_end: Callable[[], None],
        headers: Mapping[str, str],
    ) -> None:
        self.status_code = 200
        self.background = None
        self._events = events
        self._on_end = on_end
        # Proxies that buffer would turn a stream into one late piece.
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **headers})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            async for piece in self._events:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._on_end()
            await self._events.aclose()
