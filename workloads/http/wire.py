"""HTTP at its barest: a client that costs next to nothing beside the server that it measures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

_CHUNK_BYTES = 1 << 16


class BadAnswer(Exception):
    """The server answered otherwise than it should; the message says how."""


class Connection:
    """One connection to a server on this machine. ``closed`` ends it at any time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        """Connect to a port of 127.0.0.1."""
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 24))

    def close(self) -> None:
        """Hang up."""
        self._writer.close()

    async def send(self, method: str, path: str, body: bytes = b"") -> None:
        """Send a request."""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        await self._writer.drain()

    async def head(self) -> dict[str, str]:
        """The head of the answer, names in lower case. Raises BadAnswer unless it is a 200."""
        data = await self._reader.readuntil(b"\r\n\r\n")
        status, *lines = data.decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if line)
        if status.split(" ")[1] != "200":
            rest = await self._reader.read(400)
            raise BadAnswer(f"{status}: {rest.decode(errors='replace')}")
        return headers

    async def body(self) -> bytes:
        """The whole answer."""
        headers = await self.head()
        return await self._reader.readexactly(int(headers["content-length"]))

    async def whole_stream(self) -> None:
        """Read a streamed answer to its end; the connection may be used again."""
        await self.head()
        while size := int(await self._reader.readline(), 16):
            await self._reader.readexactly(size + 2)
        await self._reader.readline()

    async def pieces(self) -> AsyncIterator[bytes]:
        """A streamed answer as it comes, after its head was read."""
        while data := await self._reader.read(_CHUNK_BYTES):
            yield data

    async def times(self) -> AsyncIterator[float]:
        """When each piece of a streamed answer came, after its head was read."""
        while data := await self._reader.read(_CHUNK_BYTES):
            if b"data: " in data:
                yield time.perf_counter()
