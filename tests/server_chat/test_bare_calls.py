"""Tool calls with nothing around them, as Llama's models write them."""

from __future__ import annotations

import pytest

from server.chat.object_calls import BareCalls
from tests.server_chat.parsing import cuts, message_of, parse


def of_tools(*names: str) -> BareCalls:
    return BareCalls(hidden=("<|python_tag|>",), names=names)


def make() -> BareCalls:
    return of_tools("weather", "time")


@pytest.mark.parametrize("key", ["parameters", "arguments"])
def test_an_object_as_the_first_word_is_a_call(key: str) -> None:
    message = message_of(make, f'{{"name": "weather", "{key}": {{"city": "Paris"}}}}')
    assert (message.content, message.calls) == ("", [("weather", '{"city": "Paris"}')])


def test_the_special_token_may_come_first_and_text_before_it() -> None:
    call = '<|python_tag|>{\n  "type": "function",\n  "name": "time",\n  "parameters": {}\n}'
    assert message_of(make, call).calls == [("time", "{}")]
    message = message_of(make, "Let me see. " + call)
    assert (message.content, message.calls) == ("Let me see. ", [("time", "{}")])


@pytest.mark.parametrize("between", ["; ", ";", ";\n", "\n"])
def test_several_calls_have_something_between_them(between: str) -> None:
    calls = ['{"name": "time", "parameters": {}}', '{"name": "weather", "parameters": {"n": 1}}']
    message = message_of(make, between.join(calls))
    assert (message.content, message.calls) == ("", [("time", "{}"), ("weather", '{"n": 1}')])


@pytest.mark.parametrize(
    "text",
    [
        '{"capital": "Paris", "country": "France"}',
        '{"parameters": {}}',
        '{"name": "Ada"}',
        '{"name": "Ada", "parameters": {"age": 36}}',
        '{"a": 1} is a dict',
        "{}",
        "  \n",
        "Paris is the capital of France.",
        'Sure: {"name": "time", "parameters": {}}',
        '{"name": "time", "parameters": [1]}',
    ],
)
def test_what_is_no_call_is_content_to_the_last_character(text: str) -> None:
    message = message_of(make, text)
    assert (message.content, message.calls) == (text, [])


def test_an_answer_in_json_is_content_as_soon_as_its_first_key_tells() -> None:
    parser = make()
    assert parser.push('{"capi') == []
    assert [event.text for event in parser.push('tal":')] == ['{"capital":']  # type: ignore[union-attr]


def test_text_after_a_call_is_content() -> None:
    message = message_of(make, '{"name": "time", "parameters": {}} as asked; {"b": 1}')
    assert message.calls == [("time", "{}")]
    assert message.content == ' as asked; {"b": 1}'


def test_python_code_after_the_special_token_is_content() -> None:
    message = message_of(make, "<|python_tag|>print(1)")
    assert (message.content, message.calls) == ("print(1)", [])


def test_where_the_tools_are_not_known_any_name_will_do() -> None:
    events = parse(of_tools, cuts('{"name": "any", "parameters": {}}', 4))
    assert len(events) >= 2
