"""From a constraint to a grammar in llguidance's Lark; from what it says of that to plain words."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any, NoReturn

from llguidance import regex_to_lark

from server.constraint import Constraint

MAX_BYTES = 128 * 1024
_MESSAGE_CHARACTERS = 300

# Usually the tokens of a text that is forced are those that the tokenizer makes of it, as the model
# was taught. With this option they may be any; on the last line, for the numbers of lines in
# messages to be right.
_CUT_BY_MODEL = '\n%llguidance {"no_forcing": true}\n'

# White space where JSON may have some: none, two blanks, or a line break and 64 blanks at most, so
# that no answer is blanks without end. Escapes that JSON has and nobody needs stay possible.
_JSON_OPTIONS = {
    "whitespace_pattern": r"[ \t]{1,2}|\r?\n[ \t]{0,64}",
    "json_allow_general_unicode_escapes": True,
}

_PLACE = re.compile(r"^(at )?\d+\(\d+\): ")
_LISTING = re.compile(r"\n +\d+ \| |\n?<(backtrace|state|non-verbose)")
_RUST_ERROR = re.compile(r"^error: ", re.MULTILINE)


class GrammarError(Exception):
    """What is wrong with a constraint, in words that follow "the schema/regular expression/grammar
    cannot be used: "."""


def check_size(source: str) -> None:
    """Raise GrammarError for a source that is empty or too long."""
    size = len(source.encode(errors="surrogatepass"))
    if size > MAX_BYTES:
        raise GrammarError(f"it has {size} bytes, the limit is {MAX_BYTES}")
    if not source.strip():
        raise GrammarError("it is empty")


def grammar_of(constraint: Constraint, marks: Collection[str] = ()) -> str:
    """The grammar that a constraint stands for; one of kind ``lark`` must be in Lark. ``marks``:
    texts that are tokens of their own, and to llguidance are no texts. Raises GrammarError."""
    source = constraint.source
    if constraint.kind == "lark":
        grammar = source
    elif constraint.kind == "json_schema":
        grammar = f"start: %json {_schema(source)}"
    else:
        grammar = f"start: /{regex_to_lark(source, use_ascii='')}/"
    # It would force them as tokens, and then not take them for the text.
    bare = grammar.replace("\\", "")
    options = _CUT_BY_MODEL if any(mark in bare for mark in marks) else ""
    if not constraint.before and not constraint.instead:
        return grammar + options
    # Two grammars, each with names of its own.
    first = "before " if constraint.before else ""
    last = "(@answer | instead)" if constraint.instead else "@answer"
    rules = f"{constraint.before}\n{constraint.instead}"
    whole = {"lark_grammar": f"start: {first}{last}\n{rules}{options}"}
    return json.dumps({"grammars": [whole, {"name": "answer", "lark_grammar": grammar + options}]})


def plain_words(constraint: Constraint, problem: str) -> str:
    """llguidance's message about a grammar, in one line, and without the grammar itself."""
    message = _LISTING.split(problem, maxsplit=1)[0]
    if constraint.kind != "lark":
        message = _PLACE.sub("", message).removeprefix("failed to compile JSON schema: ")
        message = _RUST_ERROR.split(message)[-1]
    line = " ".join(message.split())
    return line if len(line) <= _MESSAGE_CHARACTERS else line[:_MESSAGE_CHARACTERS] + "..."


def _schema(source: str) -> str:
    """A JSON schema with our options."""
    try:
        schema: Any = json.loads(source, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"it is not valid JSON: {error}") from None
    if isinstance(schema, bool):
        schema = {} if schema else {"enum": []}
    if not isinstance(schema, dict):
        raise GrammarError("it must be an object, true or false")
    own = schema.get("x-guidance", {})
    if not isinstance(own, dict):
        raise GrammarError("x-guidance must be an object")
    options = {"x-guidance": _JSON_OPTIONS | own}
    return json.dumps(schema | options)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
