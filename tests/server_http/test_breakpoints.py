"""Where marks are in the tokens of a conversation, whatever its template does with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from server.errors import RequestRefused
from server.http.breakpoints import Mark, tokens_before, tokens_before_marks
from server.token_text import TokenText

Messages = list[dict[str, Any]]
Tools = list[dict[str, Any]] | None
WORDS = ("Hello there", "you are", "<end>")


def plain(messages: Messages, tools: Tools) -> str:
    """Tools first, each message with its role, and calls as JSON."""
    text = "".join(f"<tool>{json.dumps(tool, ensure_ascii=False)}\n" for tool in tools or ())
    for message in messages:
        content = message["content"]
        if isinstance(content, list):
            content = "".join(part["text"] for part in content)
        text += f"<{message['role']}>{content}"
        for call in message.get("tool_calls") or ():
            text += f"<call>{json.dumps(call['function'], ensure_ascii=False)}"
        text += "<end>"
    return text + "<assistant>"


def trimming(messages: Messages, tools: Tools) -> str:
    return plain([{**each, "content": each["content"].strip()} for each in messages], tools)


def tools_before_the_last_question(messages: Messages, tools: Tools) -> str:
    *before, last = messages
    return plain(before, None).removesuffix("<assistant>") + plain([last], tools)


def without_earlier_thoughts(messages: Messages, tools: Tools) -> str:
    shown = [
        {**each, "content": each["content"].split("</think>")[-1]}
        if each["role"] == "assistant" and each is not messages[-1]
        else each
        for each in messages
    ]
    return plain(shown, tools)


def without_tools(messages: Messages, tools: Tools) -> str:
    return plain([{**each, "tool_calls": None} for each in messages], None)


def picky(messages: Messages, tools: Tools) -> str:
    for message in messages:
        if message["content"] and not message["content"].isascii():
            raise RequestRefused("only ASCII")
    return plain(messages, tools)


class Codec:
    """Some words are one token, all else is bytes."""

    def __init__(self, template: Callable[[Messages, Tools], str] = plain) -> None:
        self.render = template

    def encode(self, text: str, /, *, special: bool = True) -> list[int]:
        ids, left = [], text.encode()
        while left:
            word = next((w for w in WORDS if left.startswith(w.encode())), None)
            ids.append(left[0] if word is None else 256 + WORDS.index(word))
            left = left[1:] if word is None else left[len(word) :]
        return ids

    def token_text(self, token: int, /) -> TokenText:
        data = bytes([token]) if token < 256 else WORDS[token - 256].encode()
        return TokenText(data.decode(errors="replace"), data)

    def decode(self, ids: Sequence[int], /, *, special: bool = False) -> str:
        return b"".join(self.token_text(token).data for token in ids).decode()


def before(codec: Codec, messages: Messages, tools: Tools, mark: Mark) -> str:
    """The text of the tokens before a mark."""
    (count,) = counts(codec, messages, tools, [mark])
    return codec.decode(codec.encode(codec.render(messages, tools))[:count])


def counts(codec: Codec, messages: Messages, tools: Tools, marks: list[Mark]) -> list[int]:
    whole = codec.render(messages, tools)
    return tokens_before_marks(
        codec,  # type: ignore[arg-type]  # of a codec only the tokens are looked at
        codec.encode(whole),
        whole,
        codec.render,
        messages,
        tools,
        marks,
    )


SYSTEM = {"role": "system", "content": "Be brief. \u732b"}
ASKED = {"role": "user", "content": "Hello there, you are"}
CALL = {"name": "look", "arguments": '{"at": "x"}'}
CALLS = {"role": "assistant", "content": "", "tool_calls": [{"function": CALL}]}
ANSWER = {"role": "assistant", "content": "<think>hm</think>Yes."}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}
OTHER = {"type": "function", "function": {"name": "find", "parameters": {}}}


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        (Mark(0), "<system>Be brief. \u732b"),
        (Mark(0, 3), "<system>Be "),
        (Mark(0, 0), "<system>"),
        (Mark(1), "<system>Be brief. \u732b<end><user>Hello there, you are"),
        (Mark(1, 11), "<system>Be brief. \u732b<end><user>Hello there"),
        (Mark(1, 7), "<system>Be brief. \u732b<end><user>"),  # inside a token
    ],
)
def test_the_tokens_before_a_mark_are_those_that_end_there_or_earlier(
    mark: Mark, expected: str
) -> None:
    assert before(Codec(), [SYSTEM, ASKED], None, mark) == expected


def test_each_mark_has_its_count_in_the_order_of_the_marks() -> None:
    codec, messages = Codec(), [SYSTEM, ASKED]
    ids = codec.encode(codec.render(messages, None))
    found = counts(codec, messages, None, [Mark(1), Mark(0), Mark(0, 0)])
    assert [len(codec.decode(ids[:count])) for count in found] == [
        len("<system>Be brief. .<end><user>Hello there, you are"),
        len("<system>Be brief. ."),
        len("<system>"),
    ]
    assert counts(codec, messages, None, []) == []


def test_parts_of_a_message_are_counted_as_their_text() -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    message = {"role": "user", "content": parts}
    for characters, text in ((4, "one "), (5, "one t"), (7, "one two"), (None, "one two")):
        assert before(Codec(), [message], None, Mark(0, characters)) == f"<user>{text}"


def test_a_mark_after_a_message_with_calls_is_after_its_calls() -> None:
    for arguments in (CALL["arguments"], {"at": "x"}):
        call = {**CALL, "arguments": arguments}
        message = {**CALLS, "tool_calls": [{"function": call}]}
        text = before(Codec(), [message, ASKED], None, Mark(0))
        whole = "<assistant><call>" + json.dumps(call, ensure_ascii=False)
        assert whole.startswith(text)
        assert len(whole) - len(text) <= 5  # the closing quotes and brackets
    assert before(Codec(), [CALLS, ASKED], None, Mark(0, 0)) == "<assistant>"
    assert before(Codec(without_tools), [CALLS, ASKED], None, Mark(0)) == "<assistant>"


@pytest.mark.parametrize("tool", [0, 1])
def test_a_mark_after_a_tool_is_after_its_definition(tool: int) -> None:
    text = before(Codec(), [SYSTEM], [TOOL, OTHER], Mark(tool=tool))
    shown = "".join(f"<tool>{json.dumps(each)}\n" for each in [TOOL, OTHER][: tool + 1])
    assert text.startswith(shown)
    # What every further tool begins with is common to all, too.
    assert text.removeprefix(shown) in ("<", '<tool>{"type": "function", "function": {"name": "')
    assert before(Codec(without_tools), [SYSTEM], [TOOL], Mark(tool=0)) == ""


def test_what_a_template_trims_is_not_before_a_mark() -> None:
    message = {"role": "user", "content": "  padded \n\n"}
    assert before(Codec(trimming), [message], None, Mark(0)) == "<user>padded"


def test_tools_that_stand_before_the_last_question_do_not_count_for_earlier_marks() -> None:
    codec = Codec(tools_before_the_last_question)
    assert before(codec, [SYSTEM, ASKED], [TOOL], Mark(0)) == "<system>Be brief. \u732b"
    text = before(codec, [SYSTEM, ASKED], [TOOL], Mark(1, 11))
    assert text.endswith("}\n<user>Hello there")


def test_a_mark_in_what_the_template_leaves_out_stands_for_nothing() -> None:
    codec, messages = Codec(without_earlier_thoughts), [ASKED, ANSWER, ASKED]
    assert before(codec, messages, None, Mark(1, 8)) == ""
    shown = "<user>Hello there, you are<end><assistant>Yes."
    assert before(codec, messages, None, Mark(1)) == shown
    assert before(Codec(picky), [ASKED], None, Mark(0)) == ""


def test_where_tokens_have_other_bytes_than_the_text_there_are_never_too_many() -> None:
    codec: Any = Codec()
    text = "one two three"
    longer, shorter = codec.encode(" " + text), codec.encode(text[1:])
    places = range(len(text) + 1)
    assert tokens_before(codec, codec.encode(text), text, places) == list(places)
    assert tokens_before(codec, longer, text, places) == list(places)  # one token more in front
    assert tokens_before(codec, shorter, text, places) == [max(0, place - 1) for place in places]
