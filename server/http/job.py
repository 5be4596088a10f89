"""What a generating endpoint makes of a request's body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from server.http.caller import Caller
from server.http.engine_like import EngineLike
from server.outputs import GenerationParams


@dataclass(frozen=True, slots=True)
class Context:
    """What a body is read with: the engine, who sends it, and the request's headers (names in lower
    case)."""

    engine: EngineLike
    caller: Caller
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Job:
    """A checked request: token ids and how to answer. ``echo``: the prompts as text, where they are
    to come back before their answers. ``ignored``: fields that were sent and have no effect."""

    prompts: Sequence[Sequence[int]]
    params: GenerationParams
    stream: bool
    include_usage: bool
    ignored: tuple[str, ...] = ()
    echo: Sequence[str] = ()

    @property
    def num_choices(self) -> int:
        """Answers to all prompts."""
        return len(self.prompts) * self.params.n
