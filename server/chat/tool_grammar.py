"""Answers that must call a tool, as a grammar: in the model's own form, with the tool's schema.

The grammar is in llguidance's dialect of Lark. A mark that is a token of its own is written as that
token, since models were trained on it and not on its letters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from server.chat.answer_forms import AnswerForms
from server.chat.argument_types import types_of
from server.chat.reasoning import ReasoningTags
from server.constraint import Constraint

TokenOf = Callable[[str], int | None]

_TEXT = "/(?s:.*)/"
# So that no call is blanks without end.
_SPACES = {"whitespace_pattern": r" |\n {0,32}"}
_VALUE_END = "\n</parameter>\n"

_TEXT = "/(?s:.*)/"


def call_constraint(
    forms: AnswerForms,
    definitions: Sequence[Mapping[str, Any]],
    prompt: str,
    token_of: TokenOf,
    *,
    several: bool,
) -> Constraint:
    """An answer to ``prompt`` that is a call of one of these tools, or (``several``) of one after
    the other, maybe after reasoning. ``token_of``: the token that a mark is, if it is one.

    Raises ValueError where it is not known how the model writes calls.
    """
    write = _WRITERS.get(forms.calls)
    if write is None:
        raise ValueError("it is not known in which form this model writes tool calls")
    grammar = _Grammar(token_of, several)
    calls = write(grammar, forms, [_Tool(index, each) for index, each in enumerate(definitions)])
    start = f"start: {_thought(grammar, forms.reasoning, prompt)}{calls}"
    source = "\n".join(["%llguidance {}", start, *grammar.rules, ""])
    return Constraint("lark", source, "tool_choice")


def reasoning_before(forms: AnswerForms, prompt: str, token_of: TokenOf) -> str:
    """The rule ``before`` and what it needs: reasoning that may, or has to, come before an answer
    to ``prompt``. Empty where none can come."""
    grammar = _Grammar(token_of, several=False)
    thought = _thought(grammar, forms.reasoning, prompt)
    if not thought:
        return ""
    grammar.rule("before", thought)
    return "\n".join(grammar.rules)


def calls_instead(
    forms: AnswerForms,
    definitions: Sequence[Mapping[str, Any]],
    token_of: TokenOf,
    *,
    several: bool,
) -> str:
    """The rule ``instead`` and what it needs: a call, or several, where an answer has to be
    something else or that. Empty where it is not known how the model writes calls."""
    write = _WRITERS.get(forms.calls)
    if write is None:
        return ""
    grammar = _Grammar(token_of, several)
    tools = [_Tool(index, each) for index, each in enumerate(definitions)]
    grammar.rule("instead", write(grammar, forms, tools))
    return "\n".join(grammar.rules)


class _Tool:
    """A tool, and where its schema stands in the schemas of the grammar: references inside of it
    have to be found there."""

    def __init__(self, index: int, definition: Mapping[str, Any]) -> None:
        function = definition.get("function", definition)
        self.index = index
        self.name: str = function["name"]
        self.schema: dict[str, Any] = function.get("parameters") or {"type": "object"}
        self.place = f"#/$defs/tool_{index}"

    def defined(self) -> dict[str, Any]:
        """Its schema under the name of its place."""
        return {f"tool_{self.index}": _moved(self.schema, self.place)}

    def arguments(self) -> dict[str, Any]:
        """A schema of its arguments by themselves."""
        return {"$ref": self.place, "$defs": self.defined()}


class _Grammar:
    """The rules so far."""

    def __init__(self, token_of: TokenOf, several: bool) -> None:
        self.rules: list[str] = []
        self.several = several
        self._token_of = token_of

    def mark(self, text: str) -> str:
        """A mark, as a token if it is one."""
        token = self._token_of(text)
        return _literal(text) if token is None else f"<[{token}]>"

    def rule(self, name: str, body: str, options: str = "") -> str:
        """Add a rule; its name."""
        self.rules.append(f"{name}{options}: {body}")
        return name

    def schema(self, name: str, schema: Mapping[str, Any]) -> str:
        """Add a rule for JSON of a schema; its name."""
        return self.rule(name, f"%json {json.dumps({**schema, 'x-guidance': _SPACES})}")

    def text_up_to(self, name: str, mark: str) -> str:
        """Add a rule for any text up to a mark, and the mark; its name."""
        if self._token_of(mark) is not None:
            return self.rule(name, f"{_TEXT} {self.mark(mark)}")
        return self.rule(name, _TEXT, f"[suffix={_literal(mark)}]")

    def repeated(self, call: str, between: str) -> str:
        """A call, or several with something between them."""
        return f"{call} ({between} {call})*" if self.several else call


def _thought(grammar: _Grammar, tags: ReasoningTags | None, prompt: str) -> str:
    """Reasoning before a call: it has to end where the prompt has begun it, and may come where the
    prompt has not ended it."""
    end = prompt.rstrip()
    if tags is None or end.endswith(tags.closing):
        return ""
    thought = f"{grammar.text_up_to('thought', tags.closing)} /\\n*/ "
    return thought if end.endswith(tags.opening) else f"({grammar.mark(tags.opening)} {thought})? "


def _tagged_calls(grammar: _Grammar, forms: AnswerForms, tools: Sequence[_Tool]) -> str:
    inner = grammar.schema("object", _call_schema(tools, "arguments"))
    opening, closing = grammar.mark("<tool_call>"), grammar.mark("</tool_call>")
    call = grammar.rule("call", f'{opening} "\\n" {inner} "\\n" {closing}')
    return grammar.repeated(call, _literal("\n"))


def _bare_calls(grammar: _Grammar, forms: AnswerForms, tools: Sequence[_Tool]) -> str:
    call = grammar.schema("call", _call_schema(tools, "parameters"))
    return grammar.repeated(call, _literal("; "))


def _mistral_calls(grammar: _Grammar, forms: AnswerForms, tools: Sequence[_Tool]) -> str:
    opening = grammar.mark("[TOOL_CALLS]")
    if not forms.marks_arguments:
        call = grammar.schema("call", _call_schema(tools, "arguments"))
        return f'{opening} " [" {grammar.repeated(call, _literal(", "))} "]"'
    ways = [
        f"{_literal(tool.name)} {grammar.mark('[ARGS]')} "
        + grammar.schema(f"arguments_{tool.index}", tool.arguments())
        for tool in tools
    ]
    call = grammar.rule("call", f"{opening} ({' | '.join(ways)})")
    return f"{call}+" if grammar.several else call


def _xml_calls(grammar: _Grammar, forms: AnswerForms, tools: Sequence[_Tool]) -> str:
    ways = [
        f"{_literal(f'{tool.name}>')} {_literal(chr(10))} {_xml_parameters(grammar, tool)}"
        for tool in tools
    ]
    opening, closing = grammar.mark("<tool_call>"), grammar.mark("</tool_call>")
    inner = f'"\\n<function=" ({" | ".join(ways)}) "</function>\\n"'
    return grammar.repeated(grammar.rule("call", f"{opening} {inner} {closing}"), _literal("\n"))


def _xml_parameters(grammar: _Grammar, tool: _Tool) -> str:
    """The parameters in the schema's order, those that are not required maybe left out."""
    properties = tool.schema.get("properties")
    required = tool.schema.get("required")
    parts = []
    for index, (key, schema) in enumerate((properties or {}).items()):
        name = f"value_{tool.index}_{index}"
        opening = _literal(f"<parameter={key}>\n")
        allowed = schema.get("enum") if isinstance(schema, dict) else None
        if types_of(schema, tool.schema) - {"string"}:
            place = f"{tool.place}/properties/{_pointer(key)}"
            value = grammar.schema(name, {"$ref": place, "$defs": tool.defined()})
        elif isinstance(allowed, list) and allowed:
            value = f"({' | '.join(_literal(str(each)) for each in allowed)})"
        else:
            value = ""
            opening += " " + grammar.text_up_to(name, _VALUE_END)
        parameter = f"{opening} {value} {_literal(_VALUE_END)}" if value else opening
        parts.append(parameter if key in (required or ()) else f"({parameter})?")
    return " ".join(parts)


def _call_schema(tools: Sequence[_Tool], arguments: str) -> dict[str, Any]:
    """A call as an object, the name first."""
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": tool.name}, arguments: {"$ref": tool.place}},
            "required": ["name", arguments],
            "additionalProperties": False,
        }
        for tool in tools
    ]
    defined: dict[str, Any] = {}
    for tool in tools:
        defined |= tool.defined()
    return {"anyOf": calls, "$defs": defined}


def _moved(schema: Any, place: str) -> Any:
    """A schema that stands at another place: its references to itself begin there."""
    if isinstance(schema, Mapping):
        return {
            key: place + value.removeprefix("#")
            if key == "$ref" and isinstance(value, str) and value.startswith("#")
            else _moved(value, place)
            for key, value in schema.items()
        }
    return [_moved(each, place) for each in schema] if isinstance(schema, list) else schema


def _literal(text: str) -> str:
    """A text as a grammar has it."""
    return json.dumps(text)


def _pointer(key: str) -> str:
    """A key in a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


_WRITERS = {
    "hermes": _tagged_calls,
    "llama": _bare_calls,
    "mistral": _mistral_calls,
    "qwen-xml": _xml_calls,
}
