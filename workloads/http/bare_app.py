"""The least that a server on uvicorn can do: read a JSON body and send bytes that are ready."""

from __future__ import annotations

import json
from typing import Any

from starlette.types import Receive, Scope, Send

from workloads.http.instant_engine import MODEL, TOKENS, WORD

_HEAD = {"id": f"chatcmpl-{'0' * 24}", "created": 1_800_000_000, "model": MODEL}
_USAGE = {
    "prompt_tokens": 1000,
    "completion_tokens": TOKENS,
    "total_tokens": 1000 + TOKENS,
    "prompt_tokens_details": {
        "cached_tokens": 0,
        "match_end": {
            "reason": "bypassed",
            "position": 0,
            "cause": None,
            "lost_tokens": 0,
            "branch_tokens": 0,
        },
    },
}


def _end(reason: str | None) -> dict[str, object]:
    return {"logprobs": None, "finish_reason": reason, "stop_reason": None}


def _whole() -> bytes:
    message = {"role": "assistant", "content": WORD * TOKENS, "refusal": None}
    choices = [{"index": 0, "message": message, **_end("stop")}]
    body = {**_HEAD, "object": "chat.completion", "choices": choices, "usage": _USAGE}
    return json.dumps(body, separators=(",", ":")).encode()


def _stream() -> bytes:
    def event(delta: dict[str, str], reason: str | None = None, **more: object) -> bytes:
        choices = [{"index": 0, "delta": delta, **_end(reason)}]
        body = {**_HEAD, "object": "chat.completion.chunk", "choices": choices, **more}
        return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"

    pieces = [event({"content": WORD}) for _ in range(TOKENS - 1)]
    last = event({"content": WORD}, "stop", usage=_USAGE)
    first = event({"role": "assistant", "content": ""})
    return b"".join([first, *pieces, last, b"data: [DONE]\n\n"])


class BareApp:
    """Answers a chat as the instant engine's server does, from bytes that were made before."""

    def __init__(self) -> None:
        whole = _whole()
        self._whole = _start("application/json", len(whole)), _body(whole, more=False)
        self._stream = (
            _start("text/event-stream; charset=utf-8"),
            _body(_stream(), more=True),
            _body(b"", more=False),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Any path, any method."""
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message.get("more_body"):
                break
        streams = bool(body) and json.loads(body).get("stream", False)
        for each in self._stream if streams else self._whole:
            await send(each)


def _start(content_type: str, length: int | None = None) -> dict[str, Any]:
    headers = [(b"content-type", content_type.encode())]
    if length is not None:
        headers.append((b"content-length", str(length).encode()))
    return {"type": "http.response.start", "status": 200, "headers": headers}


def _body(data: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}
