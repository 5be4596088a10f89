"""Answers that must call a tool: the grammar takes calls in the model's form, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from server.chat.answer_forms import forms_of
from server.chat.tool_grammar import call_constraint, calls_instead, reasoning_before
from server.constrained.compiling import compile_grammar, make_tokenizer
from server.constrained.grammar_text import grammar_of
from server.constraint import Constraint
from tests.server_chat.parsing import message_of
from tests.server_chat.tiny_tokenizer import BOS, END, START, write_tokenizer

SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"$ref": "#/$defs/Count"},
        "s": {"type": "string"},
        "e": {"type": "string", "enum": ["low", "high"]},
    },
    "required": ["n"],
    "additionalProperties": False,
    "$defs": {"Count": {"type": "integer", "minimum": 1}},
}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "f", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "g"}},
]
F = '{"name": "f", "arguments": {"n": 1}}'
G = '{"name": "g", "arguments": {"any": [1, "x"]}}'


class Grammars:
    """Grammars over a tokenizer that has some marks as tokens."""

    def __init__(self, folder: Path) -> None:
        marks = ("[TOOL_CALLS]", "[ARGS]")
        write_tokenizer(folder, special=(BOS, *marks, START, END))
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        size, end = self.tokenizer.get_vocab_size(), self.tokenizer.token_to_id(END)
        assert end is not None
        self._view = make_tokenizer(self.tokenizer.to_str(), size, [end])

    def of(
        self,
        form: str,
        *,
        template: str = "",
        reasoning: str = "none",
        prompt: str = "",
        several: bool = True,
        tools: Any = TOOLS,
    ) -> str:
        added = self.tokenizer.get_added_tokens_decoder().items()
        ids = {each.content: token for token, each in added}
        forms = forms_of(template, form, reasoning)
        constraint = call_constraint(forms, tools, prompt, ids.get, several=several)
        assert constraint.param == "tool_choice"
        return grammar_of(constraint)

    def takes(self, grammar: str, text: str) -> bool:
        """Whether an answer may be this text and end there."""
        matcher = compile_grammar(self._view, grammar)
        assert not matcher.is_error(), matcher.get_error()
        for token in self.tokenizer.encode(text, add_special_tokens=False).ids:
            mask = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
            if not np.unpackbits(mask, bitorder="little")[token]:
                return False
            assert matcher.consume_token(token)
        return bool(matcher.is_accepting())


@pytest.fixture(scope="module")
def grammars(tmp_path_factory: pytest.TempPathFactory) -> Grammars:
    return Grammars(tmp_path_factory.mktemp("grammars"))


def tagged(call: str) -> str:
    return f"<tool_call>\n{call}\n</tool_call>"


@pytest.mark.parametrize(
    ("text", "is_taken"),
    [
        (tagged(F), True),
        (tagged(G), True),
        (tagged(F) + "\n" + tagged(G), True),
        ("Hello", False),
        ("", False),
        (tagged(F)[:-1], False),
        (tagged(F.replace('"f"', '"h"')), False),
        (tagged('{"name": "f", "arguments": {"n": "1"}}'), False),
        (tagged('{"name": "f", "arguments": {"n": 0}}'), False),
        (tagged('{"name": "f", "arguments": {}}'), False),
        (tagged('{"name": "f", "arguments": {"n": 1, "x": 1}}'), False),
        (tagged(F) + " and so on", False),
    ],
)
def test_calls_between_tags(grammars: Grammars, text: str, is_taken: bool) -> None:
    assert grammars.takes(grammars.of("hermes"), text) == is_taken


def test_one_call_only(grammars: Grammars) -> None:
    grammar = grammars.of("hermes", several=False)
    assert grammars.takes(grammar, tagged(F))
    assert not grammars.takes(grammar, tagged(F) + "\n" + tagged(F))


def test_the_named_tool_only(grammars: Grammars) -> None:
    grammar = grammars.of("hermes", tools=TOOLS[1:])
    assert grammars.takes(grammar, tagged(G))
    assert not grammars.takes(grammar, tagged(F))


@pytest.mark.parametrize(
    ("prompt", "text", "is_taken"),
    [
        ("", "<think>\nHm <b>.\n</think>\n\n" + tagged(F), True),
        ("", tagged(F), True),
        ("<think>\n", "Hm.\n</think>\n\n" + tagged(F), True),
        ("<think>\n", tagged(F), False),
        ("<think>\n\n</think>\n\n", tagged(F), True),
        ("<think>\n\n</think>\n\n", "<think>\n</think>" + tagged(F), False),
        ("", "<think>\nHm.\n</think>\n\nNo.", False),
    ],
)
def test_reasoning_may_come_before_a_call(
    grammars: Grammars, prompt: str, text: str, is_taken: bool
) -> None:
    grammar = grammars.of("hermes", reasoning="think", prompt=prompt)
    assert grammars.takes(grammar, text) == is_taken


def test_calls_with_nothing_around_them(grammars: Grammars) -> None:
    f, g = (each.replace("arguments", "parameters") for each in (F, G))
    assert grammars.takes(grammars.of("llama"), f)
    assert grammars.takes(grammars.of("llama"), f"{f}; {g}")
    assert not grammars.takes(grammars.of("llama"), F)


def test_mistrals_two_forms(grammars: Grammars) -> None:
    marked = grammars.of("mistral", template="[ARGS]")
    assert grammars.takes(marked, '[TOOL_CALLS]f[ARGS]{"n": 1}[TOOL_CALLS]g[ARGS]{}')
    assert not grammars.takes(marked, "[TOOL_CALLS]h[ARGS]{}")
    assert not grammars.takes(marked, '[TOOL_CALLS]f[ARGS]{"n": true}')
    array = grammars.of("mistral")
    assert grammars.takes(array, f"[TOOL_CALLS] [{F}, {G}]")
    assert not grammars.takes(array, "[TOOL_CALLS] []")


@pytest.mark.parametrize(
    ("parameters", "is_taken"),
    [
        ([("n", "1")], True),
        ([("n", "1"), ("s", "two\n<lines> & </parameter>")], True),
        ([("n", "1"), ("e", "high")], True),
        ([("n", "1"), ("e", "middle")], False),
        ([("s", "n is missing")], False),
        ([("n", "one")], False),
    ],
)
def test_tags_all_the_way_down(
    grammars: Grammars, parameters: list[tuple[str, str]], is_taken: bool
) -> None:
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    text = f"<tool_call>\n<function=f>\n{inner}</function>\n</tool_call>"
    assert grammars.takes(grammars.of("qwen-xml"), text) == is_taken


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("hermes", tagged(F) + "\n" + tagged(G)),
        ("llama", '{"name": "f", "parameters": {"n": 1}}; {"name": "g", "parameters": {}}'),
        ("mistral", f"[TOOL_CALLS] [{F}, {G}]"),
        ("qwen-xml", tagged("<function=f>\n<parameter=n>\n1\n</parameter>\n</function>") * 2),
    ],
)
def test_what_is_let_through_is_parsed_as_calls_and_nothing_else(form: str, text: str) -> None:
    message = message_of(lambda: forms_of("", form).parser(TOOLS, inside=False), text)
    assert (message.content, len(message.calls)) == ("", 2)
    assert message.calls[0] == ("f", '{"n": 1}')


def test_where_the_form_is_not_known_it_cannot_be_told() -> None:
    with pytest.raises(ValueError, match="not known in which form"):
        call_constraint(forms_of(""), TOOLS, "", lambda mark: None, several=True)


@pytest.mark.parametrize("form", ["hermes", "llama", "qwen-xml"])
@pytest.mark.parametrize("before", [False, True])
def test_calls_may_come_in_place_of_an_answer_with_a_constraint(
    grammars: Grammars, form: str, before: bool
) -> None:
    forms = forms_of("", form, "think")
    added = {
        each.content: token for token, each in grammars.tokenizer.get_added_tokens_decoder().items()
    }
    schema = '{"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}'
    constraint = Constraint(
        "json_schema",
        schema,
        before=reasoning_before(forms, "", added.get) if before else "",
        instead=calls_instead(forms, TOOLS, added.get, several=False),
    )
    grammar = grammar_of(constraint)
    call = {
        "hermes": tagged(F),
        "llama": '{"name": "f", "parameters": {"n": 1}}',
        "qwen-xml": tagged("<function=f>\n<parameter=n>\n1\n</parameter>\n</function>"),
    }[form]
    assert grammars.takes(grammar, call)
    assert grammars.takes(grammar, '{"ok": true}')
    assert not grammars.takes(grammar, '{"ok": 1}')
    assert not grammars.takes(grammar, "Hello")
    assert grammars.takes(grammar, "<think>a</think>" + call) == before


def test_where_the_form_is_not_known_no_call_comes_in_place_of_an_answer() -> None:
    assert calls_instead(forms_of(""), TOOLS, lambda mark: None, several=True) == ""
