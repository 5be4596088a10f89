"""Tool calls after [TOOL_CALLS], as Mistral's models write them."""

from __future__ import annotations

import pytest

from server.chat.mistral_calls import MistralCalls
from tests.server_chat.parsing import message_of


def make() -> MistralCalls:
    return MistralCalls(hidden=("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"))


@pytest.mark.parametrize("space", ["", " "])
def test_an_array_of_calls(space: str) -> None:
    message = message_of(
        make,
        f'Hello[TOOL_CALLS]{space}[{{"name": "add", "arguments":{{"a": 3.5, "b": 4}}}}, '
        '{"arguments":{"name": "Jo"}, "name": "age", "id": "123456789"}]',
    )
    assert message.content == "Hello"
    assert message.calls == [("add", '{"a": 3.5, "b": 4}'), ("age", '{"name": "Jo"}')]


def test_a_mark_before_each_call_and_before_its_arguments() -> None:
    message = message_of(
        make,
        'hi[TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]get_time[ARGS]{}',
    )
    assert message.content == "hi"
    assert message.calls == [("add", '{"a": 1}'), ("get_time", "{}")]


def test_the_id_that_a_model_writes_is_no_part_of_the_name() -> None:
    message = message_of(
        make,
        '[TOOL_CALLS]add[CALL_ID]000000001[ARGS]{"a": 1}[TOOL_CALLS]sub[CALL_ID]2[ARGS]{"b": 2}',
    )
    assert message.calls == [("add", '{"a": 1}'), ("sub", '{"b": 2}')]


def test_arguments_may_follow_the_name_without_a_mark() -> None:
    assert message_of(make, '[TOOL_CALLS]add{"a": 1}').calls == [("add", '{"a": 1}')]


@pytest.mark.parametrize(
    "arguments",
    [
        '{"query":"/{.github/a.md,AGENT.md,.cursor/rules/}"}',
        '{"text": "Calls look like [TOOL_CALLS]name[ARGS]{\\"a\\": 1}."}',
        '{"text": "[{\\"name\\": \\"get_time\\", \\"arguments\\": {}}]"}',
        '{"name": "bar", "arguments": "--force", "id": "u-1"}',
    ],
)
def test_marks_and_brackets_inside_of_strings_mean_nothing(arguments: str) -> None:
    message = message_of(make, f"[TOOL_CALLS]f[ARGS]{arguments}")
    assert (message.content, message.calls) == ("", [("f", arguments)])


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("[TOOL_CALLS] not json at all", " not json at all"),
        ("[TOOL_CALLS]name[ARGS]no", "name" + "no"),
        ("[TOOL_CALLS] [7]", " [7]"),
        ("Done.[TOOL_CALLS]", "Done."),
        ("a [ARGS] b", "a  b"),
        ("[TOOL_CALLS]na", "na"),
    ],
)
def test_what_is_no_call_is_content_without_special_tokens(text: str, content: str) -> None:
    message = message_of(make, text)
    assert (message.content, message.calls) == (content, [])


def test_a_call_that_is_cut_off_has_not_been_made() -> None:
    parser = make()
    parser.push('[TOOL_CALLS]write[ARGS]{"text": "rm -rf /')
    parser.finish()
    assert not parser.has_called
    assert message_of(make, '[TOOL_CALLS]w[ARGS]{"text": "rm -rf /').calls == [
        ("w", '{"text": "rm -rf /')
    ]


def test_what_follows_arguments_that_go_wrong_is_content() -> None:
    parser = make()
    parser.push('[TOOL_CALLS]f[ARGS]{"a": Tru} so')
    assert not parser.has_called
    message = message_of(make, '[TOOL_CALLS]f[ARGS]{"a": Tru} so')
    assert message.calls == [("f", '{"a": ')]
    assert message.content == "Tru} so"
