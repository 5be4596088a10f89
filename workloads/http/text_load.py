"""Prompts as long as a long context, as the bodies of requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random

from workloads.agents.text import TASKS

PROMPTS = 8
TOKENS = 128_000

KINDS = ("completions", "chat", "token ids")


def long_texts(encode: Callable[[str], Sequence[int]], count: int, tokens: int) -> list[str]:
    """Texts of about so many tokens each, that differ from their first words on."""
    random = Random(5)
    words = [word for task in TASKS for word in task.split()]
    sample = " ".join(random.choices(words, k=10_000))
    each = round(10_000 * tokens / len(encode(sample)))
    return [" ".join(random.choices(words, k=each)) for _ in range(count)]


def bodies(kind: str, texts: Sequence[str], encode: Callable[[str], Sequence[int]]) -> list[bytes]:
    """One request for each text; streamed, so that its head comes once it waits to be computed."""
    return [json.dumps(_body(kind, text, encode)).encode() for text in texts]


def path_of(kind: str) -> str:
    """Where requests of a kind go to."""
    return "/v1/chat/completions" if kind == "chat" else "/v1/completions"


def _body(kind: str, text: str, encode: Callable[[str], Sequence[int]]) -> dict[str, object]:
    fields: dict[str, object] = {"max_tokens": 1, "stream": True}
    if kind == "chat":
        return {"messages": [{"role": "user", "content": text}], **fields}
    return {"prompt": text if kind == "completions" else list(encode(text)), **fields}
