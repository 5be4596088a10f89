"""POST /v1/cache/prewarm: compute and store the head of prompts before the first one comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field, model_validator

from server.generation_params import GenerationParams, Retain
from server.http.body import parse
from server.http.cache_fields import MAX_NAME, namespace_of
from server.http.endpoint import Endpoint, Head
from server.http.engine_like import TextLike
from server.http.errors import ApiError
from server.http.job import Context, Job
from server.http.noise import CleanHead
from server.http.openai.chat_message import Message
from server.http.openai.chat_request import ChatRequest
from server.http.prompt_head import PromptHead, filled, head_of_chat
from server.http.prompt_ids import TextOrIds
from server.http.sse import event
from server.http.usage import match_end_body
from server.outputs import Completion, Output, Usage


class HeadFields(ChatRequest):
    """A body that names the head of prompts: messages and tools, or a prompt. Fields that say how
    to answer are accepted, as a chat's body has them, and change nothing."""

    messages: list[Message] = Field(
        [], description="The conversation's first messages, a list; may end with the system's."
    )
    prompt: TextOrIds = Field(
        None, min_length=1, description="In place of messages: a string, or a list of token ids."
    )
    name: str | None = Field(
        None, min_length=1, max_length=MAX_NAME, description="A name for lists, a string."
    )

    @model_validator(mode="after")
    def _has_a_head(self) -> HeadFields:
        if (self.prompt is None) == (not self.messages and not self.tools):
            raise ValueError("send either messages (and tools), or prompt.")
        return self

    def head(self, context: Context) -> PromptHead:
        """The head, in tokens. Blocks. Raises RequestRefused."""
        text, info = context.engine.text, context.engine.info
        if self.prompt is not None:
            ids = text.encode(self.prompt) if isinstance(self.prompt, str) else self.prompt
            return filled(ids, info)
        return head_of_chat(
            text,
            info,
            [message.for_template() for message in self.messages],
            list(self.tool_use().definitions) or None,
            self.chat_options(text).variables,
            namespace_of(context.caller, self.cache_salt),
        )


class PrewarmRequest(HeadFields):
    """The body of POST /v1/cache/prewarm."""


@dataclass(frozen=True, slots=True)
class PrewarmJob(Job):
    """``head_tokens``: how many of the prompt's tokens are the head."""

    head_tokens: int = 0


class PrewarmReply:
    """What a prewarm has done, in one body."""

    def __init__(self, job: Job, text: TextLike, head: Head) -> None:
        assert isinstance(job, PrewarmJob)
        self._tokens = job.head_tokens
        self._head = head

    def whole(self, answers: Sequence[Completion], usage: Usage) -> dict[str, Any]:
        """How much of the head was there, and how much is kept."""
        cached = min(usage.cached_tokens, self._tokens)
        kept = usage.retained
        return {
            "id": self._head.id,
            "object": "cache.prewarm",
            "created": self._head.created,
            "model": self._head.model,
            "tokens": self._tokens,
            "cached": cached,
            "computed": self._tokens - cached,
            "retained": 0 if kept is None else min(kept.tokens, self._tokens),
            "refused": None if kept is None else kept.refused,
            "retention_id": None if kept is None else kept.id,
            "match_end": match_end_body(usage.match_end),
        }

    def events(self, choice: int, output: Output, final: Usage | None) -> list[bytes]:
        """The body as an event, at the end."""
        return [] if final is None else [event(self.whole((), final))]

    def has_called(self, choice: int) -> bool:
        """No answer, no call."""
        return False

    def failed(self, error: ApiError) -> list[bytes]:
        """The error as an event."""
        return [event(error.body())]


def _prepare(body: bytes, context: Context) -> Job:
    engine, noise = context.engine, CleanHead(context.noise)
    fields = parse(body, PrewarmRequest, noise.strip)
    fields.check(context.names)
    caching = fields.caching(context)
    if not engine.info.prefix_cache or not caching.mode.stores:
        raise ApiError(
            400,
            "There is nothing to store: this server has no prefix cache (--prefix-cache), or "
            "cache_mode is not default.",
            param="cache_mode",
            code="nothing_stored",
        )
    head = fields.head(context)
    retain = tuple(
        Retain(len(head.filled), each.seconds, fields.name) for each in caching.retain[-1:]
    )
    return PrewarmJob(
        prompts=[head.filled],
        params=GenerationParams(
            max_tokens=0, namespace=caching.namespace, retain=retain, session=caching.session
        ),
        stream=False,
        include_usage=False,
        ignored=(*fields.ignored(), *caching.ignored, *fields.without_effect(engine.text)),
        headers=noise.header(),
        head_tokens=head.tokens,
    )


PREWARM = Endpoint(
    id_prefix="prewarm-",
    prompt_field="prompt",
    prepare=_prepare,
    reply=PrewarmReply,
)
