"""What a model thinks, apart from what it says."""

from __future__ import annotations

import pytest

from server.chat.events import ContentText, ReasoningText
from server.chat.object_calls import TaggedCalls
from server.chat.parser import PlainParser
from server.chat.reasoning import ReasoningParser, ReasoningTags
from server.chat.xml_calls import XmlCalls
from tests.server_chat.parsing import message_of

THINK = ReasoningTags("<think>", "</think>")


def outside() -> ReasoningParser:
    return ReasoningParser(PlainParser(), THINK)


def inside() -> ReasoningParser:
    return ReasoningParser(PlainParser(), THINK, inside=True)


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("<think>\nHm.\nYes.\n</think>\n\nHello!\n", "Hm.\nYes.", "Hello!\n"),
        ("\n<think>a</think>b", "a", "b"),
        ("<think>\n\n</think>\n\nHello", "", "Hello"),
        ("<think>a</think>", "a", ""),
        ("<think>\nstill thin", "still thin", ""),
        ("<think>a < b </thin> c</think>d", "a < b </thin> c", "d"),
        ("Hello <think> you", "", "Hello <think> you"),
        ("<thinker>", "", "<thinker>"),
        ("<thi", "", "<thi"),
        ("  plain", "", "  plain"),
        ("", "", ""),
    ],
)
def test_reasoning_is_what_stands_between_tags_at_the_beginning(
    text: str, reasoning: str, content: str
) -> None:
    message = message_of(outside, text)
    assert (message.reasoning, message.content) == (reasoning, content)


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("Hm.\n</think>\n\nHello!", "Hm.", "Hello!"),
        ("\n</think>\n\nHello!", "", "Hello!"),
        ("cut off", "cut off", ""),
        ("<think>\nonce more</think>x", "once more", "x"),
        ("<thi", "<thi", ""),
    ],
)
def test_an_answer_may_begin_inside(text: str, reasoning: str, content: str) -> None:
    message = message_of(inside, text)
    assert (message.reasoning, message.content) == (reasoning, content)


def test_other_tags() -> None:
    tags = ReasoningTags("[THINK]", "[/THINK]")
    message = message_of(
        lambda: ReasoningParser(PlainParser(), tags), "[THINK]I'm\nthinking[/THINK]c"
    )
    assert (message.reasoning, message.content) == ("I'm\nthinking", "c")


def test_reasoning_and_calls() -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    message = message_of(
        lambda: ReasoningParser(TaggedCalls(), THINK),
        f"<think>\nI could call {call} here.\n</think>\n\nNow:\n{call}",
    )
    assert message.reasoning == f"I could call {call} here."
    assert message.content == "Now:"
    assert message.calls == [("f", "{}")]


def test_a_call_ends_reasoning_that_the_model_forgot_to_close() -> None:
    message = message_of(
        lambda: ReasoningParser(
            XmlCalls(), THINK, inside=True, interrupting=("<tool_call>\n<function=",)
        ),
        "I look; <tool_call> is how.\n<tool_call>\n<function=ls>\n</function>\n</tool_call>",
    )
    assert message.reasoning == "I look; <tool_call> is how."
    assert (message.content, message.calls) == ("", [("ls", "{}")])


def test_text_is_held_back_only_while_it_may_be_a_tag() -> None:
    parser = outside()
    assert parser.push("<thi") == []
    assert parser.push("nk>\na\n") == [ReasoningText("a")]
    assert parser.push("b</") == [ReasoningText("\nb")]
    assert parser.push("b>") == [ReasoningText("</b>")]
    assert parser.push("</think>\n") == []
    assert parser.push("\n") == []
    assert parser.push("c\n") == [ContentText("c\n")]
    assert parser.finish() == []


def test_it_has_called_when_the_inner_parser_has() -> None:
    parser = ReasoningParser(TaggedCalls(), THINK)
    parser.push('<think>a</think><tool_call>{"name": "f"}')
    assert parser.has_called
