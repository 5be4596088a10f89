"""In which form a model writes its reasoning and its tool calls."""

from __future__ import annotations

import secrets
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from server.chat.calls import CallsParser, new_call_id
from server.chat.mistral_calls import MistralCalls
from server.chat.object_calls import BareCalls, TaggedCalls
from server.chat.parser import AnswerParser, PlainParser
from server.chat.reasoning import ReasoningParser, ReasoningTags
from server.chat.xml_calls import XmlCalls

AUTO = "auto"
NONE = "none"

# Form of calls -> the words in a chat template that tell it; the first that has all of its own.
_TOLD_BY: Mapping[str, tuple[str, ...]] = {
    "mistral": ("[TOOL_CALLS]",),
    "qwen-xml": ("<function=", "<parameter="),
    "hermes": ("<tool_call>",),
    "llama": ('"name": ', '"parameters": '),
}
# Of a form that begins alike and is another one.
_TOLD_AGAINST = ("<arg_key>", "<|tool_call", "<\uff5ctool", "functools[")
_THINK = ReasoningTags("<think>", "</think>")
_MISTRAL_THINK = ReasoningTags("[THINK]", "[/THINK]")
_REASONING: Mapping[str, ReasoningTags | None] = {
    "think": _THINK,
    "mistral": _MISTRAL_THINK,
    NONE: None,
}
# The special tokens that a form may be written with; the first opens a call.
_MARKS: Mapping[str, tuple[str, ...]] = {
    "mistral": ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
    "qwen-xml": ("<tool_call>", "</tool_call>"),
    "hermes": ("<tool_call>", "</tool_call>"),
    "llama": ("<|python_tag|>",),
    NONE: (),
}

TOOL_CALL_FORMS = (AUTO, *_TOLD_BY, NONE)
REASONING_FORMS = (AUTO, *_REASONING)


@dataclass(frozen=True, slots=True)
class AnswerForms:
    """``calls``: a key of the forms above; ``reasoning``: what stands around it, if the model
    reasons. ``marks_arguments``: of Mistral's form, the later one."""

    calls: str
    reasoning: ReasoningTags | None
    marks_arguments: bool = False

    def marks(self, *, tools: bool) -> tuple[str, ...]:
        """What may be special tokens, and has to be seen by a parser."""
        of_reasoning = (self.reasoning.opening, self.reasoning.closing) if self.reasoning else ()
        return (*of_reasoning, *(_MARKS[self.calls] if tools else ()))

    @property
    def openings(self) -> tuple[str, ...]:
        """The marks that calls begin with."""
        return _MARKS[self.calls][:1]

    def begins_inside(self, prompt: str) -> bool:
        """Whether an answer to this prompt begins inside the reasoning."""
        return self.reasoning is not None and prompt.rstrip().endswith(self.reasoning.opening)

    def parser(
        self,
        definitions: Sequence[Mapping[str, Any]] | None,
        *,
        inside: bool,
        hidden: Sequence[str] = (),
    ) -> AnswerParser:
        """For an answer that may call these tools (None: calls are content). ``inside``: it begins
        inside the reasoning. ``hidden``: marks that are special tokens."""
        inner: AnswerParser = PlainParser()
        if definitions is not None and self.calls != NONE:
            inner = _calls_parser(self.calls, definitions, hidden)
        if self.reasoning is None:
            return inner
        # Qwen's models of this form are known to call a tool without ending their reasoning.
        calls = definitions is not None and self.calls == "qwen-xml"
        interrupting = ("<tool_call>\n<function=",) if calls else ()
        return ReasoningParser(inner, self.reasoning, inside=inside, interrupting=interrupting)


def forms_of(template: str, calls: str = AUTO, reasoning: str = AUTO) -> AnswerForms:
    """The forms that a chat template tells of, where they are not given.

    Raises ValueError for a form that there is not.
    """
    for name, value, known in (
        ("tool call", calls, TOOL_CALL_FORMS),
        ("reasoning", reasoning, REASONING_FORMS),
    ):
        if value not in known:
            raise ValueError(f"the {name} form must be one of {', '.join(known)}, not {value!r}")
    if calls == AUTO:
        told = (form for form, words in _TOLD_BY.items() if all(each in template for each in words))
        is_other = any(words in template for words in _TOLD_AGAINST)
        calls = NONE if is_other else next(told, NONE)
    marked = "[ARGS]" in template
    if reasoning != AUTO:
        return AnswerForms(calls, _REASONING[reasoning], marked)
    if _MISTRAL_THINK.opening in template:
        return AnswerForms(calls, _MISTRAL_THINK, marked)
    return AnswerForms(calls, _THINK if _THINK.closing in template else None, marked)


def _calls_parser(
    form: str, definitions: Sequence[Mapping[str, Any]], hidden: Sequence[str]
) -> CallsParser:
    if form == "hermes":
        return TaggedCalls(new_call_id, hidden)
    if form == "qwen-xml":
        return XmlCalls(new_call_id, hidden, definitions)
    if form == "llama":
        return BareCalls(new_call_id, hidden, names_of(definitions))
    return MistralCalls(_mistral_call_id, hidden)


def names_of(definitions: Sequence[Mapping[str, Any]]) -> list[str]:
    """The tools' names."""
    functions = (each.get("function", each) for each in definitions)
    return [each["name"] for each in functions if isinstance(each, Mapping) and "name" in each]


def _mistral_call_id() -> str:
    """Mistral's templates refuse ids of another length."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))
