"""Answers in OpenAI's form: one body, or chunks that end with ``[DONE]``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from server.http.endpoint import Head
from server.http.engine_like import TextLike
from server.http.errors import ApiError
from server.http.job import Job
from server.http.sse import DONE, event, long_event
from server.http.usage import prompt_details, retention_of
from server.outputs import Completion, Output, Usage


class Choice(Protocol):
    """One choice of an answer on its way to JSON."""

    @property
    def has_called(self) -> bool:
        """Whether it has ended, and to call a tool."""

    def whole(self, answer: Completion) -> dict[str, Any]:
        """All of it at once."""

    def chunks(self, output: Output) -> list[dict[str, Any]]:
        """What a stream shows of the next output; may be nothing."""


class OpenAIReply:
    """The choices of one answer. ``make_choice`` begins one, from (job, the tokenizer, its
    index)."""

    def __init__(
        self,
        job: Job,
        text: TextLike,
        head: Head,
        object_whole: str,
        object_chunk: str,
        make_choice: Callable[[Job, TextLike, int], Choice],
    ) -> None:
        self._include_usage = job.include_usage
        self._diagnosis = job.diagnosis
        self._head = {"id": head.id, "object": "", "created": head.created, "model": head.model}
        self._object_whole = object_whole
        self._object_chunk = object_chunk
        self._make_choice: Callable[[int], Choice] = partial(make_choice, job, text)
        self._choices: dict[int, Choice] = {}

    def whole(self, answers: Sequence[Completion], usage: Usage) -> dict[str, Any]:
        """One body with all choices."""
        self._choices = {index: self._make_choice(index) for index in range(len(answers))}
        choices = [self._choices[index].whole(each) for index, each in enumerate(answers)]
        head = {**self._head, "object": self._object_whole}
        return {**head, "choices": choices, **self._counts(usage)}

    def events(self, choice: int, output: Output, final: Usage | None) -> list[bytes]:
        """The chunks for one output. The counts go on the last chunk of all, or into one of their
        own that follows it."""
        if choice not in self._choices:
            self._choices[choice] = self._make_choice(choice)
        head = {**self._head, "object": self._object_chunk}
        extra = {"usage": None} if self._include_usage else {}
        chunks = [
            {**head, "choices": [shown], **extra} for shown in self._choices[choice].chunks(output)
        ]
        if final is not None and self._include_usage:
            chunks.append({**head, "choices": [], **self._counts(final)})
        elif final is not None and chunks:
            chunks[-1] |= self._counts(final)
        write = event if output.prompt_logprobs is None else long_event
        return [*map(write, chunks), *([DONE] if final is not None else [])]

    def has_called(self, choice: int) -> bool:
        """Whether this choice ended with ``tool_calls``."""
        return self._choices[choice].has_called

    def _counts(self, usage: Usage) -> dict[str, Any]:
        """The counts, and what was asked about them."""
        counts: dict[str, Any] = {"usage": usage_body(usage)}
        if self._diagnosis is not None:
            counts["prompt_cache_diagnostics"] = self._diagnosis.openai(usage)
        return counts

    def failed(self, error: ApiError) -> list[bytes]:
        """The error, and the end of the stream."""
        return [event(error.body()), DONE]


def usage_body(usage: Usage) -> dict[str, Any]:
    """Token counts in OpenAI's form; what was cached, and why no more, is always there."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": prompt_details(usage),
        **retention_of(usage),
    }
