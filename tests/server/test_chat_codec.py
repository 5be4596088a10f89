"""The codec's part in chats: one token for the beginning, marks seen by parsers alone, forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from server.chat.parser import AnswerParser
from server.chat.template_parser import TemplateParser
from server.errors import RequestRefused
from server.text import TextCodec
from tests.server_chat.parsing import put_together
from tests.server_chat.tiny_tokenizer import BOS, END, START, write_tokenizer

PLAIN = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA = (
    PLAIN + '{# Respond in the format {"name": function name, "parameters": dictionary } #}'
    "{% if tools %}{% endif %}"
)
TOOLS = [{"type": "function", "function": {"name": "f"}}]
CALL = '<|python_tag|>{"name": "f", "parameters": {}}'


@pytest.mark.parametrize("adds_bos", [False, True])
@pytest.mark.parametrize("head", ["", "{{ bos_token }}"])
def test_a_prompt_has_one_token_for_the_beginning_whoever_writes_it(
    tmp_path: Path, adds_bos: bool, head: str
) -> None:
    folder = write_tokenizer(tmp_path / "tokenizer", head + PLAIN, adds_bos=adds_bos)
    codec, tokenizer = TextCodec(folder), PreTrainedTokenizerFast.from_pretrained(folder)
    messages = [{"role": "system", "content": "abc the"}, {"role": "user", "content": f"{BOS} ok"}]
    prompt = codec.chat_prompt(messages)
    expected = tokenizer.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=True, return_dict=False
    )
    assert prompt.ids == expected
    assert codec.render_chat(messages) == expected
    [bos] = tokenizer.encode(BOS, add_special_tokens=False)
    assert prompt.ids.count(bos) == 1 + bool(head), "the user's own, and the template's"
    rendered = codec.encode(prompt.text)
    # A tokenizer that always puts one first does so where the template writes none.
    assert rendered == ([bos] if adds_bos and not head else []) + expected
    assert codec.encode("abc") == ([bos] if adds_bos else []) + codec.encode("abc")[adds_bos:]
    assert codec.encode(f"{BOS}{BOS}abc").count(bos) == 2, "what is sent twice stays"


def answer(codec: TextCodec, text: str, *, tools: bool) -> tuple[str, AnswerParser]:
    """What an answer's text shows, and a parser for it."""
    prompt = codec.chat_prompt([{"role": "user", "content": "hi"}])
    detokenizer = codec.detokenizer(prompt.ids, codec.marks(tools=tools))
    shown = "".join(map(detokenizer.push, codec.encode(text))) + detokenizer.flush()
    return shown, codec.new_parser(tools=tools, definitions=TOOLS, prompt=prompt)


def test_marks_that_are_special_tokens_are_seen_by_the_parser_and_by_nobody_else(
    tmp_path: Path,
) -> None:
    special = (BOS, "<|python_tag|>", START, END)
    codec = TextCodec(write_tokenizer(tmp_path / "tokenizer", LLAMA, special=special))
    assert codec.forms.calls == "llama"
    shown, parser = answer(codec, f"Hm. {CALL}{END}", tools=True)
    assert shown == f"Hm. {CALL}", "no other special token is shown"
    message = put_together([*parser.push(shown), *parser.finish()])
    assert (message.content, message.calls) == ("Hm. ", [("f", "{}")])
    shown, parser = answer(codec, "<|python_tag|>print(1)", tools=True)
    assert put_together([*parser.push(shown), *parser.finish()]).content == "print(1)"
    shown, _ = answer(codec, f"Hm. {CALL}", tools=False)
    assert shown == f"Hm. {CALL}".replace("<|python_tag|>", "")


def test_marks_that_are_no_special_tokens_need_not_be_shown(tmp_path: Path) -> None:
    codec = TextCodec(write_tokenizer(tmp_path / "tokenizer", PLAIN), tool_calls="hermes")
    assert codec.marks(tools=True) == frozenset()
    assert codec.call_openings == frozenset(codec.encode("<tool_call>"))


def test_all_special_tokens_are_shown_on_request(tmp_path: Path) -> None:
    codec = TextCodec(write_tokenizer(tmp_path / "tokenizer", PLAIN))
    ids = codec.encode(f"a{START}b{END}")
    for shown, text in ((None, f"a{START}b{END}"), (frozenset(), "ab")):
        detokenizer = codec.detokenizer([], shown)
        assert "".join(map(detokenizer.push, ids)) + detokenizer.flush() == text


def test_forms_can_be_given(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path / "tokenizer", PLAIN)
    codec = TextCodec(folder, tool_calls="hermes", reasoning="think")
    _, parser = answer(codec, "", tools=True)
    events = parser.push('<think>a</think>b<tool_call>{"name": "f"}</tool_call>')
    message = put_together([*events, *parser.finish()])
    assert (message.reasoning, message.content, message.calls) == ("a", "b", [("f", "{}")])
    with pytest.raises(ValueError, match="tool call form"):
        TextCodec(folder, tool_calls="something")


def described(tmp_path: Path, template: Any) -> TextCodec:
    config = {"response_template": template}
    return TextCodec(write_tokenizer(tmp_path / "tokenizer", PLAIN, config=config))


def test_a_tokenizers_own_description_of_answers_is_used(tmp_path: Path) -> None:
    thoughts = {"open": "<think>", "close": "</think>"}
    template = {
        "start_anchor": f"{START}assistant\n",
        "fields": {"thinking": thoughts, "content": {}},
    }
    codec = described(tmp_path, template)
    shown, parser = answer(codec, f"<think>a</think>b{END}", tools=False)
    assert isinstance(parser, TemplateParser)
    assert shown.endswith(END), "it may look at any special token"
    message = put_together([*parser.push("<think>a</think>b"), *parser.finish()])
    assert (message.reasoning, message.content) == ("a", "b")


def test_a_description_that_cannot_be_used_is_passed_over(tmp_path: Path) -> None:
    codec = described(tmp_path, {"fields": {"content": {"open_pattern": "("}}})
    _, parser = answer(codec, "", tools=False)
    assert put_together([*parser.push("a"), *parser.finish()]).content == "a"


def test_calls_that_cannot_be_enforced_are_refused(tmp_path: Path) -> None:
    codec = TextCodec(write_tokenizer(tmp_path / "tokenizer", PLAIN))
    prompt = codec.chat_prompt([{"role": "user", "content": "hi"}])
    with pytest.raises(RequestRefused, match="tool_choice cannot be enforced") as refusal:
        codec.call_constraint(TOOLS, prompt, several=True)
    assert refusal.value.param == "tool_choice"
