"""One streamed call over HTTP, measured as its caller sees it."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx

from workloads.traces.session import History, raw_text

# A call may wait behind many long prompts before its first byte.
READ_TIMEOUT_S = 600.0
_DOES_NOT_FIT = frozenset(
    {"context_length_exceeded", "kv_memory_exceeded", "exceed_context_size_error"}
)
# How servers say it that have no code for it.
_DOES_NOT_FIT_TEXT = re.compile(r"context (length|size|window)|maximum model length", re.IGNORECASE)
_BUSY = frozenset({429, 503})
_NO_ANSWER = frozenset({None, "error", "abort", "cancelled"})
# Where pieces of a reply's text are; reasoning takes time, too, but is no part of the history.
_REASONING = ("reasoning_content", "reasoning")


class CallFailed(Exception):
    """A call without a whole answer; the message says what came instead."""


class Refused(CallFailed):
    """The server was too busy to take the call (HTTP 429 or 503)."""


class PromptTooLong(Exception):
    """The server refused the prompt because it fits in no context or KV memory."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call got and when. Times in seconds from sending; usage as the server reports it.

    A count that the server does not tell is None. ``pieces`` counts the parts with text in which
    the reply came. ``ttft_s`` is the time to the first of them, or to the end where there was no
    text. ``last_s`` is the time of the last piece that carried text or the reason for the end.
    """

    text: str
    finish_reason: str
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    pieces: int
    ttft_s: float
    last_s: float
    total_s: float


def new_client(url: str, key: str | None = None) -> httpx.AsyncClient:
    """A client for one server, with a bearer token where there is a key.

    Proxy settings of the surroundings are not used, and no redirect is followed.
    """
    return httpx.AsyncClient(
        base_url=url,
        headers={} if key is None else {"authorization": f"Bearer {key}"},
        timeout=httpx.Timeout(10.0, read=READ_TIMEOUT_S),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        trust_env=False,
    )


async def stream_call(
    client: httpx.AsyncClient, prompt: History, raw: bool, max_tokens: int, model: str | None = None
) -> Answer:
    """Send a prompt, greedy and streamed, and read the answer to its end.

    ``model`` is sent where it is not None. Raises PromptTooLong where the server says so (400),
    Refused where it is too busy, CallFailed for everything else that is not a whole answer.
    """
    body: dict[str, Any] = {} if model is None else {"model": model}
    body |= {
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if raw:
        path, body["prompt"] = "/v1/completions", raw_text(prompt)
    else:
        path = "/v1/chat/completions"
        body["messages"] = [{"role": m.role, "content": m.content} for m in prompt]
    content = json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    start = time.perf_counter()
    try:
        async with client.stream("POST", path, content=content, headers=headers) as response:
            if response.status_code != 200:
                await response.aread()
                raise _refusal(response)
            return await _read_answer(response.aiter_lines(), start)
    except httpx.HTTPError as error:
        detail = str(error) or "no answer"
        raise CallFailed(f"{path}: {type(error).__name__}: {detail}") from error


def _refusal(response: httpx.Response) -> Exception:
    text, codes = response.text[:400], set[str]()
    try:
        body = response.json()
        error = body.get("error", body)  # vLLM's and SGLang's lie in the body itself
        codes = {str(error.get("code")), str(error.get("type"))}
        text = str(error.get("message"))
    except (ValueError, TypeError, AttributeError):
        pass
    if response.status_code == 400 and (codes & _DOES_NOT_FIT or _DOES_NOT_FIT_TEXT.search(text)):
        return PromptTooLong(text)
    kind = Refused if response.status_code in _BUSY else CallFailed
    return kind(f"{response.request.url.path}: HTTP {response.status_code}: {text}")


@dataclass(slots=True)
class _Pieces:
    """What of an answer has come so far."""

    start: float
    text: list[str]
    count: int = 0
    usage: dict[str, Any] | None = None
    finish: str | None = None
    first: float | None = None
    last: float | None = None

    def take(self, chunk: dict[str, Any], now: float) -> None:
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk["choices"]:
            delta = choice["delta"] if "delta" in choice else {"content": choice["text"]}
            reply = delta.get("content")
            if reply:
                self.text.append(reply)
            spoke = bool(reply) or any(delta.get(name) for name in _REASONING)
            self.count += spoke
            if spoke or choice.get("finish_reason"):
                self.first, self.last = self.first or now, now
            self.finish = choice.get("finish_reason") or self.finish

    def answer(self) -> Answer:
        if self.finish in _NO_ANSWER or self.first is None or self.last is None:
            raise CallFailed(f"the answer ended with finish_reason {self.finish!r}")
        usage = self.usage or {}
        details = usage.get("prompt_tokens_details") or {}
        return Answer(
            text="".join(self.text),
            finish_reason=str(self.finish),
            prompt_tokens=_count(usage, "prompt_tokens"),
            cached_tokens=_count(details, "cached_tokens"),
            completion_tokens=_count(usage, "completion_tokens"),
            pieces=self.count,
            ttft_s=self.first - self.start,
            last_s=self.last - self.start,
            total_s=time.perf_counter() - self.start,
        )


def _count(usage: dict[str, Any], name: str) -> int | None:
    value = usage.get(name)
    if value is not None and type(value) is not int:
        raise CallFailed(f"the stream's usage has no number for {name}: {usage}")
    return value


async def _read_answer(lines: AsyncIterator[str], start: float) -> Answer:
    pieces = _Pieces(start, [])
    async for line in lines:
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            return pieces.answer()
        now = time.perf_counter()
        try:
            chunk = json.loads(data)
            if chunk.get("error"):
                raise CallFailed(f"the stream ended with an error: {chunk['error']}")
            pieces.take(chunk, now)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CallFailed(f"a piece of the stream is not as expected: {data[:200]}") from error
    raise CallFailed("the stream ended without [DONE]")


async def server_info(client: httpx.AsyncClient) -> dict[str, Any]:
    """What the server says of itself. Raises CallFailed where it does not answer as it should."""
    try:
        answer = await client.get("/server_info", timeout=30.0)
        info = answer.raise_for_status().json()
    except (httpx.HTTPError, ValueError) as error:
        raise CallFailed(f"/server_info: {type(error).__name__}: {error}") from error
    if not isinstance(info, dict) or not isinstance(info.get("counters"), dict):
        raise CallFailed("/server_info: the answer has no counters")
    return info


async def settled_info(client: httpx.AsyncClient) -> dict[str, Any]:
    """The server's information once no request runs or waits, or after 5 s whatever it does.

    An answer's last piece can reach us before the step that made it is counted.
    """
    deadline = time.perf_counter() + 5.0
    while True:
        info = await server_info(client)
        state = info.get("state") or {}
        busy = state.get("running", 0) + state.get("waiting", 0)
        if not busy or time.perf_counter() > deadline:
            return info
        await asyncio.sleep(0.05)
