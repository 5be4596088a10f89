"""The body of POST /debug/explain, and which prompt it means."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pydantic import Field, model_validator

from radix_engine.cache import CacheMode, MatchEnd, Namespace
from server.debug.lives import Life
from server.http.cache_fields import namespace_of
from server.http.debug.sections import Sections, sections_of
from server.http.errors import ApiError
from server.http.job import Context
from server.http.openai.chat_message import Message
from server.http.openai.chat_request import ChatRequest


class ExplainRequest(ChatRequest):
    """A prompt as a body for /v1/completions or /v1/chat/completions has it, or the id of a recent
    request. Fields that say how to answer are accepted and change nothing."""

    messages: list[Message] = Field([], description="The conversation, a list.")
    prompt: str | list[int] | None = Field(
        None, min_length=1, description="In place of messages: a string, or a list of token ids."
    )
    request_id: str | None = Field(
        None, min_length=1, description="In place of both: a recent request's X-Request-Id."
    )
    tenant: str | None = Field(
        None, min_length=1, description="Whose request it would be; default: the key's own tenant."
    )

    @model_validator(mode="after")
    def _names_one_prompt(self) -> ExplainRequest:
        if sum((bool(self.messages), self.prompt is not None, self.request_id is not None)) != 1:
            raise ValueError("send one of messages (and tools), prompt, or request_id.")
        return self


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt to explain. ``was``: how its match ended when it was served."""

    tokens: list[int] | bytes
    namespace: Namespace
    mode: CacheMode
    sections: Sections
    was: MatchEnd | None = None
    was_cached: int = 0


def question_of(fields: ExplainRequest, context: Context) -> Question:
    """What a body with a prompt asks. Blocks: tokenises. Raises RequestRefused."""
    text = context.engine.text
    if fields.tenant is not None:
        context = replace(context, caller=replace(context.caller, tenant=fields.tenant))
    caching = fields.caching(context)
    if fields.prompt is not None:
        ids = text.encode(fields.prompt) if isinstance(fields.prompt, str) else fields.prompt
        return Question(list(ids), caching.namespace, caching.mode, Sections())
    messages = [message.for_template() for message in fields.messages]
    tools = list(fields.tool_use().definitions) or None
    options = fields.chat_options(text)
    space = namespace_of(context.caller, fields.cache_salt)
    prompt = text.chat_prompt(messages, tools, options=options, namespace=space)
    found = sections_of(text, prompt.ids, prompt.text, messages, tools, options)
    return Question(list(prompt.ids), space, caching.mode, found)


def question_of_life(life: Life | None, request_id: str) -> Question:
    """What was asked by a recent request. Raises ApiError 404."""
    if life is None or not life.run:
        raise ApiError(
            404,
            f"The prompt of request {request_id[:80]!r} is not known: it has not begun, or is too "
            "long ago. GET /debug/requests lists recent ones; or send the prompt itself.",
            param="request_id",
            code="unknown_request",
        )
    return Question(
        life.run,
        life.namespace,
        CacheMode.DEFAULT,
        Sections(),
        was=life.match_end,
        was_cached=life.cached_tokens,
    )
