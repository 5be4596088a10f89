"""Single tokens as text and bytes, for byte-level and for other vocabularies."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models

from server.text import TextCodec
from server.token_text import TokenText, TokenTexts


def test_a_byte_level_token_shows_its_bytes_and_is_text_where_they_are_characters(
    tiny_folder: Path,
) -> None:
    codec = TextCodec(tiny_folder)
    text = " the cat, 猫\U0001f408\n"
    ids = codec.encode(text)
    looks = [codec.token_text(token) for token in ids]
    assert b"".join(each.data for each in looks) == text.encode()
    assert looks[0] == TokenText(" the", b" the")
    first = next(each for each in looks if each.data == b"\xe7")
    assert first.text == "bytes:\\xe7"
    assert looks[-1] == TokenText("\n", b"\n")


def test_every_byte_has_its_token(tiny_folder: Path) -> None:
    codec = TextCodec(tiny_folder)
    data = {codec.token_text(token).data for token in range(256)}
    assert data == {bytes([byte]) for byte in range(256)}


def test_special_tokens_are_told_apart_and_unknown_ids_are_nothing(tiny_folder: Path) -> None:
    codec = TextCodec(tiny_folder)
    assert codec.token_text(511) == TokenText("<|im_end|>", b"<|im_end|>", special=True)
    assert codec.token_text(100_000) == TokenText("", b"")


@pytest.mark.parametrize(
    ("name", "text", "data"),
    [
        ("\u2581hello", " hello", b" hello"),
        ("<0x0A>", "\n", b"\n"),
        ("<0xE2>", "bytes:\\xe2", b"\xe2"),
        ("caf\u00e9", "caf\u00e9", "caf\u00e9".encode()),
    ],
)
def test_a_vocabulary_with_marked_spaces_and_byte_tokens(name: str, text: str, data: bytes) -> None:
    tokenizer = Tokenizer(models.WordLevel({name: 0, "<unk>": 1}, unk_token="<unk>"))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    assert TokenTexts(tokenizer)[0] == TokenText(text, data)


def test_an_added_token_that_is_no_special_one_is_plain_text() -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "<unk>": 1}, unk_token="<unk>"))
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False)])
    assert TokenTexts(tokenizer)[2] == TokenText("<tool>", b"<tool>")
