"""Requests in a file, one a line, as the server would read them: prompts in tokens, and what they
were made of.

A line is a body of one of the APIs, or has one under ``body`` (OpenAI's batch files) or ``params``
(Anthropic's).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from server.errors import RequestRefused
from server.http.anthropic.messages import MESSAGES
from server.http.anthropic.recognised import is_messages_body
from server.http.caller import Caller
from server.http.endpoint import Endpoint
from server.http.engine_like import EngineLike
from server.http.errors import ApiError
from server.http.job import Context, Job
from server.http.openai.chat import CHAT
from server.http.openai.completions import COMPLETIONS
from server.outputs import EngineInfo
from server.text import TextCodec

BLOCK_SIZE = 16
_ANY_LENGTH = 1 << 30


@dataclass(frozen=True, slots=True)
class WrongLine:
    """A line that is no request, and why."""

    line: int
    message: str


@dataclass(frozen=True, slots=True)
class LintRequest:
    """A request, and the number of its line, from 1."""

    line: int
    job: Job


@dataclass(frozen=True, slots=True)
class _NoEngine:
    """As much of an engine as it takes to read requests."""

    info: EngineInfo
    text: TextCodec


def read_requests(path: Path, text: TextCodec) -> Iterator[LintRequest | WrongLine]:
    """All requests of a file, in order; empty lines are none. Raises OSError, and
    UnicodeDecodeError for what is no UTF-8."""
    info = EngineInfo(
        model="lint",
        context_length=_ANY_LENGTH,
        block_size=BLOCK_SIZE,
        num_blocks=_ANY_LENGTH // BLOCK_SIZE,
        kv_bytes_per_token=0,
        weights="",
        kv_dtype="",
        kernels="",
        exact=True,
        prefix_cache=True,
    )
    engine = cast(EngineLike, _NoEngine(info, text))
    context = Context(engine, Caller(), {}, aliases=("*",))
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield _read(number, line, context)


def _read(number: int, line: str, context: Context) -> LintRequest | WrongLine:
    try:
        body, endpoint = _body(line)
        return LintRequest(number, endpoint.prepare(json.dumps(body).encode(), context))
    except ApiError as error:
        return WrongLine(number, error.message)
    except (RequestRefused, ValueError, RecursionError) as error:
        return WrongLine(number, str(error))


def _body(line: str) -> tuple[Mapping[str, Any], Endpoint]:
    try:
        sent = json.loads(line)
    except json.JSONDecodeError as error:
        where = f"{error.msg} at character {error.pos + 1}"
        raise ValueError(f"it is not JSON: {where}") from None
    if not isinstance(sent, dict):
        raise ValueError("it is not a JSON object; a line is one request's body")
    inner: Any = sent.get("body") or sent.get("params")
    body: dict[str, Any] = inner if isinstance(inner, dict) else sent
    if "prompt" in body:
        return body, COMPLETIONS
    if "messages" not in body:
        raise ValueError("it has neither messages nor a prompt, as a request's body has")
    is_named = str(sent.get("url")).endswith("/messages") or "params" in sent
    if is_named or is_messages_body(body):
        return {"max_tokens": 1, **body}, MESSAGES
    return body, CHAT
