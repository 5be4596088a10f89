"""Answers that only a grammar chooses."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
from tokenizers import Tokenizer

from server.constrained.matcher import Matcher


def allowed_ids(matcher: Matcher) -> set[int]:
    """The tokens that may come next."""
    mask = matcher.allowed()
    assert mask is not None, matcher.problem
    return set(np.nonzero(np.unpackbits(mask, bitorder="little"))[0].tolist())


def take_all(matcher: Matcher, tokens: Iterable[int]) -> None:
    """Take tokens, each of which must be allowed."""
    for token in tokens:
        assert token in allowed_ids(matcher)
        matcher.take(token)
        assert matcher.problem is None


def walk(
    matcher: Matcher, ends: frozenset[int], chance: random.Random, most: int
) -> tuple[list[int], bool]:
    """At most so many tokens, each one of those that may come; and whether the answer has ended."""
    tokens: list[int] = []
    while len(tokens) < most:
        token = chance.choice(sorted(allowed_ids(matcher)))
        matcher.take(token)
        assert matcher.problem is None
        if token in ends:
            return tokens, True
        tokens.append(token)
    return tokens, False


def text_of(tokenizer: Tokenizer, tokens: Iterable[int]) -> str:
    """The tokens' text."""
    text: str = tokenizer.decode(list(tokens), skip_special_tokens=False)
    return text
