"""POST /v1/messages: a conversation in, the assistant's next message out."""

from __future__ import annotations

from server.generation_params import GenerationParams, Retain
from server.http.anthropic.errors import ID_HEADER, anthropic_form
from server.http.anthropic.ready import ready
from server.http.anthropic.reply import PING, MessagesJob, MessagesReply
from server.http.anthropic.request import MessagesRequest
from server.http.body import parse
from server.http.endpoint import Endpoint
from server.http.job import Context, Job
from server.http.noise import CleanHead
from server.http.prompt_facts import PromptFacts
from server.near_miss import PromptSource


def _prepare(body: bytes, context: Context) -> Job:
    info, text = context.engine.info, context.engine.text
    head = CleanHead(context.noise)
    fields = parse(body, MessagesRequest, head.strip)
    made = ready(fields, context)
    tools, prompt = made.tools, made.prompt
    marks = made.marks(text, info.block_size) if info.retains else ()
    caching = fields.caching(context)
    retain = [Retain(each.tokens, each.seconds) for each in marks if each.tokens]
    asked = fields.diagnostics
    is_lost = bool(made.conversation.marks) and not info.retains
    return MessagesJob(
        prompts=[prompt.ids],
        params=GenerationParams(
            max_tokens=fields.max_tokens,
            sampling=tools.sampling(fields.sampling(info.sampling), text),
            stop=tuple(fields.stop_sequences or ()),
            namespace=caching.namespace,
            cache_mode=caching.mode,
            retain=(*retain, *caching.retain),
            session=caching.session,
            shown_tokens=text.marks(tools=tools.may_call),
            constraint=tools.constraint(fields.constraint(), text, prompt),
        ),
        stream=bool(fields.stream),
        include_usage=False,
        ignored=(
            *fields.ignored(text),
            *(["cache_control"] if is_lost else []),
            *caching.ignored,
        ),
        headers=head.header(),
        new_parser=tools.new_parser(text, prompt),
        remember=prompt.remember if caching.mode.stores else None,
        facts=(
            PromptFacts(
                PromptSource(prompt.text, made.conversation.messages, tools.for_template or ()),
                made.options.variables,
                asked is not None,
                None if asked is None else asked.previous_message_id,
            ),
        ),
        marks=marks,
        context_length=info.context_length,
    )


MESSAGES = Endpoint(
    id_prefix="msg_",
    prompt_field="messages",
    prepare=_prepare,
    reply=MessagesReply,
    error=anthropic_form,
    id_header=ID_HEADER,
    ping=PING,
)
