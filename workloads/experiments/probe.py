"""One request at a time on the real engine: how long until its first token, and what was cached."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from server import Engine, EngineOptions, GenerationParams, SamplingParams

_ONE_TOKEN = GenerationParams(max_tokens=1, sampling=SamplingParams(temperature=0.0))


@dataclass(frozen=True, slots=True)
class Asked:
    """Seconds from the request to its first token, and prompt tokens that came from the cache."""

    ttft_s: float
    cached_tokens: int


class Probe(Protocol):
    """What an experiment needs of an engine."""

    @property
    def model(self) -> str: ...
    def encode(self, text: str) -> Sequence[int]: ...
    def ask(self, prompt: Sequence[int]) -> Asked: ...
    def flush(self) -> None: ...


class EngineProbe:
    """An engine in this process, asked for one token at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._engine.info.model

    def encode(self, text: str) -> Sequence[int]:
        """The token ids of a text."""
        return self._engine.text.encode(text)

    def ask(self, prompt: Sequence[int]) -> Asked:
        """One request, to its first token."""
        start = time.perf_counter()
        (answer,) = self._engine.generate([prompt], _ONE_TOKEN)
        return Asked(time.perf_counter() - start, answer.usage.cached_tokens)

    def flush(self) -> None:
        """Empty the prefix cache."""
        self._engine.flush_cache()


@contextmanager
def engine_probe(model: str | None) -> Iterator[Probe]:
    """An engine with this model (None: the default one). Raises ModelError."""
    with Engine.load(EngineOptions(model=model)) as engine:
        yield EngineProbe(engine)
