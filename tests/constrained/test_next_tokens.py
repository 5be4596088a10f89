"""What may come next, by the constraint and by how short the answer is."""

from __future__ import annotations

import numpy as np

from radix_engine.model.allowed_tokens import AllowedTokens, all_but
from server.constrained.grammars import Grammars
from server.constrained.next_tokens import NextTokens
from server.constraint import Constraint
from tests.constrained.tokenizers_of_two_kinds import BYTE_END
from tests.tiny import VOCAB_SIZE

NOT_ENDS = all_but([BYTE_END, ord("b")], VOCAB_SIZE)


def ids_of(mask: AllowedTokens | None) -> set[int]:
    assert mask is not None
    return set(np.nonzero(np.unpackbits(mask, bitorder="little"))[0].tolist())


def test_without_a_constraint_all_but_the_ends_may_come_and_then_anything() -> None:
    tokens = NextTokens(None, 2, NOT_ENDS)
    assert not tokens.are_free(0)
    assert not tokens.are_free(1)
    assert ids_of(tokens.allowed(1)) == set(range(VOCAB_SIZE)) - {BYTE_END, ord("b")}
    assert tokens.are_free(2)
    assert tokens.allowed(2) is None
    assert tokens.take(5) is None
    assert NextTokens().are_free(0)
    assert NextTokens().allowed(0) is None


def test_a_constraint_ends_later_where_it_can(grammars: Grammars) -> None:
    tokens = NextTokens(grammars.matcher(Constraint("regex", "(?:a|b)*")), 2, NOT_ENDS)
    assert not tokens.are_free(9)
    assert ids_of(tokens.allowed(0)) == {ord("a")}
    assert ids_of(tokens.allowed(2)) == {ord("a"), ord("b"), BYTE_END}


def test_a_constraint_ends_early_where_it_has_to(grammars: Grammars) -> None:
    tokens = NextTokens(grammars.matcher(Constraint("regex", "ab")), 9, NOT_ENDS)
    assert ids_of(tokens.allowed(0)) == {ord("a")}
    assert tokens.take(ord("a")) is None
    assert ids_of(tokens.allowed(1)) == {ord("b")}
    assert tokens.take(ord("b")) is None
    assert ids_of(tokens.allowed(2)) == {BYTE_END}
    assert tokens.take(BYTE_END) is None


def test_a_token_that_breaks_it_is_told(grammars: Grammars) -> None:
    tokens = NextTokens(grammars.matcher(Constraint("regex", "ab")))
    assert ids_of(tokens.allowed(0)) == {ord("a")}
    assert tokens.take(ord("x")) == (
        "the answer cannot follow its constraint: token 120 came, which it does not allow"
    )
    assert tokens.allowed(1) is None
