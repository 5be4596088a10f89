"""A server as an engine: completions of token ids, streamed, with as little client as possible.

The client shares the processors with the server, so it only reads what it has to.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from workloads.cpu.line_protocol import Times
from workloads.cpu.load import EngineFailed, Load, LoadFailed, Outcome, checked_outcome
from workloads.cpu.processes import end_session
from workloads.own_server import ServerFailed, own_server

_CONNECT_LIMIT_S = 10.0


class HttpEngine:
    """A server of ours or a peer's on 127.0.0.1, from its start to its end.

    Raises EngineFailed where it does not become ready.
    """

    def __init__(
        self,
        command: Sequence[str],
        port: int,
        log: Path,
        environment: Mapping[str, str] | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self._port = port
        self.about: Mapping[str, Any] = about or {}
        self._stack = ExitStack()
        try:
            server = self._stack.enter_context(
                own_server(command, port, log, poll_s=0.05, environment=environment)
            )
        except (ServerFailed, OSError) as error:
            raise EngineFailed(str(error)) from error
        assert server.pid is not None
        assert server.ready_s is not None
        self.pid, self.ready_s = server.pid, server.ready_s

    def run(self, load: Load, limit_s: float) -> Outcome:
        """Send a load and wait for it at most ``limit_s``. Raises LoadFailed or EngineFailed."""
        try:
            sessions, wall_s = asyncio.run(self._run(load, limit_s))
        except TimeoutError as error:
            raise EngineFailed(f"no answer within {limit_s:.0f} s") from error
        except (OSError, EOFError) as error:
            raise EngineFailed(f"the connection failed: {type(error).__name__}: {error}") from error
        return checked_outcome(load, sessions, wall_s)

    def stop(self) -> None:
        """End the server and all that it started."""
        try:
            self._stack.close()
        finally:
            end_session(self.pid)

    async def _run(self, load: Load, limit_s: float) -> tuple[list[list[Times]], float]:
        bodies = [[_body(prompt, load.max_tokens) for prompt in calls] for calls in load.sessions]
        start = time.perf_counter()
        async with asyncio.timeout(limit_s):
            sessions = await asyncio.gather(*(self._session(calls, start) for calls in bodies))
        return sessions, time.perf_counter() - start

    async def _session(self, bodies: Sequence[bytes], start: float) -> list[Times]:
        return [await self._call(body, start) for body in bodies]

    async def _call(self, body: bytes, start: float) -> Times:
        async with asyncio.timeout(_CONNECT_LIMIT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(_head(self._port, len(body)) + body)
            return await read_call(reader, start)
        finally:
            writer.close()


def _body(prompt: Sequence[int], max_tokens: int) -> bytes:
    fields = {
        "prompt": list(prompt),
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return json.dumps(fields).encode()


def _head(port: int, length: int) -> bytes:
    return (
        f"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    ).encode()


async def read_call(reader: asyncio.StreamReader, start: float) -> Times:
    """The times of a streamed completion, in seconds from ``start``; its tokens from its usage.

    Raises LoadFailed for an answer that is no stream or ends with an error.
    """
    status = (await reader.readline()).split()
    chunked = False
    while (line := await reader.readline()) not in (b"\r\n", b""):
        chunked |= line.lower().startswith(b"transfer-encoding:") and b"chunked" in line.lower()
    if len(status) < 2 or status[1] != b"200":
        text = (await reader.read()).decode(errors="replace")
        raise LoadFailed(f"HTTP {status[1].decode() if status[1:] else 'nothing'}: {text[:400]}")
    first = last = None
    tokens = None
    async for line in _lines(reader, chunked):
        if not line.startswith(b"data:"):
            continue
        if line[5:].strip() == b"[DONE]":
            break
        now = time.perf_counter() - start
        piece = json.loads(line[5:])
        if "error" in piece:
            raise LoadFailed(f"the stream ended with an error: {piece['error']}")
        if piece.get("choices"):
            first, last = now if first is None else first, now
        if piece.get("usage"):
            tokens = piece["usage"]["completion_tokens"]
    if first is None or last is None or tokens is None:
        raise LoadFailed("the stream ended without tokens or without their number")
    return first, last, tokens


async def _lines(reader: asyncio.StreamReader, chunked: bool) -> AsyncIterator[bytes]:
    if not chunked:
        while line := await reader.readline():
            yield line
        return
    rest = b""
    while size := int((await reader.readline()).split(b";")[0] or b"0", 16):
        rest += await reader.readexactly(size)
        await reader.readexactly(2)
        *whole, rest = rest.split(b"\n")
        for line in whole:
            yield line
