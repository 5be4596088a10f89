"""Answers in Anthropic's form: one message, or the events that build it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from server.http.anthropic.content import ContentEvents, whole_blocks
from server.http.anthropic.errors import error_body
from server.http.anthropic.usage import Written, usage_body
from server.http.endpoint import Head
from server.http.engine_like import TextLike
from server.http.errors import ApiError, shutting_down
from server.http.job import Job
from server.http.sse import event
from server.outputs import Completion, Output, Usage


def named_event(data: Mapping[str, Any]) -> bytes:
    """An event as this API has it: its type is its name, too."""
    name: str = data["type"]
    return b"event: " + name.encode("ascii") + b"\n" + event(data)


PING = named_event({"type": "ping"})


@dataclass(frozen=True, slots=True)
class MessagesJob(Job):
    """``marks``: the ends of prefixes that are to stay cached. ``context_length``: the most tokens
    of prompt and answer together."""

    marks: tuple[Written, ...] = ()
    context_length: int = 0


class MessagesReply:
    """An answer on its way to its client."""

    def __init__(self, job: Job, text: TextLike, head: Head) -> None:
        assert isinstance(job, MessagesJob)
        self._job = job
        self._head = head
        self._parser = job.new_parser()
        self._content = ContentEvents()
        self._has_begun = False
        self._ended_to_call = False

    def whole(self, answers: Sequence[Completion], usage: Usage) -> dict[str, Any]:
        """All of it as one message."""
        (answer,) = answers
        parts = [*self._parser.push(answer.text), *self._parser.finish()]
        events = [*self._content.of(parts), *self._content.end()]
        return self._message(usage) | self._end(answer) | {"content": whole_blocks(events)}

    def events(self, choice: int, output: Output, final: Usage | None) -> list[bytes]:
        """The message without content first, then its blocks as they come, and at the end the
        reason for it."""
        if output.finish_reason == "abort":
            return self.failed(shutting_down())
        events: list[Mapping[str, Any]] = []
        if not self._has_begun:
            events.append({"type": "message_start", "message": self._message(output.usage)})
        self._has_begun = True
        events += self._content.of(self._parser.push(output.text))
        if output.finish_reason is not None:
            events += self._content.of(self._parser.finish())
            events += self._content.end()
            usage = usage_body(output.usage, self._job.marks)
            events.append({"type": "message_delta", "delta": self._end(output), "usage": usage})
            events.append({"type": "message_stop"})
        return [named_event(each) for each in events]

    def has_called(self, choice: int) -> bool:
        """Whether the message ended to use a tool."""
        return self._ended_to_call

    def failed(self, error: ApiError) -> list[bytes]:
        """The error, after which nothing comes."""
        return [named_event(error_body(error, self._head.id))]

    def _message(self, usage: Usage) -> dict[str, Any]:
        diagnosis = self._job.diagnosis
        asked = {} if diagnosis is None else {"diagnostics": diagnosis.anthropic(usage)}
        return {
            "id": self._head.id,
            "type": "message",
            "role": "assistant",
            "model": self._head.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_body(usage, self._job.marks),
            **asked,
        }

    def _end(self, answer: Output | Completion) -> dict[str, Any]:
        """Why it has ended."""
        stopped = answer.stop_reason if isinstance(answer.stop_reason, str) else None
        return {"stop_reason": self._reason(answer, stopped), "stop_sequence": stopped}

    def _reason(self, answer: Output | Completion, stopped: str | None) -> str:
        if answer.finish_reason == "stop":
            if stopped is not None:
                return "stop_sequence"
            self._ended_to_call = self._parser.has_called
            return "tool_use" if self._ended_to_call else "end_turn"
        usage = answer.usage
        is_full = usage.prompt_tokens + usage.completion_tokens >= self._job.context_length
        is_short = usage.completion_tokens < self._job.params.max_tokens
        return "model_context_window_exceeded" if is_full and is_short else "max_tokens"
