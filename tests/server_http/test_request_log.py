"""One line of the log for each request: what it was, what came of it, and no word of its text."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

from server.http.request_log import without_quotes
from server.logs import JsonFormatter, TextFormatter
from tests.server_http.running import Running
from tests.server_http.scripted import TIMEOUT_S

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PREWARM, MESSAGES = "/v1/cache/prewarm", "/v1/messages"
WORD = "SECRETWORD"
SECRET = f"it's \"so\" {WORD} \\' b'x"


class Keeper(logging.Handler):
    """Keeps all that is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> Iterator[list[logging.LogRecord]]:
    """All that the server logs."""
    keeper, logger = Keeper(), logging.getLogger("server")
    logger.addHandler(keeper)
    with caplog.at_level(logging.DEBUG, logger="server"):
        yield keeper.records
    logger.removeHandler(keeper)


def line_of(records: list[logging.LogRecord], **wanted: Any) -> dict[str, Any]:
    """The fields of the only request's line that has these; of a stream it comes after its end."""
    found: list[dict[str, Any]] = []
    end = time.monotonic() + TIMEOUT_S
    while not found and time.monotonic() < end:
        lines = [each.__dict__["fields"] for each in records[:] if each.getMessage() == "request"]
        found = [line for line in lines if wanted.items() <= line.items()]
    (line,) = found
    return line


def test_an_answered_request(server: Running, records: list[logging.LogRecord]) -> None:
    body = {"prompt": "some words"}
    answer = server.client.post(COMPLETIONS, json=body, headers={"X-Request-Id": "mine-7"})
    line = line_of(records, request_id=answer.headers["x-request-id"])
    times = [line.pop(name) for name in ("ttft_ms", "total_ms")]
    assert 0 <= times[0] <= times[1] < 20_000
    (engine_id,) = line.pop("engine_ids")
    assert server.engine.record.submitted[engine_id][0] == "some words"
    assert line == {
        "request_id": answer.json()["id"],
        "client_request_id": "mine-7",
        "endpoint": COMPLETIONS,
        "status": 200,
        "outcome": "completed",
        "prompt_tokens": 10,
        "cached_tokens": 0,
        "computed_tokens": 10,
        "completion_tokens": 4,
        "match_end": "cold",
        "finish_reason": "stop",
    }


def test_a_streamed_one_is_logged_at_its_end(
    server: Running, records: list[logging.LogRecord]
) -> None:
    messages = [{"role": "user", "content": "some words to stream"}]
    answer = server.post(CHAT, {"messages": messages, "stream": True, "n": 2})
    line = line_of(records, request_id=answer.headers["x-request-id"])
    assert (line["endpoint"], line["outcome"]) == (CHAT, "completed")
    assert (line["prompt_tokens"], line["completion_tokens"]) == (20, 9)


def test_a_refused_one_has_the_code_the_field_and_the_reason(
    server: Running, records: list[logging.LogRecord]
) -> None:
    answer = server.post(COMPLETIONS, {"prompt": "x", "temperature": 3})
    line = line_of(records, request_id=answer.headers["x-request-id"])
    assert (line["status"], line["outcome"]) == (400, "refused")
    assert (line["code"], line["param"]) == ("invalid_value", "temperature")
    assert "less than or equal to 2" in line["reason"]
    assert "prompt_tokens" not in line


def test_a_failed_one_is_an_error_and_names_the_request(
    server: Running, records: list[logging.LogRecord]
) -> None:
    answer = server.post(COMPLETIONS, {"prompt": "please fail"})
    line = line_of(records, request_id=answer.headers["x-request-id"])
    assert (line["status"], line["outcome"], line["code"]) == (500, "failed", "engine_error")
    crashed = server.post(COMPLETIONS, {"prompt": "please crash"})
    found = [each for each in records if each.exc_info]
    assert [each.__dict__["fields"]["request_id"] for each in found] == [
        crashed.headers["x-request-id"]
    ]
    ends = [each.levelno for each in records if each.getMessage() == "request"]
    assert ends == [logging.ERROR, logging.ERROR]


def bodies() -> Iterator[tuple[str, Any]]:
    """Requests that have the secret in any place of theirs: as a value, and as a name."""
    shared = {
        "max_tokens": 3,
        "temperature": 1.0,
        "stop": ["x"],
        "logit_bias": {"5": 1},
        "stream_options": {"include_usage": True},
        "seed": 1,
        "n": 1,
        "logprobs": None,
        "metadata": {"a": "b"},
        "user": "me",
        "model": "scripted-1",
    }
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    chat = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "done", "tool_call_id": "1"},
        ],
        "tools": [tool],
        "tool_choice": "auto",
        "response_format": {"type": "text"},
        **shared,
    }
    prewarm = {"messages": chat["messages"], "tools": [tool], "cache_retention_s": 5}
    said = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral", "ttl": "5m"}}
    use = {"type": "tool_use", "id": "1", "name": "f", "input": {"city": "x"}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": [said], "is_error": True}
    messages = {
        "messages": [
            {"role": "user", "content": [said]},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [result]},
        ],
        "system": [said],
        "tools": [{"name": "f", "description": "looks", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "auto"},
        "thinking": {"type": "disabled"},
        "stop_sequences": ["x"],
        "max_tokens": 3,
        "metadata": {"user_id": "me"},
        "model": "scripted-1",
    }
    wholes = {
        COMPLETIONS: {"prompt": ["hi"], **shared},
        CHAT: chat,
        PREWARM: prewarm,
        MESSAGES: messages,
    }
    for path, whole in wholes.items():
        yield from ((path, body) for body in spoilt(whole))
    yield COMPLETIONS, f'{{"prompt": "{WORD}'.encode()
    yield COMPLETIONS, {"prompt": SECRET * 10}
    yield COMPLETIONS, SECRET


def spoilt(value: Any) -> Iterator[Any]:
    """Copies of a value with the secret in one place each."""
    yield SECRET
    yield [SECRET]
    yield {SECRET: SECRET}
    if isinstance(value, dict):
        for key in value:
            for each in spoilt(value[key]):
                yield {**copy.deepcopy(value), key: each}
            yield {SECRET if name == key else name: each for name, each in value.items()}
    if isinstance(value, list):
        for index in range(len(value)):
            for each in spoilt(value[index]):
                yield [*value[:index], each, *value[index + 1 :]]


def test_no_line_shows_text_of_a_request_wherever_it_stands(
    server: Running, records: list[logging.LogRecord]
) -> None:
    sent = list(bodies())
    refused = [server.post(path, body).status_code != 200 for path, body in sent]
    assert 50 < sum(refused) < len(sent)
    assert len(records) >= len(sent)
    for formatter in (TextFormatter(), JsonFormatter()):
        shown = [line for record in records if WORD in (line := formatter.format(record))]
        assert not shown, shown[0]


def test_a_reason_keeps_all_that_it_does_not_quote() -> None:
    reason = without_quotes("the model's limit is 2, but 'a b' was sent for \"x\".")
    assert reason == "the model's limit is 2, but '...' was sent for '...'."
    assert without_quotes("cut off: 'a b...") == "cut off: '...'"
    assert len(without_quotes("x" * 1000)) < 400
