"""POST /v1/messages/count_tokens: how many tokens a conversation is. Nothing is generated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from server.generation_params import GenerationParams
from server.http.anthropic.errors import ID_HEADER, anthropic_form, error_body
from server.http.anthropic.ready import ready
from server.http.anthropic.reply import named_event
from server.http.anthropic.request import CountRequest
from server.http.body import parse
from server.http.endpoint import Endpoint, Head
from server.http.engine_like import TextLike
from server.http.errors import ApiError
from server.http.job import Context, Job
from server.http.noise import CleanHead
from server.outputs import Completion, Output, Usage


@dataclass(frozen=True, slots=True)
class _CountJob(Job):
    """``tokens``: of the prompt, which is not submitted."""

    tokens: int = 0


class _CountReply:
    """The number alone."""

    def __init__(self, job: Job, text: TextLike, head: Head) -> None:
        assert isinstance(job, _CountJob)
        self._tokens = job.tokens
        self._head = head

    def whole(self, answers: Sequence[Completion], usage: Usage) -> dict[str, Any]:
        """It."""
        return {"input_tokens": self._tokens}

    def events(self, choice: int, output: Output, final: Usage | None) -> list[bytes]:
        """No output ever comes."""
        return []

    def has_called(self, choice: int) -> bool:
        """No answer, no call."""
        return False

    def failed(self, error: ApiError) -> list[bytes]:
        """As in any stream of this API."""
        return [named_event(error_body(error, self._head.id))]


def _prepare(body: bytes, context: Context) -> Job:
    head = CleanHead(context.noise)
    fields = parse(body, CountRequest, head.strip)
    made = ready(fields, context)
    return _CountJob(
        prompts=(),
        params=GenerationParams(),
        stream=False,
        include_usage=False,
        ignored=fields.ignored(context.engine.text),
        headers=head.header(),
        tokens=len(made.prompt.ids),
    )


COUNT_TOKENS = Endpoint(
    id_prefix="req_",
    prompt_field="messages",
    prepare=_prepare,
    reply=_CountReply,
    error=anthropic_form,
    id_header=ID_HEADER,
)
