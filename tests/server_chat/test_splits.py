"""Whatever a model writes and however it is cut: the same parts, nothing lost, nothing raised."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from server.chat.answer_forms import forms_of
from server.chat.parser import AnswerParser
from tests.server_chat.parsing import parse, put_together

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {"properties": {"a": {"type": "integer"}, "s": {"type": "string"}}},
        },
    }
]
FORMS = ("hermes", "qwen-xml", "llama", "mistral", "none")
# What answers are made of, in order and out of order.
PIECES = st.sampled_from(
    [
        *("<think>", "</think>", "\n", "\n\n", " ", "word", "; ", "}", '"', "{", "<", "[", "\\"),
        *("<tool_call>", "</tool_call>", '{"name": "f", ', '"arguments": ', '"parameters": '),
        *('{"a": 1}', '{"s": "x y"}', '{"s": "', "}}", "Tru", "null", "\u00e9\U0001f600"),
        *("<function=f>", "</function>", "<parameter=a>\n", "<parameter=s>", "</parameter>"),
        *("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[{", "}]", "f", "<|python_tag|>", "1", ", "),
        '<tool_call>\n{"name": "f", "arguments": {"a": 1, "s": "two\nlines"}}\n</tool_call>',
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
        '{"name": "f", "parameters": {"a": 1}}',
        '[TOOL_CALLS]f[ARGS]{"a": 1}',
    ]
)
TEXTS = st.lists(PIECES, max_size=14).map("".join)


def parser_of(form: str, inside: bool = False) -> AnswerParser:
    return forms_of("", form, "think").parser(TOOLS, inside=inside)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=300, deadline=None)
@given(text=TEXTS, inside=st.booleans(), data=st.data())
@example(text="<think>", inside=True, data=None)
def test_the_cuts_in_a_text_change_nothing(
    form: str, text: str, inside: bool, data: st.DataObject | None
) -> None:
    whole = put_together(parse(lambda: parser_of(form, inside), [text]))
    places = [] if data is None else data.draw(st.lists(st.integers(0, len(text)), max_size=12))
    edges = [0, *sorted(places), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    assert put_together(parse(lambda: parser_of(form, inside), pieces)) == whole
    assert put_together(parse(lambda: parser_of(form, inside), text)) == whole


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_arguments_are_json_only_of_calls_that_were_made(form: str, text: str) -> None:
    parser = parser_of(form)
    events = [*parser.push(text), *parser.finish()]
    whole = 0
    for _, arguments in put_together(events).calls:
        try:
            assert isinstance(json.loads(arguments), dict)
            whole += 1
        except json.JSONDecodeError:
            pass
    assert parser.has_called == (whole > 0)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_a_text_without_calls_is_all_there(form: str, text: str) -> None:
    message = put_together(parse(lambda: parser_of(form), [text]))
    if not message.calls:
        marks = ("<think>", "</think>", "<tool_call>", "[TOOL_CALLS]", "<|python_tag|>")
        missing = list(text)
        for character in message.reasoning + message.content:
            missing.remove(character)
        rest = "".join(missing)
        for mark in (*marks, "\n", "<function="):
            for character in mark:
                rest = rest.replace(character, "")
        assert not rest.strip(), "at most marks and line breaks are missing"
