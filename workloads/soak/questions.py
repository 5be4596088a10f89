"""What is asked: requests whose answers are decided by what stands in them, and nothing else.

Each is greedy or has a seed, so that the answer is the same however often, by whomever and in
whatever manner it is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from workloads.agents.text import TASKS
from workloads.soak.said import Dialect

PATHS: dict[Dialect, str] = {
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
}
_HEADS = 6
_ODD = (
    "\u00fcber",
    "\u4f60\u597d",
    "na\u00efve",
    "\U0001f680",
    "\u03b1\u03b2\u03b3",
    "\u200d",
    '"',
    "\\",
    "{}",
)
_SCHEMAS: tuple[Mapping[str, Any], ...] = (
    {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]},
    {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 1, "maxItems": 3},
    {"type": "integer", "minimum": 0, "maximum": 999},
)
_TOOL = {
    "type": "function",
    "function": {
        "name": "departures",
        "description": "Departures of a day.",
        "parameters": {"type": "object", "properties": {"day": {"type": "string"}}},
    },
}


@dataclass(frozen=True, slots=True)
class Question:
    """One request, without what may not matter to its answer."""

    dialect: Dialect
    body: Mapping[str, Any]
    streams: bool = True

    @property
    def path(self) -> str:
        """Where it is sent."""
        return PATHS[self.dialect]


class Texts:
    """Prompts of about ``characters``, of which many begin alike; one seed gives one list."""

    def __init__(self, random: Random, characters: int) -> None:
        self._random = random
        self._characters = characters
        self.heads = [self.text(0.6) for _ in range(_HEADS)]

    def text(self, share: float) -> str:
        """A text of about so many times the usual length."""
        words: list[str] = []
        left = share * self._characters
        while left > 0:
            task = self._random.choice(TASKS)
            odd = self._random.choice(_ODD) if self._random.random() < 0.3 else ""
            words.append(f"{task} {odd}"[: max(1, round(left))])
            left -= len(words[-1]) + 1
        return " ".join(words)

    def prompt(self) -> str:
        """Most share a head, some are only that, some share nothing, some are long or short."""
        kind = self._random.random()
        head = self._random.choice(self.heads)
        if kind < 0.6:
            return f"{head} {self.text(self._random.uniform(0.05, 0.6))}"
        if kind < 0.7:
            return head
        if kind < 0.9:
            return self.text(self._random.uniform(0.3, 1.3))
        return self.text(2.5) if kind < 0.95 else "Hi"


def make_questions(
    random: Random, count: int, texts: Texts, max_tokens: int, dialects: Sequence[Dialect]
) -> list[Question]:
    """So many, of all kinds. ``max_tokens``: of an answer, at most."""
    makers = {"completions": _completion, "chat": _chat, "messages": _message}
    return [
        makers[dialects[number % len(dialects)]](random, texts, max_tokens)
        for number in range(count)
    ]


def _completion(random: Random, texts: Texts, max_tokens: int) -> Question:
    body: dict[str, Any] = {"prompt": texts.prompt(), "max_tokens": _tokens(random, max_tokens)}
    kind = random.random()
    if kind < 0.1:
        beams = {"use_beam_search": True, "n": 2, "best_of": 3, "temperature": 0}
        return Question("completions", {**body, **beams}, streams=False)
    if kind < 0.2:
        body["prompt"] = [texts.prompt(), texts.prompt()]
    elif kind < 0.3:
        body["prompt"] = [random.randrange(3, 250) for _ in range(random.randrange(1, 60))]
    body |= _sampling(random) | _ending(random) | _form(random)
    if random.random() < 0.3:
        body["logprobs"] = random.choice((0, 1, 5))
    if random.random() < 0.15:
        body["echo"] = True
    return Question("completions", body)


def _chat(random: Random, texts: Texts, max_tokens: int) -> Question:
    messages = [{"role": "system", "content": random.choice(texts.heads)}]
    for _ in range(random.choice((0, 0, 1, 2))):
        messages.append({"role": "user", "content": texts.text(0.1)})
        messages.append({"role": "assistant", "content": texts.text(0.1)})
    messages.append({"role": "user", "content": texts.text(random.uniform(0.02, 0.4))})
    body: dict[str, Any] = {"messages": messages, "max_tokens": _tokens(random, max_tokens)}
    body |= _sampling(random) | _ending(random) | _form(random)
    if random.random() < 0.25:
        body |= {"logprobs": True, "top_logprobs": random.choice((0, 1, 5))}
    if random.random() < 0.25:
        body["tools"] = [_TOOL]
    return Question("chat", body)


def _message(random: Random, texts: Texts, max_tokens: int) -> Question:
    system: Any = random.choice(texts.heads)
    if random.random() < 0.3:
        system = [{"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}]
    body: dict[str, Any] = {
        "system": system,
        "messages": [{"role": "user", "content": texts.text(random.uniform(0.02, 0.4))}],
        "max_tokens": _tokens(random, max_tokens),
        "temperature": 0,
    }
    if random.random() < 0.3:
        body["stop_sequences"] = ["e", "zz"]
    return Question("messages", body)


def _tokens(random: Random, max_tokens: int) -> int:
    return random.choice((1, max(1, max_tokens // 4), max_tokens, max_tokens))


def _sampling(random: Random) -> dict[str, Any]:
    fields: dict[str, Any] = {"n": random.choice((1, 1, 1, 2, 4))}
    if random.random() < 0.7:
        return fields | {"temperature": 0}
    fields |= {"temperature": 0.8, "seed": random.randrange(1000)}
    extra = random.choice(({}, {"top_p": 0.9}, {"top_k": 20}, {"min_p": 0.05}))
    penalty = random.choice(({}, {"repetition_penalty": 1.2}, {"presence_penalty": 0.5}))
    return fields | extra | penalty


def _ending(random: Random) -> dict[str, Any]:
    return dict(
        random.choice(
            ({}, {}, {"stop": ["e", "zz"]}, {"min_tokens": 1}, {"stop": "the", "min_tokens": 1})
        )
    )


def _form(random: Random) -> dict[str, Any]:
    if random.random() < 0.8:
        return {}
    schema = random.choice(_SCHEMAS)
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    return dict(
        random.choice(
            (
                {"response_format": form},
                {"guided_regex": "(yes|no|perhaps)[.!]{1,3}"},
                {"structured_outputs": {"choice": ["left", "right"]}},
            )
        )
    )
