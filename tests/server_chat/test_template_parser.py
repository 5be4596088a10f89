"""Parsing by a tokenizer's own description of its answers, with transformers' parser."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.chat.template_parser import DescribedAnswers, TemplateParser
from tests.server_chat.parsing import message_of, parse, put_together

START = "<|im_start|>assistant\n"
DESCRIBED: dict[str, Any] = {
    "start_anchor": START,
    "fields": {
        "thinking": {"open": "<think>", "close": "</think>"},
        "content": {},
        "tool_calls": {
            "open": "<call>",
            "close": "</call>",
            "content": "json",
            "repeats": True,
            "transform": {"type": "function", "function": "{content}"},
        },
    },
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
        },
    }
]


def make(tools: Any = TOOLS) -> TemplateParser:
    return TemplateParser(DESCRIBED, "", tools, lambda: "call_1")


def test_reasoning_content_and_calls() -> None:
    message = message_of(
        make,
        '<think>\nHm.\n</think>\n\nI look.\n<call>{"name": "f", "arguments": {"n": "3"}}</call>\n'
        '<call>{"name": "g", "arguments": {"s": "\u00e9"}}</call>',
    )
    assert message.reasoning == "Hm."
    assert message.content == "I look."
    assert message.calls == [("f", '{"n": 3}'), ("g", '{"s": "\u00e9"}')]


def test_an_answer_may_begin_inside_of_what_the_prompt_has_opened() -> None:
    described = DescribedAnswers(DESCRIBED)
    prompt = f"<|im_start|>user\nhi {START}old<|im_end|>{START}<think>"
    assert described.begun(prompt) == "<think>"
    assert described.begun("no such thing") == ""
    message = message_of(lambda: described.parser("<think>", None), "Hm.</think>Yes.")
    assert (message.reasoning, message.content) == ("Hm.", "Yes.")


def test_text_comes_as_it_is_written() -> None:
    parser = make()
    assert put_together(parser.push("Hello wor")).content == "Hello wor"
    assert put_together(parser.push("ld <ca")).content == "ld"
    assert put_together(parser.push("t>")).content == " <cat>"


@pytest.mark.parametrize(
    "inner", ["no json", "[1]", '{"arguments": {}}', '{"name": ""}', '{"name": "f"']
)
def test_a_call_that_cannot_be_read_is_content(inner: str) -> None:
    message = message_of(make, f"a <call>{inner}</call> b")
    assert message.calls == []
    assert message.content.replace(" ", "") == f"a{inner}b".replace(" ", "")


def test_without_tools_calls_are_content() -> None:
    message = message_of(lambda: make(tools=None), '<call>{"name": "f"}</call>')
    assert (message.content, message.calls) == ('{"name": "f"}', [])


def test_a_description_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="fields"):
        DescribedAnswers({"fields": {}})


@settings(max_examples=300, deadline=None)
@given(
    pieces=st.lists(
        st.sampled_from(
            [
                *("<think>", "</think>", "<call>", "</call>", " ", "\n", "a", "<", "c"),
                *('{"name": ', '"f"', ', "arguments": {}}', '{"name": "f"}', "}"),
            ]
        ),
        max_size=12,
    ),
    size=st.integers(1, 6),
)
def test_the_cuts_in_a_text_change_nothing(pieces: list[str], size: int) -> None:
    text = "".join(pieces)
    cut = [text[at : at + size] for at in range(0, len(text), size)]
    assert put_together(parse(make, cut)) == put_together(parse(make, [text]))
