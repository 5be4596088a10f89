"""What becomes of a constraint's text, and of what llguidance says of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Literal

import pytest
from tokenizers import Tokenizer

from server.constrained.compiling import compile_grammar, make_tokenizer
from server.constrained.grammar_text import (
    MAX_BYTES,
    GrammarError,
    check_size,
    grammar_of,
    plain_words,
)
from server.constrained.grammars import Grammars
from server.constraint import Constraint, one_of
from server.errors import RequestRefused
from tests.constrained.tokenizers_of_two_kinds import BYTE_END
from tests.constrained.walking import allowed_ids
from tests.tiny import VOCAB_SIZE

Accepts = Callable[[Constraint, str], bool]
Kind = Literal["json_schema", "regex", "lark"]


@pytest.fixture(scope="module")
def accepts(grammars: Grammars, tokenizer: Tokenizer) -> Accepts:
    """Whether a constraint is a text's."""

    def look(constraint: Constraint, text: str) -> bool:
        matcher = grammars.matcher(constraint)
        for token in tokenizer.encode(text, add_special_tokens=False).ids:
            if token not in allowed_ids(matcher):
                return False
            matcher.take(token)
        return BYTE_END in allowed_ids(matcher)

    return look


def regex(pattern: str) -> Constraint:
    return Constraint("regex", pattern)


def schema(**keywords: object) -> Constraint:
    return Constraint("json_schema", json.dumps(keywords))


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("^ab$", "ab", "abc"),
        ("ab", "ab", "b"),
        (r"a\$", "a$", "a"),
        (r"a\\$", "a\\", "a\\$"),
        ("^a|b$", "b", "ab"),
        ("a/b", "a/b", "a"),
        (r"\d{2}-\d{2}", "12-34", "1-234"),
        ('"a" # b', '"a" # b', '"a"'),
        ("x\ny", "x\ny", "xy"),
        ("[^/]+", "abc", "a/c"),
        ("\u00e9+", "\u00e9\u00e9", "e"),
    ],
)
def test_a_regular_expression_is_matched_by_the_whole_text(
    accepts: Accepts, pattern: str, good: str, bad: str
) -> None:
    assert accepts(regex(pattern), good)
    assert not accepts(regex(pattern), bad)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ('{"a":1}', True),
        ('{"a": 1}', True),
        ('{ "a" : 1 }', True),
        ('{\n  "a": 1\n}', True),
        ('{\r\n\t\t"a": 1\r\n}', True),
        ("{\n" + " " * 64 + '"a": 1}', True),
        ("{\n" + " " * 65 + '"a": 1}', False),
        ('{\n\n"a": 1}', False),
        ('{   "a": 1}', False),
        (' {"a": 1}', False),
        ('{"a": 1} ', False),
        ('{"a": 01}', False),
        ('{"a": "\\u00e9\\ud83d\\ude00"}', True),
        ('{"a": "\\ud83d"}', False),
        ('{"a": "line\nbreak"}', False),
    ],
)
def test_json_has_some_white_space_and_never_without_end(
    accepts: Accepts, text: str, is_one: bool
) -> None:
    assert accepts(schema(type="object"), text) is is_one


def test_the_author_of_a_schema_may_choose_its_white_space(accepts: Accepts) -> None:
    compact = Constraint("json_schema", '{"x-guidance": {"whitespace_flexible": false}}')
    flexible = '{"x-guidance": {"whitespace_pattern": " *"}}'
    assert accepts(compact, '{"a":1}')
    assert accepts(Constraint("json_schema", flexible), '{    "a":1}')


def test_true_is_any_json_and_false_is_none(accepts: Accepts) -> None:
    assert accepts(Constraint("json_schema", "true"), "[1, null]")
    with pytest.raises(RequestRefused, match="Unsatisfiable"):
        accepts(Constraint("json_schema", "false"), "1")


