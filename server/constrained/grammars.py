"""The grammars of one model's constraints: compiled once each, kept, and refused in plain words."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace

from llguidance import LLMatcher, LLTokenizer
from tokenizers import Tokenizer

from server.constrained.compiling import compile_grammar, make_tokenizer
from server.constrained.grammar_text import (
    GrammarError,
    check_size,
    grammar_of,
    plain_words,
)
from server.constrained.matcher import Matcher
from server.constrained.trial import Trial
from server.constraint import Constraint
from server.errors import RequestRefused

MAX_KEPT = 32

_NAMES = {"json_schema": "schema", "regex": "regular expression", "lark": "grammar"}
_REMEDIES = {
    "json_schema": "Leave out or simplify what it names; docs/api.md lists what there is.",
    "regex": "Write it in the syntax of Rust's regex crate, or simpler.",
    "lark": "Write it in llguidance's dialect of Lark, or in GBNF, or simpler.",
}


@dataclass(slots=True)
class _Grammar:
    """What became of a constraint: a matcher at its beginning, or why there is none."""

    matcher: LLMatcher | None = None
    problem: str | None = None


class Grammars:
    """Makes matchers for a model with ``vocabulary`` tokens, of which ``end_tokens`` end an answer.

    Thread-safe. A new constraint takes some milliseconds, the very first one half a second, so no
    call belongs on the engine's thread or an event loop. The last 32 are kept, also those that
    cannot be used.
    """

    def __init__(self, tokenizer: Tokenizer, vocabulary: int, end_tokens: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._end_tokens = sorted(end_tokens)
        added = tokenizer.get_added_tokens_decoder().values()
        self._marks = [each.content for each in added if each.content]
        self._kept: OrderedDict[Constraint, _Grammar] = OrderedDict()
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
        if grammar.matcher is None or grammar.problem is not None:
            raise _refused(constraint, grammar.problem or "")

        def explain(problem: str) -> str:
            # Whoever asks for it again is refused before it costs anything.
            grammar.problem = plain_words(constraint, problem)
            return grammar.problem

        assert self._view is not None
        return Matcher(grammar.matcher.deep_copy(), self._view.vocab_size, explain)

    def close(self) -> None:
        """Compile nothing any more."""
        with self._starting:
            self._closed = True
            if self._trial is not None:
                self._trial.close()

    def _grammar(self, constraint: Constraint) -> _Grammar:
        with self._lock:
            known = self._kept.get(constraint)
            if known is not None:
                self._kept.move_to_end(constraint)
                return known
        grammar = self._compiled(constraint)
        with self._lock:
            # Another thread may have been faster.
            grammar = self._kept.setdefault(constraint, grammar)
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return grammar

    def _compiled(self, constraint: Constraint) -> _Grammar:
        try:
            check_size(constraint.source)
            view, trial = self._started(constraint)
            text = grammar_of(_in_lark(constraint, trial), self._marks)
            problem = trial.problem(text)
        except GrammarError as error:
            return _Grammar(problem=str(error))
        except RuntimeError as error:
            raise _shutting_down() from error
        if problem:
            return _Grammar(problem=plain_words(constraint, problem))
        return _Grammar(compile_grammar(view, text))

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


def _shutting_down() -> RequestRefused:
    return RequestRefused("the server is shutting down", code="server_shutting_down", status=503)
