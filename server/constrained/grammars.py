"""The grammars of one model's constraints: compiled once each, kept, and refused in plain words."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace
from functools import partial

from llguidance import LLTokenizer
from tokenizers import Tokenizer

from server.constrained.compiling import compile_grammar, make_tokenizer
from server.constrained.grammar_text import (
    GrammarError,
    check_size,
    grammar_of,
    plain_words,
)
from server.constrained.matcher import Grammar, Matcher
from server.constrained.trial import Trial, TrialBusy
from server.constraint import Constraint
from server.errors import RequestRefused

MAX_KEPT = 32
MAX_SECONDS = 1.0  # of all that are kept: some 150 MB

_NAMES = {"json_schema": "schema", "regex": "regular expression", "lark": "grammar"}
_REMEDIES = {
    "json_schema": "Leave out or simplify what it names; docs/api.md lists what there is.",
    "regex": "Write it in the syntax of Rust's regex crate, or simpler.",
    "lark": "Write it in llguidance's dialect of Lark, or in GBNF, or simpler.",
}


class Grammars:
    """Makes matchers for a model with ``vocabulary`` tokens, of which ``end_tokens`` end an answer.

    Thread-safe. A new constraint takes some milliseconds, the very first one half a second, so no
    call belongs on the engine's thread or an event loop. The last 32 are kept, also those that
    cannot be used, but not those that have grown large.
    """

    def __init__(self, tokenizer: Tokenizer, vocabulary: int, end_tokens: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._end_tokens = sorted(end_tokens)
        added = tokenizer.get_added_tokens_decoder().values()
        self._marks = [each.content for each in added if each.content]
        self._kept: OrderedDict[Constraint, Grammar] = OrderedDict()
        self._lock = threading.Lock()  # of what is kept
        self._starting = threading.Lock()
        self._view: LLTokenizer | None = None
        self._trial: Trial | None = None
        self._closed = False

    def check(self, constraint: Constraint) -> None:
        """Compile a constraint, if it is not kept. Raises RequestRefused naming its field."""
        grammar = self._grammar(constraint)
        if grammar.problem is not None:
            raise _refused(constraint, grammar.problem)

    def matcher(self, constraint: Constraint) -> Matcher:
        """A matcher for one answer. Raises RequestRefused as ``check``."""
        grammar = self._grammar(constraint)
        beginning = grammar.matcher
        if beginning is None:
            raise _refused(constraint, grammar.problem or "")
        assert self._view is not None
        explain = partial(plain_words, constraint)
        return Matcher(grammar, beginning, self._view.vocab_size, explain)

    def close(self) -> None:
        """Compile nothing any more."""
        with self._starting:
            self._closed = True
            if self._trial is not None:
                self._trial.close()

    def _grammar(self, constraint: Constraint) -> Grammar:
        with self._lock:
            known = self._kept.get(constraint)
            if known is not None and (known.matcher is None or known.seconds <= MAX_SECONDS / 2):
                self._kept.move_to_end(constraint)
                return known
            self._kept.pop(constraint, None)
        grammar = self._compiled(constraint)
        with self._lock:
            # Another thread may have been faster.
            grammar = self._kept.setdefault(constraint, grammar)
            while len(self._kept) > MAX_KEPT or self._seconds > MAX_SECONDS:
                self._kept.popitem(last=False)
        return grammar

    @property
    def _seconds(self) -> float:
        return sum(each.seconds for each in self._kept.values() if each.matcher is not None)

    def _compiled(self, constraint: Constraint) -> Grammar:
        try:
            check_size(constraint.source)
            view, trial = self._started(constraint)
            text = grammar_of(_in_lark(constraint, trial), self._marks)
            problem = trial.problem(text)
        except GrammarError as error:
            return Grammar(problem=str(error))
        except TrialBusy as error:
            raise _busy(constraint) from error
        except RuntimeError as error:
            raise _shutting_down() from error
        if problem:
            return Grammar(problem=plain_words(constraint, problem))
        return Grammar(compile_grammar(view, text))

    def _started(self, constraint: Constraint) -> tuple[LLTokenizer, Trial]:
        with self._starting:
            if self._closed:
                raise _shutting_down()
            if self._view is None or self._trial is None:
                if not self._end_tokens:
                    raise _unavailable(constraint, "the model has no token that ends an answer")
                definition = self._tokenizer.to_str()
                try:
                    view = make_tokenizer(definition, self._vocabulary, self._end_tokens)
                except ValueError as error:
                    raise _unavailable(constraint, f"of the model's tokenizer: {error}") from error
                self._trial = Trial(definition, self._vocabulary, self._end_tokens)
                self._view = view
            return self._view, self._trial


def _in_lark(constraint: Constraint, trial: Trial) -> Constraint:
    """A constraint whose grammar, if it is one, is in Lark. Raises GrammarError."""
    if constraint.kind != "lark":
        return constraint
    source, problem = trial.in_lark(constraint.source)
    if problem:
        raise GrammarError(problem)
    return replace(constraint, source=source)


def _refused(constraint: Constraint, problem: str) -> RequestRefused:
    name, remedy = _NAMES[constraint.kind], _REMEDIES[constraint.kind]
    return RequestRefused(
        f"the {name} in {constraint.param} cannot be used: {problem.rstrip('.')}. {remedy}",
        param=constraint.param,
        code="invalid_constraint",
    )


def _unavailable(constraint: Constraint, reason: str) -> RequestRefused:
    return RequestRefused(
        f"{constraint.param} cannot be kept to with this model: {reason}. Leave it out, or serve "
        "another model",
        param=constraint.param,
        code="unsupported_parameter",
    )


def _busy(constraint: Constraint) -> RequestRefused:
    return RequestRefused(
        f"{constraint.param} has to wait: another request's constraint takes long to compile. Try "
        "again in some seconds",
        param=constraint.param,
        code="busy",
        status=503,
    )


def _shutting_down() -> RequestRefused:
    return RequestRefused("the server is shutting down", code="server_shutting_down", status=503)
