"""What a server answered, in one form whatever the API and whether whole or streamed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Dialect = Literal["completions", "chat", "messages"]


@dataclass(slots=True)
class Said:
    """One choice: its text, what came before it as reasoning, the calls of tools (name and
    arguments), the log-probabilities as they were sent, and why it ended (None: it has not)."""

    text: str = ""
    thoughts: str = ""
    calls: list[list[str]] = field(default_factory=list)
    scores: list[Any] = field(default_factory=list)
    reason: str | None = None

    def begins(self, other: Said) -> bool:
        """Whether the other's answer begins with this one's, as far as text and thoughts go."""
        return other.text.startswith(self.text) and other.thoughts.startswith(self.thoughts)


class Unreadable(Exception):
    """What came is not what the API says; the message says what came."""


Choices = Mapping[int, Said]
"""By their numbers; of a stream that was not read to its end there may be some of them."""


def whole(dialect: Dialect, body: Mapping[str, Any]) -> Choices:
    """The choices of a whole answer. Raises Unreadable."""
    try:
        if dialect == "messages":
            said = Said(reason=body["stop_reason"])
            for block in body["content"]:
                _add_block(said, block)
            return {0: said}
        return {each["index"]: _choice(each) for each in body["choices"]}
    except (KeyError, TypeError, AttributeError) as error:
        raise Unreadable(f"{type(error).__name__} {error} in {json.dumps(body)[:200]}") from error


class Stream:
    """Gathers the choices of a streamed answer from its events."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._choices: dict[int, Said] = {}
        self.is_over = False

    def push(self, data: str) -> None:
        """Take the data of an event. Raises Unreadable, also for an error in the stream."""
        if data == "[DONE]":
            self.is_over = True
            return
        try:
            event = json.loads(data)
            if "error" in event:
                raise Unreadable(f"an error in the stream: {event['error']}")
            if self._dialect == "messages":
                self._push_message(event)
            else:
                for each in event["choices"]:
                    _add(self._choices.setdefault(each["index"], Said()), each)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Unreadable(f"{type(error).__name__} {error} in {data[:200]}") from error

    @property
    def said(self) -> Choices:
        """The choices so far."""
        return self._choices

    def _push_message(self, event: Mapping[str, Any]) -> None:
        said = self._choices.setdefault(0, Said())
        kind = event["type"]
        if kind == "content_block_start" and event["content_block"]["type"] == "tool_use":
            said.calls.append([event["content_block"]["name"], ""])
        elif kind == "content_block_delta":
            delta = event["delta"]
            said.text += delta.get("text", "")
            said.thoughts += delta.get("thinking", "")
            if "partial_json" in delta:
                said.calls[-1][1] += delta["partial_json"]
        elif kind == "message_delta":
            said.reason = event["delta"]["stop_reason"]
        elif kind == "message_stop":
            self.is_over = True


def difference(expected: Choices, got: Choices) -> str | None:
    """What is not as expected in a whole answer; None: nothing."""
    if expected.keys() != got.keys():
        return f"choices {sorted(got)} in place of {sorted(expected)}"
    for index, said in got.items():
        right = expected[index]
        for name in ("text", "thoughts", "calls", "scores", "reason"):
            here, there = getattr(said, name), getattr(right, name)
            if here != there:
                return f"{name} of choice {index} is {here!r:.120} in place of {there!r:.120}"
    return None


def wrong_beginning(expected: Choices, got: Choices) -> str | None:
    """What is not as expected in as much of an answer as was read; None: nothing. A choice that
    ended has to be whole."""
    for index, said in got.items():
        if index not in expected:
            return f"a choice {index}, where there are {sorted(expected)}"
        right = expected[index]
        if not said.begins(right):
            return f"choice {index} begins with {said.text!r:.120} in place of {right.text!r:.120}"
        if said.reason is not None and (said.text, said.reason) != (right.text, right.reason):
            return f"choice {index} ended with {said.reason} after {said.text!r:.120}"
    return None


def _choice(choice: Mapping[str, Any]) -> Said:
    said = Said()
    _add(said, choice)
    return said


def _add(said: Said, choice: Mapping[str, Any]) -> None:
    """Take a choice of OpenAI's, whole or a piece of it."""
    message = choice.get("message") or choice.get("delta") or choice
    said.text += message.get("text") or message.get("content") or ""
    said.thoughts += message.get("reasoning_content") or ""
    for place, call in enumerate(message.get("tool_calls") or ()):
        index = call.get("index", place)
        if index == len(said.calls):
            said.calls.append(["", ""])
        function = call["function"]
        said.calls[index][0] += function.get("name") or ""
        said.calls[index][1] += function.get("arguments") or ""
    logprobs = choice.get("logprobs")
    if logprobs:
        said.scores += _entries(logprobs)
    said.reason = choice.get("finish_reason") or said.reason


def _entries(logprobs: Mapping[str, Any]) -> list[Any]:
    """One for each token, in whichever of OpenAI's two forms."""
    if "content" in logprobs:
        return list(logprobs["content"])
    names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    return [list(each) for each in zip(*(logprobs[name] for name in names), strict=True)]


def _add_block(said: Said, block: Mapping[str, Any]) -> None:
    if block["type"] == "tool_use":
        said.calls.append([block["name"], json.dumps(block["input"])])
    said.text += block.get("text", "")
    said.thoughts += block.get("thinking", "")