@pytest.mark.parametrize(
    "grammar",
    [
        'start: word ("," word)*\nword: /[a-z]+/',
        'root ::= word ("," word)*\nword ::= [a-z]+',
    ],
)
def test_grammars_may_be_lark_or_gbnf(accepts: Accepts, grammar: str) -> None:
    assert accepts(Constraint("lark", grammar), "one,two")
    assert not accepts(Constraint("lark", grammar), "one,")


HARD = [
    'a"b',
    "back\\slash",
    "new\nline",
    "\x01",
    "\U0001f600",
    "a",
    "ab",
    "#",
    "//",
    "\u2028",
    "i",
]


@pytest.mark.parametrize("text", HARD)
def test_a_choice_is_one_of_its_texts_whatever_is_in_them(accepts: Accepts, text: str) -> None:
    assert accepts(one_of(HARD), text)
    assert not accepts(one_of(HARD), text + "!")
    assert not accepts(one_of([each for each in HARD if each != text]), text)


@pytest.mark.parametrize("texts", [[], ["a", ""]])
def test_a_choice_needs_texts(texts: list[str]) -> None:
    with pytest.raises(ValueError, match="texts"):
        one_of(texts)


THOUGHT = 'before: thought /\\n*/\nthought[suffix="</think>"]: /(?s:.*)/'


@pytest.mark.parametrize(
    ("kind", "source", "answer"),
    [
        ("json_schema", '{"type": "object"}', '{"a": 1}'),
        ("regex", "ab*", "abb"),
        ("lark", 'start: thought "b"\nthought: "start"', "startb"),
        ("lark", 'root ::= thought "b"\nthought ::= "start"', "startb"),
    ],
)
def test_something_may_come_before_an_answer(
    accepts: Accepts, kind: Kind, source: str, answer: str
) -> None:
    constraint = Constraint(kind, source, before=THOUGHT)
    assert accepts(constraint, f"so {{ I }} think</think>\n\n{answer}")
    assert accepts(constraint, f"</think>{answer}")
    assert not accepts(constraint, answer)
    assert not accepts(constraint, f"so</think>{answer}{answer}")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("a" * (MAX_BYTES + 1), f"{MAX_BYTES + 1} bytes, the limit is {MAX_BYTES}"),
        ("\u00e9" * (MAX_BYTES // 2 + 1), f"limit is {MAX_BYTES}"),
    ],
)
def test_a_source_has_a_size(source: str, words: str) -> None:
    check_size("\u00e9" * (MAX_BYTES // 2))
    with pytest.raises(GrammarError, match=words):
        check_size(source)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{", "not valid JSON"),
        ('{"minimum": NaN}', "NaN is not JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[1]", "must be an object"),
        ('{"x-guidance": 3}', "x-guidance must be an object"),
    ],
)
def test_what_cannot_be_a_schema_is_told(source: str, words: str) -> None:
    with pytest.raises(GrammarError, match=words):
        grammar_of(Constraint("json_schema", source))


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        (regex("("), "unclosed group"),
        (regex("a(?=b)"), "look-around, including look-ahead and look-behind, is not supported"),
        (schema(type="robot"), "Invalid type: robot"),
        (schema(type="object", propertyNames={}), 'Unimplemented keys: ["propertyNames"]'),
        (Constraint("lark", "start: a\n\na: b"), 'at 3(4): unknown name: "b"'),
    ],
)
def test_llguidances_words_are_made_plain(
    tokenizer: Tokenizer, constraint: Constraint, words: str
) -> None:
    view = make_tokenizer(tokenizer.to_str(), VOCAB_SIZE, [BYTE_END])
    problem = compile_grammar(view, grammar_of(constraint)).get_error()
    assert plain_words(constraint, problem) == words


def test_long_words_are_cut_to_one_line() -> None:
    words = plain_words(regex("x"), "panic: " + "a b\n" * 500 + "<backtrace>\n 0: <unknown>")
    assert len(words) == 303
    assert "\n" not in words
    assert "backtrace" not in words
