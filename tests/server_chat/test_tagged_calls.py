"""Tool calls between tags, as Hermes and Qwen write them."""

from __future__ import annotations

import json

import pytest

from server.chat.events import ContentText, ToolCallArguments, ToolCallBegin
from server.chat.object_calls import TaggedCalls
from tests.server_chat.parsing import message_of, parse


def test_a_call_is_its_name_and_its_arguments_as_they_were_written() -> None:
    message = message_of(
        TaggedCalls,
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Z\u00fcrich", "days": 1e-05}}\n'
        "</tool_call>",
    )
    assert message.content == ""
    assert message.calls == [("weather", '{"city": "Z\u00fcrich", "days": 1e-05}')]


def test_text_before_several_calls_is_content_without_the_line_breaks_between() -> None:
    message = message_of(
        TaggedCalls,
        'I look.\n\n<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>\n'
        '<tool_call>{"name":"weather","arguments":{"city":"Oslo"}}</tool_call>',
    )
    assert message.content == "I look."
    assert message.calls == [("time", "{}"), ("weather", '{"city":"Oslo"}')]


def test_text_around_calls_is_content() -> None:
    message = message_of(
        TaggedCalls, 'before<tool_call>{"name": "f", "arguments": {}}</tool_call>after'
    )
    assert message.content == "beforeafter"
    assert message.calls == [("f", "{}")]


@pytest.mark.parametrize(
    "arguments",
    [
        '{"text": "Use <tool_call> ... </tool_call> tags, or \\"<think>\\" blocks."}',
        '{"text": "{\\"name\\": \\"x\\", \\"arguments\\": {\\"a\\": 1}}"}',
        '{"path": "C:\\\\new\\\\a.py", "lines": ["}{ ][", "\\u00e9\\n"]}',
        '{"a": [[], {}, [null, true, false, -0.5, 1E+3]], "b": {"c": {"d": 0}}}',
    ],
)
def test_marks_and_brackets_inside_of_strings_mean_nothing(arguments: str) -> None:
    text = f'<tool_call>\n{{"name": "echo", "arguments": {arguments}}}\n</tool_call>'
    assert message_of(TaggedCalls, text).calls == [("echo", arguments)]


def test_members_come_in_any_order() -> None:
    message = message_of(
        TaggedCalls,
        '<tool_call>{"id": 7, "arguments": {"name": "x"}, "type": "function", "name": "f"}'
        "</tool_call>",
    )
    assert message.calls == [("f", '{"name": "x"}')]


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ('{"name": "f"}', "{}"),
        ('{"name": "f", "arguments": null}', "{}"),
        ('{"name": "f", "parameters": {"a": 1}}', '{"a": 1}'),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', '{"a": 1}'),
        ('{"name": "f", "arguments": {"a": "two\nlines\t"}}', '{"a": "two\\nlines\\t"}'),
    ],
)
def test_what_can_mean_only_one_thing_is_understood(written: str, arguments: str) -> None:
    message = message_of(TaggedCalls, f"<tool_call>\n{written}\n</tool_call>")
    assert message.calls == [("f", arguments)]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>not valid json</tool_call>",
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>{"name": 7, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "f", "arguments": "no object"}</tool_call>',
        "Write <tool_call> and then {} and </tool_call>.",
        "a\n\n<tool_call>\n\nb",
        "x < y <tool <tool_cal <tool_callx",
        '<tool_call>\n{"name": "f", "argum',
        "ends with breaks\n\n",
    ],
)
def test_what_is_no_call_is_content_to_the_last_character(text: str) -> None:
    message = message_of(TaggedCalls, text)
    assert (message.content, message.calls) == (text, [])


def test_after_a_malformed_call_the_next_one_is_found() -> None:
    message = message_of(
        TaggedCalls, '<tool_call>oops <tool_call>{"name": "f", "arguments": {}}</tool_call>'
    )
    assert message.content == "<tool_call>oops "
    assert message.calls == [("f", "{}")]


def test_a_mere_opening_at_the_end_is_no_text() -> None:
    message = message_of(TaggedCalls, "I will check.\n<tool_call>\n")
    assert (message.content, message.calls) == ("I will check.", [])


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('<tool_call>{"name": "f", "arguments": {"city": "Par', '{"city": "Par'),
        ('<tool_call>{"name": "f", "arguments": {"city": "Paris"}', '{"city": "Paris"'),
    ],
)
def test_a_call_that_is_cut_off_never_has_whole_arguments(text: str, arguments: str) -> None:
    message = message_of(TaggedCalls, text)
    assert message.calls == [("f", arguments)]
    with pytest.raises(json.JSONDecodeError):
        json.loads(message.calls[0][1])
    parser = TaggedCalls()
    parser.push(text)
    parser.finish()
    assert not parser.has_called


def test_what_follows_arguments_that_go_wrong_is_content() -> None:
    message = message_of(
        TaggedCalls, '<tool_call>{"name": "f", "arguments": {"a": Tru}}</tool_call> so'
    )
    assert message.calls == [("f", '{"a": ')]
    assert message.content == "Tru}}</tool_call> so"
    message = message_of(TaggedCalls, '<tool_call>{"name": "f", "arguments": {"a": 1} oops')
    assert message.calls == [("f", '{"a": 1')]
    assert message.content == "} oops"


def test_arguments_are_given_out_while_they_come() -> None:
    parser = TaggedCalls(lambda: "call_1")
    assert parser.push('<tool_call>{"name": "write", "arguments": {"text": "a long') == [
        ToolCallBegin(0, "call_1", "write"),
        ToolCallArguments(0, '{"text": "a long'),
    ]
    assert parser.push(" story") == [ToolCallArguments(0, " story")]
    assert parser.push('"}') == [ToolCallArguments(0, '"')], "the end waits for the call's"
    assert not parser.has_called
    assert parser.push("}") == [ToolCallArguments(0, "}")]
    assert parser.has_called


def test_text_is_held_back_only_while_it_may_begin_a_call() -> None:
    parser = TaggedCalls()
    assert parser.push("a <tool") == [ContentText("a ")]
    assert parser.push("box>") == [ContentText("<toolbox>")]
    assert parser.push("b\n") == [ContentText("b")]
    assert parser.push("c") == [ContentText("\nc")]


def test_special_tokens_that_marks_are_never_show() -> None:
    hidden = ("<tool_call>", "</tool_call>")
    message = message_of(
        lambda: TaggedCalls(hidden=hidden), "a <tool_call>no json</tool_call> b</tool_call>"
    )
    assert message.content == "a no json b"


def test_each_call_has_an_id_of_its_own() -> None:
    text = '<tool_call>{"name": "f"}</tool_call>' * 3
    begun = [event for event in parse(TaggedCalls, [text]) if isinstance(event, ToolCallBegin)]
    assert len({event.call_id for event in begun}) == 3
