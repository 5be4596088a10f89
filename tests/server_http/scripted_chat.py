"""What the scripted engine's model writes and reads beyond plain text: Qwen3's way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from radix_engine.cache import DEFAULT, Namespace
from server.chat.answer_forms import AnswerForms, forms_of
from server.chat.parser import AnswerParser
from server.chat.prompt import DEFAULT_OPTIONS, ChatOptions, ChatPrompt
from server.chat.tool_grammar import call_constraint, calls_instead, reasoning_before
from server.constraint import Constraint
from server.errors import RequestRefused

FORMS: AnswerForms = forms_of("<tool_call> </think>")
OPENING = 200  # the token that begins a call

# What is answered to the last word of a prompt's first line.
REPLIES: dict[str, tuple[str, ...]] = {
    "calls": (
        "<think>\nTwo ",
        "cities.\n</think>\n\nI will lo",
        'ok.\n<tool_call>\n{"name": "weather", "argu',
        'ments": {"city": "Par',
        'is"}}\n</tool_call>\n<tool_call>\n{"name": "wea',
        'ther", "arguments": {"city": "Oslo"}}\n</tool_call>',
    ),
    "thinks": ("<think>\nHm.\n</think>\n\n", "Yes."),
    "breaks": ("<tool_call>\nno JSON", "\n</tool_call>"),
}


class ScriptedChat:
    """The part of a codec that is about chats. ``chats``: the messages and tools that came;
    ``prompts``: the options and namespace of each; ``remembered``: the tokens of answers."""

    known_variables: tuple[str, ...] = ("reasoning_effort", "enable_thinking")

    def __init__(self) -> None:
        self.chats: list[tuple[list[dict[str, Any]], list[dict[str, Any]] | None]] = []
        self.prompts: list[tuple[ChatOptions, Namespace]] = []
        self.remembered: list[list[int]] = []
        self.replies = dict(REPLIES)

    def encode(self, text: str, /, *, special: bool = True) -> list[int]:
        raise NotImplementedError

    def render_chat(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, /
    ) -> list[int]:
        self.chats.append((messages, tools))
        return self.encode(self.chat_text(messages, tools))

    def chat_text(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        /,
        *,
        options: ChatOptions = DEFAULT_OPTIONS,
    ) -> str:
        if messages[0]["role"] == "tool":
            raise RequestRefused("The chat template refuses a tool result first.", param="messages")
        return "\n".join(message["content"] for message in messages)

    def chat_prompt(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        /,
        *,
        options: ChatOptions = DEFAULT_OPTIONS,
        namespace: Namespace = DEFAULT,
    ) -> ChatPrompt:
        self.prompts.append((options, namespace))
        ids = self.render_chat(messages, tools)
        text = bytes(ids).decode(errors="replace")
        return ChatPrompt(ids, text, remember=lambda answer: self.remembered.append([*answer]))

    def new_parser(
        self,
        *,
        tools: bool,
        definitions: Sequence[dict[str, Any]] = (),
        prompt: ChatPrompt | None = None,
    ) -> AnswerParser:
        return FORMS.parser(definitions if tools else None, inside=False)

    def call_constraint(
        self, definitions: Sequence[dict[str, Any]], prompt: ChatPrompt, /, *, several: bool
    ) -> Constraint:
        return call_constraint(FORMS, definitions, prompt.text, lambda mark: None, several=several)

    def reasoning_before(self, prompt: ChatPrompt, /) -> str:
        return reasoning_before(FORMS, prompt.text, lambda mark: None)

    def calls_instead(self, definitions: Sequence[dict[str, Any]], /, *, several: bool) -> str:
        return calls_instead(FORMS, definitions, lambda mark: None, several=several)

    @property
    def call_openings(self) -> frozenset[int]:
        return frozenset([OPENING])

    def knows_variable(self, name: str, /) -> bool:
        return name in self.known_variables

    def marks(self, *, tools: bool) -> frozenset[int]:
        return frozenset([OPENING]) if tools else frozenset()
