"""One request over HTTP, and what came of it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import httpx

from workloads.soak.manners import Manner
from workloads.soak.nuisances import HANG_UP, Nuisance
from workloads.soak.questions import Question
from workloads.soak.said import Choices, Stream, Unreadable, whole

LIMIT_S = 180.0
"""For a request: far more than any takes."""

_BUSY = frozenset({429, 529})
_NUISANCE_LIMIT_S = 30.0
_HALF_WAIT_S = 0.2


@dataclass(frozen=True, slots=True)
class Heard:
    """What a client heard. ``said``: all of the answer, or, where it ``left``, as much as it had
    read. ``error``: what was told, or went wrong, in place of an answer, as a word or two;
    ``busy``: the server had too much to do, which it may say."""

    said: Choices = field(default_factory=dict)
    left: bool = False
    error: str | None = None
    busy: bool = False


async def ask(client: httpx.AsyncClient, question: Question, manner: Manner) -> Heard:
    """Ask a question in some manner, and read the answer."""
    body = {**question.body, **manner.fields, "stream": manner.stream}
    content = json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    stream = Stream(question.dialect)
    limit = LIMIT_S if manner.hangs_up_after_s is None else manner.hangs_up_after_s
    try:
        async with (
            asyncio.timeout(limit),
            client.stream("POST", question.path, content=content, headers=headers) as response,
        ):
            if response.status_code != 200:
                return _refused(response.status_code, await response.aread())
            if not manner.stream:
                return Heard(whole(question.dialect, json.loads(await response.aread())))
            events = 0
            async for line in response.aiter_lines():
                if not line.startswith("data: "):
                    continue
                stream.push(line.removeprefix("data: "))
                events += 1
                if stream.is_over or events == manner.hangs_up_after_events:
                    break
    except TimeoutError:
        if manner.hangs_up_after_s is None:
            return Heard(error=f"no answer within {LIMIT_S:.0f} s")
        return Heard(stream.said, left=True)
    except Unreadable as error:
        return Heard(error=f"unreadable: {error}")
    except (httpx.HTTPError, ValueError) as error:
        return Heard(error=f"{type(error).__name__}: {error}"[:120])
    if not stream.is_over and manner.hangs_up_after_events is None:
        return Heard(error="the stream ended before its end")
    return Heard(stream.said, left=not stream.is_over)


async def send(
    client: httpx.AsyncClient, method: str, path: str, body: dict[str, Any] | None = None
) -> Heard:
    """Any other request, of which only the status counts."""
    try:
        response = await client.request(method, path, json=body, timeout=LIMIT_S)
    except httpx.HTTPError as error:
        return Heard(error=f"{type(error).__name__}: {error}"[:120])
    return (
        Heard() if response.status_code == 200 else _refused(response.status_code, response.read())
    )


async def annoy(host: str, port: int, nuisance: Nuisance) -> Heard:
    """Send bytes that are no good request, and look at the status."""
    try:
        async with asyncio.timeout(_NUISANCE_LIMIT_S):
            status = await _status(host, port, nuisance)
    except TimeoutError:
        return Heard(error=f"no answer to {nuisance.name}")
    if nuisance.is_fair(status):
        return Heard()
    return Heard(error=f"{status or 'nothing'} in answer to {nuisance.name}", busy=status in _BUSY)


async def _status(host: str, port: int, nuisance: Nuisance) -> int:
    """The status of the answer; HANG_UP where there is none, or where we do not wait for one."""
    try:
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(nuisance.data)
            patience = None if nuisance.complete else _HALF_WAIT_S
            line = await asyncio.wait_for(reader.readline(), patience)
        finally:
            writer.close()
    except (TimeoutError, OSError):
        return HANG_UP
    words = line.split()
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else HANG_UP


def _refused(status: int, content: bytes) -> Heard:
    try:
        error = json.loads(content)["error"]
        code = error.get("code") or error.get("details", {}).get("error_code") or error["type"]
        busy = status in _BUSY
        message = error["message"] if status >= 500 and not busy else ""
    except (ValueError, KeyError, TypeError, AttributeError):
        return Heard(error=f"{status} in no form of errors")
    return Heard(error=f"{status} {code} {message}".strip()[:160], busy=busy)
