"""Tokens of conversations: those of earlier answers as they were generated, all others fresh."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from radix_engine.cache import DEFAULT, Namespace
from server.chat.transcripts import Transcripts
from server.tokens import Tokens
from tests.server_chat.tiny_tokenizer import END, START, write_tokenizer

HEAD = f"{START}user\nthe question{END}\n{START}assistant\n"
NEXT = f"{END}\n{START}user\nand now?{END}\n{START}assistant\n"


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    folder = write_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    return Tokens(Tokenizer.from_file(str(folder / "tokenizer.json")))


@pytest.fixture
def transcripts(tokens: Tokens) -> Transcripts:
    return Transcripts(tokens, 1_000_000)


def fresh(tokens: Tokens, text: str) -> list[int]:
    return tokens.encode(text, special=False)


def letters(tokens: Tokens, text: str) -> list[int]:
    """A text in tokens of one byte each, as no tokenizer would write it."""
    return [token for character in text for token in fresh(tokens, character)]


def test_the_first_turn_is_what_the_tokenizer_makes_of_it(
    tokens: Tokens, transcripts: Transcripts
) -> None:
    made = transcripts.tokens(DEFAULT, HEAD)
    assert (made.ids, made.reused) == (fresh(tokens, HEAD), 0)


def test_an_answers_own_tokens_are_used_when_its_text_comes_back(
    tokens: Tokens, transcripts: Transcripts
) -> None:
    answer = letters(tokens, "ab abc")
    assert answer != fresh(tokens, "ab abc")
    transcripts.tokens(DEFAULT, HEAD).remember(answer + fresh(tokens, END))
    made = transcripts.tokens(DEFAULT, HEAD + "ab abc" + NEXT)
    assert made.ids == fresh(tokens, HEAD) + answer + fresh(tokens, NEXT)
    assert made.reused == len(fresh(tokens, HEAD)) + len(answer) + 1
    assert tokens.decode(made.ids, special=True) == HEAD + "ab abc" + NEXT


def test_an_answer_that_was_cut_off_goes_on_with_fresh_tokens_at_the_next_mark(
    tokens: Tokens, transcripts: Transcripts
) -> None:
    answer = letters(tokens, "the ab")
    transcripts.tokens(DEFAULT, HEAD).remember(answer)
    made = transcripts.tokens(DEFAULT, HEAD + "the ab" + NEXT)
    assert made.ids == fresh(tokens, HEAD) + answer + fresh(tokens, NEXT)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("abc the X", "abc the"),  # the fresh tokens have a border between words
        ("abcX the lok", "abc"),
        ("abX", ""),  # fresh: ab, X; generated: a, b. After "ab" both have a border
        ("X", ""),
        ("", ""),
        ("abc the lok and more", "abc the lok"),
    ],
)
def test_where_the_client_has_changed_the_answer_its_tokens_end_before_that(
    tokens: Tokens, transcripts: Transcripts, sent: str, kept: str
) -> None:
    answer = letters(tokens, "abc the lok")
    transcripts.tokens(DEFAULT, HEAD).remember(answer + fresh(tokens, END))
    text = HEAD + sent + NEXT
    made = transcripts.tokens(DEFAULT, text)
    assert tokens.decode(made.ids, special=True) == text
    head = fresh(tokens, HEAD)
    kept = "ab" if sent == "abX" else kept
    expected = head + letters(tokens, kept)
    assert made.ids[: len(expected)] == expected
    rest = made.ids[len(expected) :]
    whole = fresh(tokens, text)
    assert rest == whole[len(whole) - len(rest) :], "what follows is as in the whole text"
    assert len(rest) == len(fresh(tokens, sent[len(kept) :] + NEXT))


@pytest.mark.parametrize(("sent", "kept"), [("ok abc", "ok "), ("ok a", "ok a"), ("oklo", "ok")])
def test_the_tokens_end_where_a_fresh_one_does_too(
    tokens: Tokens, transcripts: Transcripts, sent: str, kept: str
) -> None:
    transcripts.tokens(DEFAULT, HEAD).remember(letters(tokens, "ok a the"))
    made = transcripts.tokens(DEFAULT, HEAD + sent + NEXT)
    rest = fresh(tokens, sent + NEXT)[len(fresh(tokens, kept)) :]
    assert made.ids == fresh(tokens, HEAD) + letters(tokens, kept) + rest


def test_a_whole_conversation_stays_as_it_was(tokens: Tokens, transcripts: Transcripts) -> None:
    text, ids = HEAD, fresh(tokens, HEAD)
    for turn in range(10):
        made = transcripts.tokens(DEFAULT, text)
        assert made.ids == ids
        answer = letters(tokens, f"abc the {turn}")
        made.remember(answer + fresh(tokens, END))
        text += f"abc the {turn}" + NEXT
        ids = ids + answer + fresh(tokens, NEXT)
    assert transcripts.reused_prompts == 9


def test_the_same_prompt_again_has_the_same_tokens(
    tokens: Tokens, transcripts: Transcripts
) -> None:
    first = transcripts.tokens(DEFAULT, HEAD)
    first.remember(letters(tokens, "ab"))
    second = transcripts.tokens(DEFAULT, HEAD + "ab" + NEXT)
    second.remember(letters(tokens, "abc"))
    again = transcripts.tokens(DEFAULT, HEAD + "ab" + NEXT)
    assert again.ids == second.ids
    again.remember(letters(tokens, "the"))
    for text in ("abc", "the"):
        longer = transcripts.tokens(DEFAULT, HEAD + "ab" + NEXT + text + NEXT)
        assert longer.ids == second.ids + letters(tokens, text) + fresh(tokens, NEXT)


def test_nothing_goes_over_a_namespace(tokens: Tokens, transcripts: Transcripts) -> None:
    mine, other = Namespace(tenant="a"), Namespace(tenant="b")
    transcripts.tokens(mine, HEAD).remember(letters(tokens, "ab"))
    text = HEAD + "ab" + NEXT
    assert transcripts.tokens(other, text).ids == fresh(tokens, text)
    assert transcripts.tokens(DEFAULT, text).ids == fresh(tokens, text)
    assert transcripts.tokens(mine, text).ids != fresh(tokens, text)


def test_a_changed_prompt_finds_nothing(tokens: Tokens, transcripts: Transcripts) -> None:
    transcripts.tokens(DEFAULT, HEAD).remember(letters(tokens, "ab"))
    text = HEAD.replace("question", "query") + "ab" + NEXT
    assert transcripts.tokens(DEFAULT, text).ids == fresh(tokens, text)


def test_characters_of_several_tokens_are_never_torn(
    tokens: Tokens, transcripts: Transcripts
) -> None:
    answer = letters(tokens, "a\U0001f600b")
    transcripts.tokens(DEFAULT, HEAD).remember(answer[:-2])  # ends inside the second character
    for sent in ("a", "a\U0001f601", "a\U0001f600b", "a\ufffd"):
        text = HEAD + sent + NEXT
        made = transcripts.tokens(DEFAULT, text)
        assert tokens.decode(made.ids, special=True) == text


def test_memory_is_bounded_and_what_is_used_stays(tokens: Tokens) -> None:
    transcripts = Transcripts(tokens, 20_000)
    text = HEAD + "ab" + NEXT
    transcripts.tokens(DEFAULT, HEAD).remember(letters(tokens, "ab"))
    for number in range(200):
        other = HEAD.replace("question", f"question {number}")
        transcripts.tokens(DEFAULT, other).remember(letters(tokens, "abc"))
        assert transcripts.size_bytes <= 20_000
        assert transcripts.tokens(DEFAULT, text).ids != fresh(tokens, text), "it was used just now"
    first = HEAD.replace("question", "question 0") + "abc" + NEXT
    assert transcripts.tokens(DEFAULT, first).ids == fresh(tokens, first), "it has gone"
    transcripts.clear()
    assert transcripts.size_bytes == 0
    assert transcripts.tokens(DEFAULT, text).ids == fresh(tokens, text)


def test_with_no_memory_all_tokens_are_fresh(tokens: Tokens) -> None:
    transcripts = Transcripts(tokens, 0)
    transcripts.tokens(DEFAULT, HEAD).remember(letters(tokens, "ab"))
    text = HEAD + "ab" + NEXT
    assert transcripts.tokens(DEFAULT, text).ids == fresh(tokens, text)


ANSWERS = st.text(alphabet="abc tholk\n\u00e9\U0001f600", max_size=12)


@settings(max_examples=150, deadline=None)
@given(
    turns=st.lists(st.tuples(ANSWERS, st.sets(st.integers(0, 12))), max_size=5),
    edit=st.tuples(st.integers(0, 40), ANSWERS),
    memory=st.sampled_from([3_000, 10**6]),
)
def test_tokens_always_stand_for_the_text_that_was_sent(
    tokens: Tokens, turns: list[tuple[str, set[int]]], edit: tuple[int, str], memory: int
) -> None:
    transcripts = Transcripts(tokens, memory)
    text = HEAD
    for answer, borders in turns:
        made = transcripts.tokens(DEFAULT, text)
        assert tokens.decode(made.ids, special=True) == text
        edges = [0, *sorted(each for each in borders if each < len(answer)), len(answer)]
        words = [answer[start:end] for start, end in pairwise(edges)]
        made.remember([token for word in words for token in fresh(tokens, word)])
        text += answer + NEXT
    place, replacement = len(text) - min(edit[0], len(text)), edit[1]
    edited = text[:place] + replacement + text[place + len(replacement) :]
    for sent in (text, edited):
        made = transcripts.tokens(DEFAULT, sent)
        assert tokens.decode(made.ids, special=True) == sent


def test_it_is_known_which_marks_cut_any_text(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path / "t")
    tokens = Tokens(Tokenizer.from_file(str(folder / "tokenizer.json")))
    assert {START, END, "<think>"} <= set(tokens.dividers)
