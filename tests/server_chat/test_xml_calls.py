"""Tool calls in tags all the way down, as Qwen3-Coder writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from server.chat.events import ToolCallArguments
from server.chat.xml_calls import XmlCalls
from tests.server_chat.parsing import message_of

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "flag": {"type": "boolean"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "label": {"type": ["string", "null"]},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "list": {"type": "array", "items": {"type": "string"}},
        "object": {"$ref": "#/$defs/Thing"},
        "level": {"enum": [1, 2, 3]},
    },
    "$defs": {"Thing": {"properties": {"a": {"type": "integer"}}}},
}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]


def make() -> XmlCalls:
    return XmlCalls(definitions=TOOLS)


def call(*parameters: tuple[str, str]) -> str:
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<tool_call>\n<function=f>\n{inner}</function>\n</tool_call>"


def arguments_of(text: str) -> Any:
    message = message_of(make, text)
    assert message.content == ""
    assert [name for name, _ in message.calls] == ["f"]
    return json.loads(message.calls[0][1])


@pytest.mark.parametrize(
    ("key", "written", "value"),
    [
        ("path", "02139", "02139"),
        ("text", "#include\n", "#include\n"),
        ("text", '    a "quote", a \\backslash,\ta tab', '    a "quote", a \\backslash,\ta tab'),
        ("text", "<html>\n <b>x</b>\n</html>", "<html>\n <b>x</b>\n</html>"),
        ("text", "", ""),
        ("count", "5", 5),
        ("count", "about five", "about five"),
        ("ratio", "1e20", 100000000000000000000),
        ("flag", "True", True),
        ("flag", "false", False),
        ("maybe", "null", None),
        ("maybe", "7", 7),
        ("label", "null", None),
        ("label", "gym", "gym"),
        ("either", "5", "5"),
        ("list", '["a", "b"]', ["a", "b"]),
        ("object", '{"a": 1}', {"a": 1}),
        ("level", "2", 2),
        ("unheard", "3", "3"),
    ],
)
def test_a_value_has_the_type_of_the_tools_schema(key: str, written: str, value: Any) -> None:
    assert arguments_of(call((key, written))) == {key: value}


def test_several_parameters_keep_their_order() -> None:
    message = message_of(make, call(("path", "a"), ("count", "1"), ("flag", "true")))
    assert message.calls == [("f", '{"path": "a", "count": 1, "flag": true}')]


def test_a_call_without_parameters() -> None:
    assert arguments_of(call()) == {}


def test_without_line_breaks_and_with_text_around() -> None:
    message = message_of(
        make,
        "before<tool_call><function=f><parameter=path>Paris</parameter></function></tool_call>after",
    )
    assert message.content == "beforeafter"
    assert message.calls == [("f", '{"path": "Paris"}')]


def test_tags_inside_of_a_line_are_text() -> None:
    text = "Close with </parameter> and </function> then </tool_call>; open with <parameter=x>."
    assert arguments_of(call(("text", text))) == {"text": text}


def test_the_outer_tag_may_be_missing() -> None:
    text = "I will list them.\n\n" + call(("path", "*.md")).removeprefix("<tool_call>\n")
    message = message_of(make, text + "\n" + call(("count", "1")))
    assert message.content == "I will list them."
    assert message.calls == [("f", '{"path": "*.md"}'), ("f", '{"count": 1}')]


def test_a_parameters_closing_tag_may_be_missing() -> None:
    assert arguments_of(
        "<tool_call>\n<function=f>\n<parameter=path>\nDallas\n<parameter=object>\n"
        '{"a": 1}\n</function>\n</tool_call>'
    ) == {"path": "Dallas", "object": {"a": 1}}


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\nno function\n</tool_call>",
        "<tool_call>\n<function=f>\nno parameter</function>",
        "Use <function=f> to call f.",
        "<function=\n>",
        "<function=" + "x" * 300,
    ],
)
def test_what_is_no_call_is_content_to_the_last_character(text: str) -> None:
    message = message_of(make, text)
    assert (message.content, message.calls) == (text, [])


def test_a_call_that_is_cut_off_never_has_whole_arguments() -> None:
    whole = call(("path", "/tmp/x"), ("text", "rm -rf /tmp/build"))
    end = whole.index("</function>") + len("</function>")
    for cut in range(whole.index("<parameter=path>\n") + 17, end):
        parser = make()
        parser.push(whole[:cut])
        parser.finish()
        assert not parser.has_called
        message = message_of(make, whole[:cut])
        with pytest.raises(json.JSONDecodeError):
            json.loads(message.calls[0][1])


def test_strings_are_given_out_while_they_come() -> None:
    parser = make()
    parser.push("<tool_call>\n<function=f>\n<parameter=text>\n")
    assert parser.push('a "long"') == [ToolCallArguments(0, 'a \\"long\\"')]
    assert parser.push(" story\n</para") == [ToolCallArguments(0, " story")]
    assert parser.push("graph>") == [ToolCallArguments(0, "\\n</paragraph>")]
