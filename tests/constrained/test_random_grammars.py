"""Grammars at random: what may come is what the definition says, and what came is what was asked
for, or the beginning of it."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import jsonschema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from server.constrained.grammars import Grammars
from server.constraint import Constraint
from server.token_text import TokenTexts
from tests.constrained.naive_regex import NEVER, Regex, either, literal, many, then
from tests.constrained.tokenizers_of_two_kinds import BYTE_END
from tests.constrained.walking import allowed_ids, text_of, walk

ENDS = frozenset({BYTE_END})
OFTEN = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

Pattern = tuple[str, Regex]  # as text, and what it means
LETTERS = st.sampled_from(["a", "b", "the", "\u00e9", "x"])
PATTERNS: st.SearchStrategy[Pattern] = st.recursive(
    LETTERS.map(lambda text: (text, literal(text))),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(
            lambda two: (two[0][0] + two[1][0], then(two[0][1], two[1][1]))
        ),
        st.tuples(inner, inner).map(
            lambda two: (f"(?:{two[0][0]}|{two[1][0]})", either(two[0][1], two[1][1]))
        ),
        inner.map(lambda one: (f"(?:{one[0]})*", many(one[1]))),
        inner.map(lambda one: (f"(?:{one[0]})?", either(one[1], literal("")))),
    ),
    max_leaves=6,
)


def may_come(tokenizer: Tokenizer, left: Regex) -> set[int]:
    """The tokens that keep a text the beginning of one that matches, and the end where it does."""
    texts = TokenTexts(tokenizer)
    size = tokenizer.get_vocab_size()
    fitting = {
        token
        for token in range(size)
        if not texts[token].special and texts[token].data and left.after(texts[token].data) != NEVER
    }
    return fitting | (ENDS if left.may_end else set())


@OFTEN
@given(pattern=PATTERNS, chance=st.randoms(use_true_random=False))
def test_what_may_come_is_what_keeps_the_text_a_beginning(
    grammars: Grammars, tokenizer: Tokenizer, pattern: Pattern, chance: random.Random
) -> None:
    text, left = pattern
    free = f'start: /{text}/\n%llguidance {{"no_forcing": true}}'
    matcher = grammars.matcher(Constraint("lark", free))
    texts = TokenTexts(tokenizer)
    for _ in range(8):
        allowed = allowed_ids(matcher)
        assert allowed == may_come(tokenizer, left)
        token = chance.choice(sorted(allowed))
        if token in ENDS:
            return
        matcher.take(token)
        left = left.after(texts[token].data)


@OFTEN
@given(pattern=PATTERNS, chance=st.randoms(use_true_random=False))
def test_an_answer_ends_where_it_matches_and_is_a_beginning_before(
    grammars: Grammars, tokenizer: Tokenizer, pattern: Pattern, chance: random.Random
) -> None:
    text, left = pattern
    matcher = grammars.matcher(Constraint("regex", text))
    texts = TokenTexts(tokenizer)
    data = b""
    for _ in range(20):
        allowed = allowed_ids(matcher)
        assert allowed <= may_come(tokenizer, left.after(data))
        assert (BYTE_END in allowed) == left.after(data).may_end
        token = chance.choice(sorted(allowed))
        matcher.take(token)
        if token in ENDS:
            assert re.fullmatch(text, data.decode())
            return
        data += texts[token].data
    assert left.after(data) != NEVER


SCALARS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"type": "boolean"},
        {"type": "null"},
        {"type": "integer", "minimum": -5, "maximum": 120},
        {"type": "number", "exclusiveMinimum": 0, "maximum": 2.5},
        {"type": "string", "maxLength": 3},
        {"type": "string", "pattern": "^[ab]{1,3}$"},
        {"type": "string", "format": "ipv4"},
        {"enum": ["red", "green", 7, None]},
        {"const": {"a": [1]}},
        {"type": ["integer", "null"]},
    ]
)
NAMES = st.lists(st.sampled_from(["a", "b", "the name", "\u00e9"]), max_size=3, unique=True)


def an_object(names: list[str], parts: list[dict[str, Any]], required: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(zip(names, parts, strict=False)),
        "required": names[: min(required, len(parts))],
        "additionalProperties": False,
    }


SCHEMAS: st.SearchStrategy[dict[str, Any]] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.builds(an_object, NAMES, st.lists(inner, max_size=3), st.integers(0, 3)),
        inner.map(lambda items: {"type": "array", "items": items, "minItems": 1, "maxItems": 2}),
        st.tuples(inner, inner).map(lambda two: {"anyOf": list(two)}),
    ),
    max_leaves=5,
)


@OFTEN
@given(schema=SCHEMAS, chance=st.randoms(use_true_random=False))
def test_an_answer_to_a_schema_is_valid_where_it_ends(
    grammars: Grammars, tokenizer: Tokenizer, schema: dict[str, Any], chance: random.Random
) -> None:
    constraint = Constraint("json_schema", json.dumps(schema))
    for _ in range(3):
        tokens, ended = walk(grammars.matcher(constraint), ENDS, chance, most=300)
        if ended:
            value = json.loads(text_of(tokenizer, tokens))
            jsonschema.validate(value, schema, format_checker=jsonschema.FormatChecker())


def test_most_schemas_bring_answers_to_an_end(grammars: Grammars, tokenizer: Tokenizer) -> None:
    """So the test above is one of something."""
    schema = an_object(["a", "b"], [{"type": "boolean"}, {"enum": ["x", "y"]}], 2)
    chance = random.Random(1)
    ended = 0
    for _ in range(20):
        matcher = grammars.matcher(Constraint("json_schema", json.dumps(schema)))
        tokens, is_over = walk(matcher, ENDS, chance, most=600)
        ended += is_over
        if is_over:
            assert json.loads(text_of(tokenizer, tokens)).keys() == {"a", "b"}
    assert ended >= 15
