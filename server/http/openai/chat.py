"""POST /v1/chat/completions: a conversation in, the assistant's next message out."""

from __future__ import annotations

from functools import partial

from server.chat.prompt import ChatPrompt
from server.generation_params import GenerationParams
from server.http.body import parse
from server.http.breakpoints import tokens_before_marks
from server.http.cache_fields import namespace_of
from server.http.endpoint import Endpoint, Head
from server.http.engine_like import TextLike
from server.http.errors import ApiError
from server.http.job import Context, Job
from server.http.noise import CleanHead
from server.http.openai.answer_fields import AnswerParams
from server.http.openai.chat_choice import ChatChoice
from server.http.openai.chat_request import ChatRequest
from server.http.openai.reply import OpenAIReply
from server.http.prompt_facts import PromptFacts
from server.http.tool_use import ToolUse
from server.near_miss import PromptSource


def _prepare(body: bytes, context: Context) -> Job:
    engine, text = context.engine, context.engine.text
    head = CleanHead(context.noise)
    fields = parse(body, ChatRequest, head.strip)
    fields.check(context.names)
    tools, options = fields.tool_use(), fields.chat_options(text)
    messages = [message.for_template() for message in fields.messages]
    definitions = tools.for_template
    namespace = namespace_of(context.caller, fields.cache_salt)
    prompt = text.chat_prompt(messages, definitions, options=options, namespace=namespace)
    marks = fields.marks if engine.info.retains else []
    render = partial(text.chat_text, options=options)
    before = tokens_before_marks(
        text, prompt.ids, prompt.text, render, messages, definitions, marks
    )
    caching = fields.caching(context, before)
    most = fields.token_limit(engine.info.context_length)
    params = GenerationParams(
        max_tokens=most,
        sampling=tools.sampling(fields.sampling(engine.info.sampling), text),
        stop=fields.stop,
        n=fields.n or 1,
        priority=fields.priority or 0,
        timeout_s=fields.timeout_s,
        ignore_eos=bool(fields.ignore_eos),
        logprobs=(fields.top_logprobs or 0) if fields.logprobs else None,
        namespace=caching.namespace,
        cache_mode=caching.mode,
        retain=caching.retain,
        session=caching.session,
        skip_special_tokens=fields.skip_special_tokens is not False,
        shown_tokens=text.marks(tools=tools.may_call),
        **_answer_params(fields, most, tools, text, prompt),
    )
    return Job(
        prompts=[prompt.ids],
        params=params,
        stream=bool(fields.stream),
        include_usage=fields.include_usage(),
        ignored=(*fields.ignored(), *caching.ignored, *fields.without_effect(text)),
        headers=head.header(),
        new_parser=tools.new_parser(text, prompt),
        remember=prompt.remember if caching.mode.stores else None,
        facts=(
            PromptFacts(
                PromptSource(prompt.text, messages, definitions or ()),
                options.variables,
                fields.compared_with is not None,
                fields.compared_with,
            ),
        ),
    )


def _answer_params(
    fields: ChatRequest, most: int, tools: ToolUse, text: TextLike, prompt: ChatPrompt
) -> AnswerParams:
    """What the answer has to be, and where it may end. Raises ApiError 400."""
    params = fields.answer_params(most, ignore_eos=fields.ignore_eos)
    if tools.must_call and fields.ignore_eos:
        raise ApiError(
            400,
            "ignore_eos does not go with a tool_choice that asks for a call, after which the "
            "answer ends. Leave ignore_eos out.",
            param="ignore_eos",
            code="unsupported_parameter",
        )
    params["constraint"] = tools.constraint(params["constraint"], text, prompt)
    return params


def _reply(job: Job, text: TextLike, head: Head) -> OpenAIReply:
    return OpenAIReply(job, text, head, "chat.completion", "chat.completion.chunk", ChatChoice)


CHAT = Endpoint(
    id_prefix="chatcmpl-",
    prompt_field="messages",
    prepare=_prepare,
    reply=_reply,
)
