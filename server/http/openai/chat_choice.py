"""A chat's answer in OpenAI's form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from server.chat.events import (
    AnswerEvent,
    ContentText,
    ReasoningText,
    ToolCallArguments,
    ToolCallBegin,
)
from server.http.engine_like import TextLike
from server.http.job import Job
from server.http.openai.logprobs import chat_logprobs
from server.outputs import Completion, Output


class ChatChoice:
    """One choice of an answer, which is parted into reasoning, content and tool calls."""

    def __init__(self, job: Job, text: TextLike, index: int) -> None:
        self._index = index
        self._text = text
        self._parser = job.new_parser()
        self._has_begun = False
        self.has_called = False

    def whole(self, answer: Completion) -> dict[str, Any]:
        """All of it at once."""
        logprobs = answer.logprobs
        events = [*self._parser.push(answer.text), *self._parser.finish()]
        return {
            "index": self._index,
            "message": _message(events),
            "logprobs": None if logprobs is None else chat_logprobs(logprobs, self._text),
            "finish_reason": self._reason(answer.finish_reason),
            "stop_reason": answer.stop_reason,
        }

    def chunks(self, output: Output) -> list[dict[str, Any]]:
        """The role first, then the parts as they come, and at the end the reason for it."""
        chunks: list[dict[str, Any]] = []
        if not self._has_begun:
            chunks.append(self._chunk({"role": "assistant", "content": ""}))
        self._has_begun = True
        events = self._parser.push(output.text)
        if output.finish_reason is not None:
            events += self._parser.finish()
        deltas = [_delta(each) for each in events]
        if output.logprobs and not deltas:
            deltas.append({"content": ""})
        logprobs = chat_logprobs(output.logprobs, self._text) if output.logprobs else None
        for delta in deltas:
            chunks.append(self._chunk(delta, logprobs))
            logprobs = None  # they go with the first
        if output.finish_reason is not None:
            reason = self._reason(output.finish_reason)
            chunks.append(self._chunk({}, finish_reason=reason, stop_reason=output.stop_reason))
        return chunks

    def _reason(self, finish_reason: str) -> str:
        self.has_called = finish_reason == "stop" and self._parser.has_called
        return "tool_calls" if self.has_called else finish_reason

    def _chunk(
        self,
        delta: dict[str, Any],
        logprobs: dict[str, Any] | None = None,
        finish_reason: str | None = None,
        stop_reason: str | int | None = None,
    ) -> dict[str, Any]:
        return {
            "index": self._index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
            "stop_reason": stop_reason,
        }


def _message(events: Iterable[AnswerEvent]) -> dict[str, Any]:
    """The parts of an answer put together. What it does not have is left out, but for content."""
    reasoning: list[str] = []
    content: list[str] = []
    calls: list[dict[str, Any]] = []
    for event in events:
        if isinstance(event, ReasoningText):
            reasoning.append(event.text)
        elif isinstance(event, ContentText):
            content.append(event.text)
        elif isinstance(event, ToolCallBegin):
            calls.append(_call(event))
        else:
            calls[event.index]["function"]["arguments"] += event.text
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if calls and not content else "".join(content),
        "refusal": None,
    }
    if reasoning:
        message["reasoning_content"] = "".join(reasoning)
    if calls:
        message["tool_calls"] = calls
    return message


def _delta(event: AnswerEvent) -> dict[str, Any]:
    """What a chunk adds."""
    if isinstance(event, ContentText):
        return {"content": event.text}
    if isinstance(event, ReasoningText):
        return {"reasoning_content": event.text}
    if isinstance(event, ToolCallArguments):
        return {"tool_calls": [{"index": event.index, "function": {"arguments": event.text}}]}
    return {"tool_calls": [{"index": event.index, **_call(event)}]}


def _call(event: ToolCallBegin) -> dict[str, Any]:
    function = {"name": event.name, "arguments": ""}
    return {"id": event.call_id, "type": "function", "function": function}
