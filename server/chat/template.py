"""The model's chat template: a conversation to text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from jinja2.exceptions import TemplateError

from server.chat.prompt import ChatOptions
from server.errors import RequestRefused

# What a template may raise about what it is given.
_REFUSALS = (
    TemplateError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
# Names that stand for something else than a variable of the template.
RESERVED = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "conversations",
        "documents",
        "max_length",
        "messages",
        "padding",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "sanitize_control_tokens",
        "tokenize",
        "tokenizer_kwargs",
        "tools",
        "truncation",
    }
)
_PROBE = '{"zq": "1"}'


class ChatTemplate:
    """``tokenizer`` is transformers', of which only the template is used. Thread-safe; blocks."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        templates = tokenizer.chat_template or ""
        # Some have one for conversations with tools and one for others.
        self.source = templates if isinstance(templates, str) else "\n".join(templates.values())

    @property
    def takes_tools(self) -> bool:
        """Whether it shows tool definitions to the model."""
        return "tools" in self.source

    def knows(self, variable: str) -> bool:
        """Whether it looks at a variable of this name."""
        return re.search(rf"\b{re.escape(variable)}\b", self.source) is not None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[dict[str, Any]] | None,
        options: ChatOptions,
    ) -> str:
        """The conversation's text, special tokens included.

        Raises RequestRefused when there is no template, or it refuses the messages.
        """
        if not self.source:
            raise RequestRefused(
                "this model has no chat template; use /v1/completions with a prompt of your own",
                param="messages",
                code="no_chat_template",
            )
        fitting = _with_names(messages)
        if not self._takes_text_arguments:
            fitting = [_with_objects(message) for message in fitting]
        try:
            return self._apply(fitting, tools, options)
        except _REFUSALS as error:
            raise RequestRefused(
                f"the model's chat template refuses these messages: {str(error)[:500]}",
                param="messages",
            ) from error

    def _apply(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[dict[str, Any]] | None,
        options: ChatOptions,
    ) -> str:
        text: str = self._tokenizer.apply_chat_template(
            list(messages),
            tools=list(tools) if tools else None,
            add_generation_prompt=options.add_generation_prompt,
            continue_final_message=options.continue_final_message,
            tokenize=False,
            **options.variables,
        )
        return text

    @cached_property
    def _takes_text_arguments(self) -> bool:
        """Whether it writes a call's arguments as they are, if they are JSON text. That keeps a
        model's own words. Most templates want an object, and write that in their own way."""
        as_text, as_object = self._probe(_PROBE), self._probe(json.loads(_PROBE))
        return as_text is not None and _PROBE in as_text and as_object in (as_text, None)

    def _probe(self, arguments: Any) -> str | None:
        """How it writes a call with these arguments; None if it does not."""
        function = {"name": "probe", "arguments": arguments}
        call = {"id": "call00000", "type": "function", "function": function}
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": "probe"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
        ]
        try:
            return self._apply(messages, None, ChatOptions(add_generation_prompt=False))
        except _REFUSALS:
            return None


def _with_names(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Tools' messages with the name of the tool, which some templates insist on and clients do not
    send: it is that of the call that they answer."""
    names: dict[str, str] = {}
    fitting: list[Mapping[str, Any]] = []
    for message in messages:
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and isinstance(call.get("id"), str):
                names[call["id"]] = function.get("name", "")
        name = names.get(message.get("tool_call_id") or "")
        if message.get("role") == "tool" and "name" not in message and name:
            message = {**message, "name": name}
        fitting.append(message)
    return fitting


def _with_objects(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message whose calls have their arguments as objects, as far as they are JSON."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    return {**message, "tool_calls": [_with_object(call) for call in calls]}


def _with_object(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except (ValueError, RecursionError):
        return call
    return {**call, "function": {**function, "arguments": arguments}}
