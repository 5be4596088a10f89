from __future__ import annotations

import asyncio
import json

import pytest

from workloads.cpu.http import read_call
from workloads.cpu.line_protocol import Times
from workloads.cpu.load import LoadFailed

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


def read(data: bytes) -> Times:
    async def call() -> Times:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        return await read_call(reader, 0.0)

    return asyncio.run(call())


def event(**fields: object) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


TOKEN = event(choices=[{"text": "a"}])
USAGE = event(choices=[], usage={"completion_tokens": 7})
DONE = b"data: [DONE]\n\n"


def chunked(*parts: bytes) -> bytes:
    framed = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return HEAD + b"transfer-encoding: chunked\r\n\r\n" + framed + b"0\r\n\r\n"


def test_the_tokens_are_those_of_the_usage_and_the_times_those_of_the_pieces() -> None:
    for answer in (HEAD + b"\r\n" + TOKEN + TOKEN + USAGE + DONE, chunked(TOKEN, TOKEN, USAGE)):
        first, last, tokens = read(answer)
        assert tokens == 7
        assert 0 < first <= last


def test_a_line_may_lie_in_two_chunks() -> None:
    whole = TOKEN + USAGE + DONE
    assert read(chunked(whole[:20], whole[20:70], whole[70:]))[2] == 7


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n{no such field}", r"HTTP 400: \{no such field\}"),
        (b"", "HTTP nothing"),
        (HEAD + b"\r\n" + TOKEN + event(error={"message": "out of memory"}), "out of memory"),
        (HEAD + b"\r\n" + TOKEN + DONE, "without tokens or without their number"),
        (HEAD + b"\r\n" + USAGE + DONE, "without tokens or without their number"),
    ],
)
def test_an_answer_that_is_not_whole_is_refused(answer: bytes, reason: str) -> None:
    with pytest.raises(LoadFailed, match=reason):
        read(answer)
