"""Prompts of exact lengths for bench-cpu, as token ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from workloads.agents.prompt import SYSTEM_PROMPT
from workloads.agents.text import TASKS, task_text, tool_result
from workloads.cpu.load import Load

Encode = Callable[[str], list[int]]

_POOL_TOKENS = 24_000


class Prompts:
    """Makes prompts out of text like that of agents. Equal seeds give equal prompts.

    Every prompt made here begins with a token that no other one begins with, so that two share
    nothing, unless one is made to go on from another. ``encode`` gives token ids below
    ``vocabulary``.
    """

    def __init__(self, encode: Encode, vocabulary: int, seed: int) -> None:
        self._rng = Random(f"bench-cpu {seed}")
        self._encode = encode
        self._pool: list[int] = []
        while len(self._pool) < _POOL_TOKENS:
            self._pool += encode(tool_result(self._rng) + "\n")
        # The lowest ids are special tokens in most vocabularies.
        ids = range(min(1000, vocabulary // 2), vocabulary)
        self._leads = iter(self._rng.sample(ids, len(ids)))

    def fresh(self, length: int) -> list[int]:
        """A prompt that shares nothing with any other."""
        return [next(self._leads), *self._text(length - 1)]

    def going_on(self, prefix: Sequence[int], length: int) -> list[int]:
        """A prompt of ``length`` that begins with ``prefix``, and goes on like no other."""
        return [*prefix, *self.fresh(length - len(prefix))]

    def agents(self, agents: int, turns: int, max_tokens: int) -> Load:
        """Agents with one head, which no other load has, each with a task and tool results.

        Replies in the history are fixed, so that every engine gets the same prompts.
        """
        head = [next(self._leads), *self._encode(SYSTEM_PROMPT)]
        sessions = []
        for _ in range(agents):
            task = task_text(self._rng, self._rng.choice(TASKS))
            history = head + self._encode(task)
            calls = [history]
            for _ in range(turns - 1):
                result = self._encode(tool_result(self._rng))
                history = history + self._text(max_tokens) + result
                calls.append(history)
            sessions.append(calls)
        return Load(sessions, max_tokens)

    def _text(self, length: int) -> list[int]:
        start = self._rng.randrange(len(self._pool))
        wrapped = self._pool[start:] + self._pool[:start]
        return (wrapped * (length // len(wrapped) + 1))[:length]
