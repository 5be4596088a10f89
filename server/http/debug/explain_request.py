"""The body of POST /debug/explain, and which prompt it means."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pydantic import Field, model_validator

from radix_engine.cache import CacheMode, MatchEnd, Namespace
from server.debug.lives import Life
from server.http.anthropic.ready import ready
from server.http.anthropic.recognised import is_messages_body
from server.http.anthropic.request import CountRequest
from server.http.body import checked, read_object
from server.http.cache_fields import namespace_of
from server.http.debug.sections import Sections, sections_of
from server.http.errors import ApiError
from server.http.job import Context
from server.http.noise import CleanHead
from server.http.openai.chat_message import Message
from server.http.openai.chat_request import ChatRequest
from server.http.prompt_ids import TextOrIds

_TENANT = Field(
    None, min_length=1, description="Whose request it would be; default: the key's own tenant."
)


class ExplainMessages(CountRequest):
    """A prompt as a body for /v1/messages has it: told by what only that API knows (system,
    input_schema, blocks of tools and thinking). Fields that say how to answer are accepted and
    change nothing."""

    tenant: str | None = _TENANT


class ExplainRequest(ChatRequest):
    """A prompt as a body for /v1/completions or /v1/chat/completions has it, or the id of a recent
    request. Fields that say how to answer are accepted and change nothing."""

    messages: list[Message] = Field([], description="The conversation, a list.")
    prompt: TextOrIds = Field(
        None, min_length=1, description="In place of messages: a string, or a list of token ids."
    )
    request_id: str | None = Field(
        None, min_length=1, description="In place of both: a recent request's X-Request-Id."
    )
    tenant: str | None = _TENANT

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


def read_question(body: bytes, context: Context) -> Question | str:
    """What a body asks; or the id of a recent request, if it asks of that. Blocks: tokenises.
    Raises ApiError or RequestRefused."""
    data = read_object(body)
    CleanHead(context.noise).strip(data)
    if is_messages_body(data):
        return _of_messages(checked(data, ExplainMessages), context)
    fields = checked(data, ExplainRequest)
    fields.check(context.names)
    return _of_prompt(fields, context) if fields.request_id is None else fields.request_id


def _of_messages(fields: ExplainMessages, context: Context) -> Question:
    context = _as_tenant(context, fields.tenant)
    made, caching = ready(fields, context), fields.caching(context)
    text, prompt = context.engine.text, made.prompt
    found = sections_of(
        text,
        prompt.ids,
        prompt.text,
        made.conversation.messages,
        made.tools.for_template,
        made.options,
    )
    return Question(list(prompt.ids), caching.namespace, caching.mode, found)


def _as_tenant(context: Context, tenant: str | None) -> Context:
    if tenant is None:
        return context
    return replace(context, caller=replace(context.caller, tenant=tenant))


def _of_prompt(fields: ExplainRequest, context: Context) -> Question:
    text = context.engine.text
    context = _as_tenant(context, fields.tenant)
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
