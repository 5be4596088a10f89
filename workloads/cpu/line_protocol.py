"""How a benchmark drives an engine in another process: one line of JSON each way.

The worker says ``{"ready": {...}}`` once, then answers each load with ``{"sessions": ..., "wall_s":
...}`` or ``{"error": "..."}``. It ends when its standard input does. Standard library only: peers'
workers import it with their own interpreters.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TextIO

Sessions = list[list[list[int]]]
"""Prompts as token ids: sessions run at once, the calls of a session one after the other."""
Times = tuple[float, float, int]
"""Of a call: seconds from the load's start to its first and last token, and its tokens."""
Run = Callable[[Sessions, int], tuple[list[list[Times]], float]]
"""Runs sessions with so many tokens a call; the calls' times and the wall time (s)."""


def take_stdout() -> TextIO:
    """Keep standard output for the protocol; whatever libraries print goes to standard error."""
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return kept


def settings() -> dict[str, Any]:
    """What the worker was started with: a JSON object, its only argument."""
    found: dict[str, Any] = json.loads(sys.argv[1])
    return found


def serve(
    out: TextIO, about: Mapping[str, object], run: Run, lines: Iterable[str] = sys.stdin
) -> None:
    """Say that the engine is ready, then run each load that comes, until no more does.

    A load that fails is answered with its error; the worker goes on.
    """
    _say(out, {"ready": dict(about)})
    for line in lines:
        load = json.loads(line)
        try:
            sessions, wall_s = run(load["sessions"], load["max_tokens"])
            _say(out, {"sessions": sessions, "wall_s": wall_s})
        except Exception as error:  # whatever an engine can raise
            _say(out, {"error": f"{type(error).__name__}: {error}"})


def _say(out: TextIO, value: Mapping[str, object]) -> None:
    out.write(json.dumps(value) + "\n")
    out.flush()
