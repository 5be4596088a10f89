"""Stop strings and text as tokens come."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from server.errors import RequestRefused
from server.stop_strings import StopStrings
from server.text import TextCodec
from tests.tiny import make_tiny_folder


def shown(pieces: list[str], stops: tuple[str, ...]) -> tuple[str, bool]:
    matcher, text = StopStrings(stops), ""
    for piece in pieces:
        new, stopped = matcher.push(piece)
        text += new
        if stopped is not None:
            return text, True
    return text + matcher.flush(), False


@pytest.mark.parametrize(
    ("stops", "text", "stopped"),
    [
        (("beta gamma",), "alpha ", True),
        (("ga",), "alpha beta ", True),
        (("zzz",), "alpha beta gamma delta", False),
        (("delta!",), "alpha beta gamma delta", False),
        (("\n",), "alpha beta gamma delta", False),
        (("gamma", "beta"), "alpha ", True),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_a_stop_string_is_found_however_the_text_is_cut(
    stops: tuple[str, ...], text: str, stopped: bool, size: int
) -> None:
    whole = "alpha beta gamma delta"
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    assert shown(pieces, stops) == (text, stopped)


def test_text_is_held_back_only_while_it_may_begin_a_stop_string() -> None:
    matcher = StopStrings(("abc",))
    assert matcher.push("xa") == ("x", None)
    assert matcher.push("b") == ("", None)
    assert matcher.push("a") == ("ab", None)
    assert matcher.push("q") == ("aq", None)


def test_characters_of_several_tokens_are_never_shown_broken(tiny_folder: Path) -> None:
    codec = TextCodec(tiny_folder)
    text = "na\u00efve \U0001f600 \u4f60\u597d end"
    ids = codec.encode(text)
    detokenizer = codec.detokenizer(codec.encode("before "))
    pieces = [detokenizer.push(token) for token in ids]
    assert "".join(pieces) + detokenizer.flush() == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_a_character_cut_off_at_the_end_is_shown_as_replaced(tiny_folder: Path) -> None:
    codec = TextCodec(tiny_folder)
    ids = codec.encode("ok \U0001f600")[:-1]
    detokenizer = codec.detokenizer([])
    text = "".join(detokenizer.push(token) for token in ids)
    assert text == "ok "
    assert detokenizer.flush() == "\ufffd"


def test_a_conversation_has_the_ids_that_the_template_gives(tiny_folder: Path) -> None:
    codec = TextCodec(tiny_folder)
    messages = [{"role": "user", "content": "hello"}]
    ids = codec.render_chat(messages)
    assert codec.decode(ids, special=True) == (
        "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    )


def test_messages_for_a_model_without_a_template_are_refused(tmp_path: Path) -> None:
    folder = make_tiny_folder(tmp_path / "plain", tokenizer=True)
    for name in ("tokenizer_config.json", "chat_template.jinja"):
        path = folder / name
        if path.exists() and name.endswith(".jinja"):
            path.unlink()
    config = folder / "tokenizer_config.json"
    values = json.loads(config.read_text())
    values.pop("chat_template", None)
    config.write_text(json.dumps(values))
    with pytest.raises(RequestRefused, match="no chat template"):
        TextCodec(folder).render_chat([{"role": "user", "content": "hello"}])


def test_the_end_of_a_prompt_never_shows_in_its_answer(tiny_folder: Path) -> None:
    codec = TextCodec(tiny_folder)
    ids = codec.encode("secret \U0001f600 and more \u4f60 text")
    whole = codec.decode(ids)
    for cut in range(1, len(ids)):
        detokenizer = codec.detokenizer(ids[:cut])
        answer = "".join(detokenizer.push(token) for token in ids[cut:]) + detokenizer.flush()
        assert whole.endswith(answer)
        assert "\ufffd" not in answer
        assert codec.decode(ids[:cut]).rstrip("\ufffd") + answer == whole


def test_a_tokenizer_file_that_asks_for_truncation_cuts_nothing(tmp_path: Path) -> None:
    folder = make_tiny_folder(tmp_path / "cut", tokenizer=True)
    path = folder / "tokenizer.json"
    values = json.loads(path.read_text())
    values["truncation"] = {
        "direction": "Right",
        "max_length": 5,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    path.write_text(json.dumps(values))
    assert len(TextCodec(folder).encode("abcdefghijklmnopqrstuvw" * 4)) > 5


def test_text_that_can_never_fit_is_refused_without_tokenizing_it(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec = TextCodec(tiny_folder, context_length=100)
    assert len(codec.encode("ab " * 100)) > 100, "near the limit it is counted in tokens"
    monkeypatch.setattr(codec._tokens, "tokenizer", None)
    with pytest.raises(RequestRefused, match="context of 100 tokens") as refusal:
        codec.encode("ab " * 100_000)
    assert refusal.value.code == "context_length_exceeded"


def test_a_template_without_tools_is_known_to_take_none(tiny_folder: Path, tmp_path: Path) -> None:
    assert not TextCodec(tiny_folder).takes_tools
    folder = make_tiny_folder(tmp_path / "tools", tokenizer=True)
    config = folder / "tokenizer_config.json"
    values = json.loads(config.read_text())
    values["chat_template"] = "{{ tools }}" + values["chat_template"]
    config.write_text(json.dumps(values))
    assert TextCodec(folder).takes_tools
