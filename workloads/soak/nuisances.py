"""What clients send that no server should be asked, and what has to be answered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

HANG_UP = 0
"""In place of a status: that nothing is answered."""

_COMPLETIONS, _CHAT = "/v1/completions", "/v1/chat/completions"
_BODIES: tuple[tuple[str, str, Any], ...] = (
    ("no JSON", _COMPLETIONS, b'{"prompt": "x",'),
    ("NaN", _CHAT, b'{"messages": [], "temperature": NaN}'),
    ("no UTF-8", _COMPLETIONS, b'{"prompt": "\xff\xfe"}'),
    ("half a surrogate", _COMPLETIONS, b'{"prompt": "\\ud800"}'),
    ("deep nesting", _CHAT, b'{"messages": ' + b"[" * 50_000),
    ("an array", _CHAT, b"[]"),
    ("nothing", _CHAT, b""),
    ("no prompt", _COMPLETIONS, {}),
    ("an empty prompt", _COMPLETIONS, {"prompt": ""}),
    ("an unknown token", _COMPLETIONS, {"prompt": [10**9]}),
    ("a negative token", _COMPLETIONS, {"prompt": [-1]}),
    ("too many prompts", _COMPLETIONS, {"prompt": ["x"] * 2000}),
    ("too long a prompt", _COMPLETIONS, {"prompt": [5] * 1_000_000}),
    ("too long a text", _CHAT, {"messages": [{"role": "user", "content": "x " * 1_000_000}]}),
    ("too many answers", _COMPLETIONS, {"prompt": "x", "n": 10**12}),
    ("a wrong type", _COMPLETIONS, {"prompt": "x", "max_tokens": "many"}),
    ("out of range", _CHAT, {"messages": [{"role": "user", "content": "x"}], "top_p": 7}),
    ("a strange role", _CHAT, {"messages": [{"role": "ghost", "content": "x"}]}),
    ("1000 stops", _COMPLETIONS, {"prompt": "x", "stop": ["y"] * 1000}),
    ("a bad expression", _COMPLETIONS, {"prompt": "x", "guided_regex": "(((("}),
    ("a bad schema", _COMPLETIONS, {"prompt": "x", "guided_json": {"type": "nonsense"}}),
    ("another model", _CHAT, {"messages": [{"role": "user", "content": "x"}], "model": "gpt-9"}),
    ("an unknown path", "/v1/nothing", {}),
    ("an unknown prefix", "/v1/cache/retained/none", {}),
)
_BROKEN: tuple[tuple[str, bytes], ...] = (
    ("no HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20),
    ("half a head", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Le"),
    ("half a body", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"),
    ("a bad length", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -4\r\n\r\n{}"),
    ("a long head", b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: " + b"y" * 200_000 + b"\r\n\r\n"),
    (
        "a huge length",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n{}",
    ),
    (
        "a bad chunk",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}",
    ),
)


@dataclass(frozen=True, slots=True)
class Nuisance:
    """Bytes for a connection. ``complete``: they are a whole request in HTTP, which has to be
    answered; else hanging up is an answer, too."""

    name: str
    data: bytes
    complete: bool

    def is_fair(self, status: int) -> bool:
        """Whether a server may answer so: with a client's error, or, where it could not know what
        was asked, not at all."""
        return 400 <= status < 500 or (not self.complete and status == HANG_UP)


def draw_nuisance(random: Random) -> Nuisance:
    """One of them."""
    if random.random() < 0.25:
        name, data = random.choice(_BROKEN)
        return Nuisance(name, data, complete=False)
    name, path, body = random.choice(_BODIES)
    return Nuisance(name, _request(path, body), complete=True)


def _request(path: str, body: bytes | Mapping[str, Any]) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Connection: close\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content
