"""One streamed call over HTTP, measured as its caller sees it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx

from workloads.traces.session import History, raw_text

# A call may wait behind many long prompts before its first byte.
READ_TIMEOUT_S = 600.0
_DOES_NOT_FIT = frozenset({"context_length_exceeded", "kv_memory_exceeded"})


class CallFailed(Exception):
    """A call without a whole answer; the message says what came instead."""


class PromptTooLong(Exception):
    """The server refused the prompt because it fits in no context or KV memory."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call got and when. Times in seconds from sending; usage as the server reports it.

    ``ttft_s`` is the time to the first piece with text, or to the end where there was no text.
    ``last_s`` is the time of the last piece that carried text or the reason for the end.
    """

    text: str
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    ttft_s: float
    last_s: float
    total_s: float


def new_client(url: str) -> httpx.AsyncClient:
    """A client for one server. Proxy settings of the surroundings are not used."""
    return httpx.AsyncClient(
        base_url=url,
        timeout=httpx.Timeout(10.0, read=READ_TIMEOUT_S),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        trust_env=False,
    )


async def stream_call(
    client: httpx.AsyncClient, prompt: History, raw: bool, max_tokens: int
) -> Answer:
    """Send a prompt, greedy and streamed, and read the answer to its end.

    Raises PromptTooLong where the server says so (400), CallFailed for everything else that is not
    a whole answer with usage.
    """
    body: dict[str, Any] = {
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
    text = response.text[:400]
    try:
        error = response.json()["error"]
        code, text = error.get("code"), str(error.get("message"))
    except (ValueError, KeyError, TypeError, AttributeError):
        code = None
    if response.status_code == 400 and code in _DOES_NOT_FIT:
        return PromptTooLong(text)
    return CallFailed(f"{response.request.url.path}: HTTP {response.status_code}: {text}")


async def _read_answer(lines: AsyncIterator[str], start: float) -> Answer:
    pieces: list[str] = []
    usage: dict[str, Any] | None = None
    finish: str | None = None
    first = last = None
    async for line in lines:
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            return _answer("".join(pieces), finish, usage, first, last, start)
        now = time.perf_counter()
        try:
            chunk = json.loads(data)
            if "error" in chunk:
                raise CallFailed(f"the stream ended with an error: {chunk['error']}")
            usage = chunk.get("usage") or usage
            for choice in chunk["choices"]:
                text = choice["delta"].get("content") if "delta" in choice else choice["text"]
                if text:
                    pieces.append(text)
                if text or choice.get("finish_reason"):
                    first, last = first or now, now
                finish = choice.get("finish_reason") or finish
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CallFailed(f"a piece of the stream is not as expected: {data[:200]}") from error
    raise CallFailed("the stream ended without [DONE]")


def _answer(
    text: str,
    finish: str | None,
    usage: dict[str, Any] | None,
    first: float | None,
    last: float | None,
    start: float,
) -> Answer:
    if finish not in ("stop", "length") or first is None or last is None:
        raise CallFailed(f"the answer ended with finish_reason {finish!r}")
    try:
        counts = usage or {}
        cached = counts["prompt_tokens_details"]["cached_tokens"]
        prompt, completion = counts["prompt_tokens"], counts["completion_tokens"]
    except (KeyError, TypeError) as error:
        raise CallFailed(f"the stream's usage lacks a count: {usage}") from error
    total = time.perf_counter() - start
    return Answer(text, finish, prompt, cached, completion, first - start, last - start, total)


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


async def flush_cache(client: httpx.AsyncClient) -> None:
    """Empty the server's prefix cache. Raises CallFailed where it refuses."""
    try:
        (await client.post("/flush_cache", timeout=30.0)).raise_for_status()
    except httpx.HTTPError as error:
        raise CallFailed(f"/flush_cache: {type(error).__name__}: {error}") from error
