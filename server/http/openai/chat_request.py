"""The body of POST /v1/chat/completions."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from radix_engine.model.token_logprob import MAX_TOP
from server.chat.prompt import ChatOptions
from server.chat.template import RESERVED
from server.http.engine_like import TextLike
from server.http.errors import ApiError
from server.http.model_names import ModelNames
from server.http.openai.chat_message import Message
from server.http.openai.chat_tools import ToolFields, refuse_functions
from server.http.openai.fields import MAX_TOKENS_LIMIT, SharedFields

_EFFORT = "reasoning_effort"


class ChatRequest(ToolFields, SharedFields):
    """The body of POST /v1/chat/completions."""

    messages: list[Message] = Field(
        min_length=1,
        description="The conversation so far, a list of at least one message.",
    )
    max_completion_tokens: int | None = Field(
        None,
        ge=1,
        le=MAX_TOKENS_LIMIT,
        description="Another name for max_tokens; default: as many as fit in the context.",
    )
    logprobs: bool | None = Field(
        None, description="true: give the log-probability of each token of the answer."
    )
    top_logprobs: int | None = Field(
        None,
        ge=0,
        le=MAX_TOP,
        description="With logprobs: also give those of so many likeliest tokens in each one's "
        f"place, a whole number from 0 to {MAX_TOP}; default 0.",
    )
    add_generation_prompt: bool | None = Field(
        None,
        description="false: the prompt does not end with what begins an assistant's message. "
        "Default true.",
    )
    continue_final_message: bool | None = Field(
        None,
        description="true: the answer goes on where the last message, an assistant's, ends. Not "
        "with add_generation_prompt: true.",
    )
    chat_template_kwargs: dict[str, Any] | None = Field(
        None,
        description="Variables for the chat template, an object such as {enable_thinking: false}.",
    )
    reasoning_effort: str | None = Field(
        None, description="Given to the chat template, if it looks at it; such as low or high."
    )

    def check(self, names: ModelNames) -> None:
        """As in `SharedFields`, and that the fields go together."""
        refuse_functions(self.model_extra or {})
        super().check(names)
        if self.top_logprobs and not self.logprobs:
            raise ApiError(
                400,
                f"top_logprobs is {self.top_logprobs}, which goes with logprobs: true. Send that "
                "too, or leave top_logprobs out.",
                param="top_logprobs",
                code="invalid_value",
            )
        if self.continue_final_message:
            self._check_continuing()
        reserved = sorted(RESERVED.intersection(self.chat_template_kwargs or ()))
        if reserved:
            raise ApiError(
                400,
                f"chat_template_kwargs has {reserved[0]}, which is no variable of a chat template. "
                "Leave it out; messages, tools and the like are fields of their own.",
                param="chat_template_kwargs",
                code="invalid_value",
            )

    def token_limit(self, fitting: int) -> int:
        """The most tokens to generate; ``fitting`` if the request does not say."""
        first, second = self.max_tokens, self.max_completion_tokens
        if first is not None and second is not None and first != second:
            raise ApiError(
                400,
                f"max_tokens is {first} and max_completion_tokens is {second}, but they mean the "
                "same. Send only one of them.",
                param="max_completion_tokens",
                code="invalid_value",
            )
        return first or second or fitting

    def chat_options(self, text: TextLike) -> ChatOptions:
        """How the conversation is made ready."""
        variables = dict(self.chat_template_kwargs or {})
        if self.reasoning_effort is not None and text.knows_variable(_EFFORT):
            variables.setdefault(_EFFORT, self.reasoning_effort)
        continues = bool(self.continue_final_message)
        return ChatOptions(
            add_generation_prompt=not continues and self.add_generation_prompt is not False,
            continue_final_message=continues,
            variables=variables,
        )

    def without_effect(self, text: TextLike) -> tuple[str, ...]:
        """Names of the fields that the others, or the model's chat template, leave no effect."""
        names = ["tools"] if self.tools and not text.takes_tools else []
        constraint = self.constraint()
        if constraint is not None and self.tool_use().must_call:
            names.append(constraint.param)  # a call is no content
        if self.reasoning_effort is not None and not text.knows_variable(_EFFORT):
            names.append(_EFFORT)
        unknown = [
            each for each in self.chat_template_kwargs or {} if not text.knows_variable(each)
        ]
        return (*names, *(f"chat_template_kwargs.{name}" for name in unknown))

    def _check_continuing(self) -> None:
        if self.add_generation_prompt:
            raise ApiError(
                400,
                "continue_final_message and add_generation_prompt are both true, but a prompt ends "
                "with an open message or with the beginning of a new one. Send only one of them.",
                param="continue_final_message",
                code="invalid_value",
            )
        last = self.messages[-1].role if self.messages else None
        if last != "assistant":
            what = (
                "there are no messages" if last is None else f"the last message is of role {last}"
            )
            raise ApiError(
                400,
                f"continue_final_message is true, but {what}. Let an assistant's be the last, or "
                "leave continue_final_message out.",
                param="continue_final_message",
                code="invalid_value",
            )
