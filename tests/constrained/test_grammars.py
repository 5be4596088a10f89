"""The grammars of one model: kept, refused by the name of their field, and given up in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from tokenizers import Tokenizer

from server.constrained import grammars as module
from server.constrained import matcher as matcher_module
from server.constrained.grammar_text import grammar_of
from server.constrained.grammars import MAX_KEPT, MAX_SECONDS, Grammars
from server.constraint import Constraint
from server.errors import RequestRefused
from tests.constrained.tokenizers_of_two_kinds import BYTE_END
from tests.constrained.walking import allowed_ids, take_all
from tests.tiny import VOCAB_SIZE

END = frozenset({BYTE_END})


@pytest.fixture
def fresh(tokenizer: Tokenizer) -> Iterator[Grammars]:
    made = Grammars(tokenizer, VOCAB_SIZE, END)
    yield made
    made.close()


def refusal(grammars: Grammars, constraint: Constraint) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        grammars.check(constraint)
    return caught.value


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (
            Constraint("json_schema", '{"type": "robot"}', "response_format"),
            "the schema in response_format cannot be used: Invalid type: robot. Leave out",
        ),
        (
            Constraint("regex", "(", "structured_outputs.regex"),
            "the regular expression in structured_outputs.regex cannot be used: unclosed group. "
            "Write it in the syntax of Rust",
        ),
        (
            Constraint("lark", "start: a", "guided_grammar"),
            'the grammar in guided_grammar cannot be used: at 1(8): unknown name: "a". Write it',
        ),
        (
            Constraint("lark", "root = a", "guided_grammar"),
            "the grammar in guided_grammar cannot be used: it is neither Lark nor GBNF: Expected",
        ),
        (Constraint("regex", "", "guided_regex"), "in guided_regex cannot be used: it is empty."),
    ],
)
def test_a_refusal_names_the_field_the_reason_and_the_remedy(
    grammars: Grammars, constraint: Constraint, message: str
) -> None:
    refused = refusal(grammars, constraint)
    assert message in refused.message
    assert (refused.param, refused.status, refused.code) == (
        constraint.param,
        400,
        "invalid_constraint",
    )


def test_a_constraint_is_compiled_once_and_a_refusal_found_once(
    fresh: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []

    def noting(constraint: Constraint, marks: object) -> str:
        compiled.append(constraint.source)
        return grammar_of(constraint)

    monkeypatch.setattr(module, "grammar_of", noting)
    for _ in range(3):
        fresh.check(Constraint("regex", "ab"))
        fresh.matcher(Constraint("regex", "ab", "guided_regex"))
        refusal(fresh, Constraint("regex", "("))
    assert refusal(fresh, Constraint("regex", "(", "guided_regex")).param == "guided_regex"
    fresh.check(Constraint("lark", "start: /ab/"))
    fresh.check(Constraint("regex", "ab", before="before: /x/"))
    assert compiled == ["ab", "(", "start: /ab/", "ab"]


def test_the_constraints_used_last_are_kept(
    fresh: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(MAX_KEPT):
        fresh.check(Constraint("regex", f"a{index}"))
    fresh.check(Constraint("regex", "a0"))
    fresh.check(Constraint("regex", "new"))
    assert len(fresh._kept) == MAX_KEPT
    monkeypatch.setattr(module, "grammar_of", None)
    fresh.check(Constraint("regex", "a0"))
    with pytest.raises(TypeError):
        fresh.check(Constraint("regex", "a1"))


def test_a_grammar_that_has_grown_is_compiled_anew_and_makes_room(fresh: Grammars) -> None:
    constraints = [Constraint("regex", f"a{index}") for index in range(4)]
    for constraint in constraints:
        fresh.check(constraint)
    first, second, third, fourth = fresh._kept.values()
    first.seconds = 0.51 * MAX_SECONDS
    fresh.check(constraints[0])
    assert fresh._kept[constraints[0]] is not first
    second.seconds, third.seconds, fourth.seconds = (
        share * MAX_SECONDS for share in (0.2, 0.4, 0.5)
    )
    fresh.check(Constraint("regex", "new"))
    assert constraints[1] not in fresh._kept
    assert fresh._kept[constraints[3]] is fourth


def test_what_answers_take_is_their_grammars(fresh: Grammars) -> None:
    constraint = Constraint("regex", "[a-z]*")
    fresh.check(constraint)
    (grammar,) = fresh._kept.values()
    take_all(fresh.matcher(constraint), b"abc")
    once = grammar.seconds
    take_all(fresh.matcher(constraint), b"abc")
    assert 0 < once < grammar.seconds < 0.1


def test_answers_to_one_constraint_go_their_own_ways(grammars: Grammars) -> None:
    constraint = Constraint("regex", "ab|ac")
    first, second = grammars.matcher(constraint), grammars.matcher(constraint)
    take_all(first, b"ab")
    assert allowed_ids(first) == END
    take_all(second, b"ac")
    take_all(grammars.matcher(constraint), b"ab")


def test_many_threads_may_ask_at_once(fresh: Grammars) -> None:
    failed: list[BaseException] = []

    def ask(index: int) -> None:
        try:
            take_all(fresh.matcher(Constraint("regex", f"a{index % 3}b*")), b"a%d" % (index % 3))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_the_end_comes_exactly_where_the_grammar_can_end(grammars: Grammars) -> None:
    matcher = grammars.matcher(Constraint("regex", "ab?"))
    assert allowed_ids(matcher) == {ord("a")}
    matcher.take(ord("a"))
    assert allowed_ids(matcher) == {ord("b"), BYTE_END}
    matcher.take(ord("b"))
    assert allowed_ids(matcher) == END


def test_a_token_that_may_not_come_is_a_problem_of_its_answer_alone(grammars: Grammars) -> None:
    constraint = Constraint("regex", "ab")
    matcher = grammars.matcher(constraint)
    assert ord("x") not in allowed_ids(matcher)
    matcher.take(ord("x"))
    assert matcher.problem == "token 120 came, which it does not allow"
    matcher.take(ord("a"))
    assert matcher.allowed() is None
    take_all(grammars.matcher(constraint), b"ab")


def test_an_answer_whose_grammar_takes_too_long_is_given_up_and_its_grammar_refused(
    fresh: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matcher_module, "_ALLOWANCE_S", 0.0)
    monkeypatch.setattr(matcher_module, "_PER_TOKEN_S", 1e-9)
    constraint = Constraint("lark", 'start: s\ns: "a" | s s | s s s | ""', "guided_grammar")
    matcher = fresh.matcher(constraint)
    other = fresh.matcher(Constraint("regex", "a+"))
    while matcher.allowed() is not None:
        matcher.take(ord("a"))
    assert matcher.problem is not None
    assert "a token" in matcher.problem
    assert "takes more than" in refusal(fresh, constraint).message
    assert other.problem is None
    fresh.check(Constraint("regex", "a+"))


def test_time_that_a_grammar_may_take_grows_with_its_tokens(
    fresh: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "thread_time", lambda: clock[0])
    matcher = fresh.matcher(Constraint("regex", "a*"))
    assert ord("a") in allowed_ids(matcher)

    def spend(seconds: float) -> None:
        began = time.thread_time()
        clock[0] += seconds
        matcher._look(began)

    spend(0.199)
    assert matcher.problem is None
    for _ in range(100):
        matcher.take(ord("a"))
        spend(0.002)
    assert matcher.problem is None
    spend(0.002)
    assert matcher.problem == "it takes more than 0.2 seconds and 2 ms a token"


def test_a_constraint_that_had_to_wait_may_come_again(
    fresh: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.constrained.trial._WAITING_SECONDS", 0.05)
    fresh.check(Constraint("regex", "a"))
    assert fresh._trial is not None
    with fresh._trial._one:
        refused = refusal(fresh, Constraint("regex", "b", "guided_regex"))
        fresh.check(Constraint("regex", "a"))
    assert (refused.status, refused.param, refused.code) == (503, "guided_regex", "busy")
    fresh.check(Constraint("regex", "b"))


def test_a_model_without_an_end_keeps_to_no_constraint(tokenizer: Tokenizer) -> None:
    endless = Grammars(tokenizer, VOCAB_SIZE, frozenset())
    refused = refusal(endless, Constraint("regex", "a", "guided_regex"))
    assert (refused.param, refused.code) == ("guided_regex", "unsupported_parameter")
    assert "no token that ends an answer" in refused.message
    endless.close()


def test_nothing_is_compiled_after_the_end(tokenizer: Tokenizer) -> None:
    for used in (True, False):
        ended = Grammars(tokenizer, VOCAB_SIZE, END)
        if used:
            ended.check(Constraint("regex", "a"))
        ended.close()
        assert refusal(ended, Constraint("regex", "b")).status == 503
