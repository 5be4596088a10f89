"""What a request took is given back when it ends, and not when garbage is collected some day.

While there is work the server collects garbage seldom (see `server.garbage`): what refers to itself
in a circle would stay for minutes, and with it the body of the request.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

from server.http.errors import ApiError
from server.http.generation import Call
from server.http.submission import Submission
from tests.server_http.running import Running

COMPLETIONS, CHAT, MESSAGES = "/v1/completions", "/v1/chat/completions", "/v1/messages"
SAYS_HI = {"messages": [{"role": "user", "content": "hi"}]}
TIMEOUT_S = 5.0


@pytest.fixture
def without_collector() -> Iterator[None]:
    logging.disable()  # pytest keeps what is logged, with tracebacks
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    logging.disable(logging.NOTSET)


def alive(kind: type) -> list[Any]:
    return [each for each in gc.get_objects() if type(each) is kind]


def wait_until_gone(kind: type) -> None:
    end = time.monotonic() + TIMEOUT_S
    while left := alive(kind):
        assert time.monotonic() < end, gc.get_referrers(left[0])
        del left
        time.sleep(0.01)


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (COMPLETIONS, {"prompt": "hi"}, 200),
        (CHAT, SAYS_HI, 200),
        (CHAT, {**SAYS_HI, "stream": True}, 200),
        (MESSAGES, {**SAYS_HI, "max_tokens": 3}, 200),
        (MESSAGES, {**SAYS_HI, "max_tokens": 3, "stream": True}, 200),
        (COMPLETIONS, {"prompt": "will fail"}, 500),
        (COMPLETIONS, {"prompt": "will fail", "stream": True}, 200),
        (COMPLETIONS, {"prompt": "please crash"}, 500),
        (COMPLETIONS, {"prompt": "x" * 300}, 400),
        (COMPLETIONS, {"prompt": "hi", "n": 0}, 400),
        (CHAT, b"{", 400),
    ],
)
def test_an_ended_request_is_gone(server: Running, path: str, body: Any, status: int) -> None:
    for _ in range(3):
        assert server.post(path, body).status_code == status
    wait_until_gone(Call)
    wait_until_gone(Submission)


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("stream", [True, False])
def test_one_whose_client_hung_up_is_gone(server: Running, stream: bool) -> None:
    record = server.engine.record
    prompt = f"{stream} hold"
    connection = server.send(COMPLETIONS, {"prompt": prompt, "stream": stream})
    record.wait_until(lambda: bool(record.ids_of(prompt)))
    connection.close()
    wait_until_gone(Call)


def test_an_error_that_is_kept_for_the_operator_keeps_no_body(server: Running) -> None:
    for body in (b'{"prompt": 1' + b" " * 10_000, {"prompt": "x" * 300}, {"prompt": 7}):
        assert server.post(COMPLETIONS, body).status_code == 400
    kept = alive(ApiError)
    assert kept, "the register of requests has them"
    assert [each for each in kept if each.__traceback__ or each.__context__ or each.__cause__] == []
