"""A messages body made ready: its conversation in tokens, and where its marks are in them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from server.chat.prompt import ChatOptions, ChatPrompt
from server.errors import RequestRefused
from server.http.anthropic.conversation import Conversation
from server.http.anthropic.fields import ConversationFields
from server.http.anthropic.usage import Written
from server.http.breakpoints import tokens_before_marks
from server.http.cache_fields import namespace_of
from server.http.engine_like import TextLike
from server.http.job import Context
from server.http.tool_use import ToolUse


@dataclass(frozen=True, slots=True)
class Ready:
    """``tools`` and ``options``: with which the conversation became the ``prompt``."""

    conversation: Conversation
    tools: ToolUse
    options: ChatOptions
    prompt: ChatPrompt

    def marks(self, text: TextLike, block_size: int) -> tuple[Written, ...]:
        """Where the marks are. Cost: a rendering for each, and a look at each token."""
        marks = self.conversation.marks
        before = tokens_before_marks(
            text,
            self.prompt.ids,
            self.prompt.text,
            partial(text.chat_text, options=self.options),
            self.conversation.messages,
            self.tools.for_template,
            [mark for mark, _ in marks],
        )
        return tuple(
            Written(tokens, tokens // block_size * block_size, seconds)
            for tokens, (_, seconds) in zip(before, marks, strict=True)
        )


def ready(fields: ConversationFields, context: Context) -> Ready:
    """Check a body and make tokens of its conversation. Blocks; raises ApiError or
    RequestRefused."""
    fields.check(context.names)
    conversation = fields.conversation()
    try:
        return _rendered(fields, conversation, context)
    except RequestRefused as refusal:
        other = fields.conversation(strict_turns=True)
        if refusal.param != "messages" or other.messages == conversation.messages:
            raise
        return _rendered(fields, other, context)


def _rendered(fields: ConversationFields, conversation: Conversation, context: Context) -> Ready:
    text, tools = context.engine.text, fields.tool_use()
    options = fields.chat_options(text, conversation)
    prompt = text.chat_prompt(
        conversation.messages,
        tools.for_template,
        options=options,
        namespace=namespace_of(context.caller, fields.cache_salt),
    )
    return Ready(conversation, tools, options, prompt)
