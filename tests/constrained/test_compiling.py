"""llguidance's view of a tokenizer, and the program that compiles grammars."""

from __future__ import annotations

import ast
import io
import re
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from server.constrained import compiling
from server.constrained.compiling import make_tokenizer, read_message, write_message
from server.constrained.grammars import Grammars
from server.constraint import Constraint
from server.detokenizer import Detokenizer
from server.token_text import TokenTexts
from tests.constrained.tokenizers_of_two_kinds import BYTE_END, PIECE_END, pieces
from tests.constrained.walking import allowed_ids, take_all, text_of
from tests.tiny import VOCAB_SIZE

TEXTS = ["the the ab", '{"\u00e9\U0001f600": 1.5}', "a  b", "<think>the", "a</s>b<|im_end|>c"]


def special_ids(tokenizer: Tokenizer) -> set[int]:
    added = tokenizer.get_added_tokens_decoder()
    return {token for token, each in added.items() if each.special}


def tokenizers(byte_level: Tokenizer) -> list[tuple[Tokenizer, int]]:
    return [(byte_level, BYTE_END), (pieces(), PIECE_END)]


def test_every_token_has_the_bytes_that_it_has_elsewhere(tokenizer: Tokenizer) -> None:
    for each, end in tokenizers(tokenizer):
        view = make_tokenizer(each.to_str(), each.get_vocab_size(), [end])
        texts = TokenTexts(each)
        special = special_ids(each)
        for token in set(range(each.get_vocab_size())) - special:
            # No text has the byte 0xFF; llguidance keeps it for itself.
            if texts[token].data != b"\xff":
                assert view.decode_bytes([token]) == texts[token].data, each.id_to_token(token)


@pytest.mark.parametrize("text", TEXTS)
def test_a_forced_text_is_the_answers_text(tokenizer: Tokenizer, text: str) -> None:
    """Also where spaces are marked, where characters are put together of bytes, and where it spells
    out tokens that are no text."""
    for each, end in tokenizers(tokenizer):
        grammars = Grammars(each, each.get_vocab_size(), frozenset({end}))
        matcher = grammars.matcher(Constraint("regex", re.escape(text)))
        tokens: list[int] = []
        while end not in (allowed := allowed_ids(matcher)):
            tokens.append(min(allowed))
            matcher.take(tokens[-1])
        grammars.close()
        context = each.encode("ab", add_special_tokens=False).ids
        shown = Detokenizer(each, context, special_ids(each))
        assert "".join(map(shown.push, tokens)) + shown.flush() == text


def test_special_tokens_are_no_text(tokenizer: Tokenizer) -> None:
    for each, end in tokenizers(tokenizer):
        grammars = Grammars(each, each.get_vocab_size(), frozenset({end}))
        allowed = allowed_ids(grammars.matcher(Constraint("regex", "(?s:.*)")))
        grammars.close()
        assert allowed & special_ids(each) == {end}


def test_a_grammar_may_name_a_special_token(grammars: Grammars, tokenizer: Tokenizer) -> None:
    start = tokenizer.token_to_id("<|im_start|>")
    assert start is not None
    matcher = grammars.matcher(Constraint("lark", 'start: <|im_start|> "a"'))
    assert allowed_ids(matcher) == {start}
    matcher.take(start)
    assert allowed_ids(matcher) == {tokenizer.token_to_id("a")}


def test_all_tokens_that_end_an_answer_end_it(tokenizer: Tokenizer) -> None:
    ends = frozenset({BYTE_END, 300})
    grammars = Grammars(tokenizer, VOCAB_SIZE, ends)
    matcher = grammars.matcher(Constraint("regex", "a?"))
    assert allowed_ids(matcher) == {tokenizer.token_to_id("a"), *ends}
    for end in ends:
        fresh = grammars.matcher(Constraint("regex", "a?"))
        take_all(fresh, [end])
    grammars.close()


def test_a_model_may_have_more_tokens_than_its_tokenizer_or_fewer(tokenizer: Tokenizer) -> None:
    for vocabulary in (VOCAB_SIZE + 37, VOCAB_SIZE - 100):
        grammars = Grammars(tokenizer, vocabulary, frozenset({300}))
        matcher = grammars.matcher(Constraint("regex", "(?s:.*)"))
        assert max(allowed_ids(matcher)) < VOCAB_SIZE
        assert text_of(tokenizer, [min(allowed_ids(matcher))])
        grammars.close()


def test_the_program_imports_nothing_of_ours() -> None:
    tree = ast.parse(Path(compiling.__file__).read_text(encoding="utf-8"))
    imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [name for name in imported if name and name.split(".")[0] in ("server", "tests")]
    assert "radix_engine" not in " ".join(filter(None, imported))


def test_messages_arrive_as_they_were_sent_and_an_end_inside_one_is_the_end() -> None:
    stream = io.BytesIO()
    for text in ("", "a\nb", "\u00e9\U0001f600" * 1000):
        write_message(stream, text)
    whole = stream.getvalue()
    stream.seek(0)
    read = [read_message(stream) for _ in range(4)]
    assert read == ["", "a\nb", "\u00e9\U0001f600" * 1000, None]
    cut = io.BytesIO(whole[:-1])
    assert [read_message(cut) for _ in range(3)] == ["", "a\nb", None]
