"""One question, asked of each endpoint, whole and streamed, and its answers in one form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.server_http.real import CHAT, COMPLETIONS

MESSAGES = "/v1/messages"
ALL_PATHS = pytest.mark.parametrize("path", [COMPLETIONS, CHAT, MESSAGES])
OPENAIS = pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
_SAME_REASON = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length"}


@dataclass(frozen=True)
class Answer:
    """One choice; ``pieces``: its text as it came. ``finish`` in OpenAI's words."""

    index: int
    pieces: tuple[str, ...]
    finish: str
    stop: str | int | None
    logprobs: tuple[float | None, ...] = ()

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True)
class Answers:
    """All choices, and the counts of the whole request."""

    choices: tuple[Answer, ...]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    @property
    def only(self) -> Answer:
        """The one there is."""
        (answer,) = self.choices
        return answer


def body_of(path: str, said: str, **fields: Any) -> dict[str, Any]:
    """A body in the words of the endpoint; greedy, if it does not say otherwise."""
    prompt: dict[str, Any] = {"messages": [{"role": "user", "content": said}]}
    if path == COMPLETIONS:
        prompt = {"prompt": said}
    if path == MESSAGES and "stop" in fields:
        fields["stop_sequences"] = fields.pop("stop")
    return {"max_tokens": 8, "temperature": 0, **prompt, **fields}


def asked(client: TestClient, path: str, said: str, *, stream: bool, **fields: Any) -> Answers:
    """The answers, which must be there."""
    response = client.post(path, json={**body_of(path, said, **fields), "stream": stream})
    assert response.status_code == 200, response.text
    if path == MESSAGES:
        return _streamed_message(response.text) if stream else _message(strict(response.text))
    return _streamed_choices(response.text) if stream else _choices(strict(response.text))


def strict(text: str) -> Any:
    """JSON without NaN and Infinity, which are none."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def events_of(text: str) -> Iterator[Any]:
    """The JSON of a stream's events."""
    for line in text.splitlines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield strict(line.removeprefix("data: "))


def _values(logprobs: Any) -> list[float | None]:
    if not logprobs:
        return []
    if "content" in logprobs:
        return [entry["logprob"] for entry in logprobs["content"]]
    return list(logprobs["token_logprobs"])


def _choices(body: Any) -> Answers:
    choices = tuple(
        Answer(
            each["index"],
            (each["text"] if "text" in each else each["message"]["content"],),
            each["finish_reason"],
            each["stop_reason"],
            tuple(_values(each["logprobs"])),
        )
        for each in body["choices"]
    )
    return _answers(choices, body["usage"])


def _answers(choices: tuple[Answer, ...], usage: Any) -> Answers:
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return Answers(choices, usage["prompt_tokens"], usage["completion_tokens"], cached)


def _streamed_choices(text: str) -> Answers:
    pieces: dict[int, list[str]] = {}
    values: dict[int, list[float | None]] = {}
    ends: dict[int, tuple[str, str | int | None]] = {}
    *chunks, last = events_of(text)
    assert "error" not in last, last
    for chunk in (*chunks, last):
        for each in chunk["choices"]:
            index = each["index"]
            assert index not in ends, "nothing comes after the end"
            shown = each["text"] if "text" in each else each["delta"].get("content") or ""
            pieces.setdefault(index, []).append(shown)
            values.setdefault(index, []).extend(_values(each["logprobs"]))
            if each["finish_reason"] is not None:
                ends[index] = each["finish_reason"], each["stop_reason"]
    choices = tuple(
        Answer(index, tuple(filter(None, pieces[index])), *ends[index], tuple(values[index]))
        for index in sorted(ends)
    )
    return _answers(choices, last["usage"])


def _message(body: Any) -> Answers:
    blocks = tuple(block["text"] for block in body["content"])
    answer = Answer(0, blocks, _SAME_REASON[body["stop_reason"]], body["stop_sequence"])
    return _of_message((answer,), body["usage"])


def _of_message(choices: tuple[Answer, ...], usage: Any) -> Answers:
    cached = usage["cache_read_input_tokens"]
    prompt = usage["input_tokens"] + cached + usage["cache_creation_input_tokens"]
    return Answers(choices, prompt, usage["output_tokens"], cached)


def _streamed_message(text: str) -> Answers:
    events = list(events_of(text))
    pieces = [each["delta"]["text"] for each in events if each["type"] == "content_block_delta"]
    (end,) = (each for each in events if each["type"] == "message_delta")
    finish = _SAME_REASON[end["delta"]["stop_reason"]]
    answer = Answer(0, tuple(pieces), finish, end["delta"]["stop_sequence"])
    return _of_message((answer,), end["usage"])
