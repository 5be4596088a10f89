"""What an answer has to look like, whatever the model would rather say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Constraint:
    """``source``: the text of a JSON schema, a regular expression (of the whole answer, in the
    syntax of Rust's regex), or a grammar in llguidance's dialect of Lark or in GBNF. ``param``:
    the field that asked for it, for messages. ``before``: rules in Lark, of which the rule
    ``before`` is what comes before all that, such as reasoning; empty: nothing does. ``instead``:
    likewise, of which the rule ``instead`` may come in place of all that, such as a tool call.
    """

    kind: Literal["json_schema", "regex", "lark"]
    source: str
    param: str = field(default="constraint", compare=False)
    before: str = ""
    instead: str = ""


def one_of(texts: Sequence[str], param: str = "constraint") -> Constraint:
    """An answer that is one of these texts. Raises ValueError where there is none, or an empty
    one."""
    if not texts or not all(texts):
        raise ValueError("there must be texts to choose from, and none may be empty")
    # JSON's strings are those of Lark. As one terminal, so that there may be thousands.
    return Constraint("lark", f"start: TEXT\nTEXT: {' | '.join(map(json.dumps, texts))}", param)
