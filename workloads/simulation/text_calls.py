"""Recorded conversations as calls of the cache alone: tokens of a model's tokenizer, in blocks.

A prompt is rendered as ChatML, whatever template the model has, so that traces of models without a
template can be read, too; a ``raw`` call is its text. What is stored of a call is its prompt and
the recorded reply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from workloads.traces.reading import select_sessions
from workloads.traces.session import Call, Message, after_reply, prompt_of

Encode = Callable[[str], Sequence[int]]


@dataclass(frozen=True, slots=True)
class TextCall:
    """``path``: numbers of the blocks that its prompt and reply fill, equal ones for equal
    prefixes."""

    path: npt.NDArray[np.int64]
    prompt_tokens: int


class TextTraces:
    """Reads traces with one tokenizer, so that equal prefixes in several of them are the same."""

    def __init__(self, encode: Encode, block_tokens: int) -> None:
        self._encode = encode
        self._block_tokens = block_tokens
        self._numbers: dict[tuple[int, tuple[int, ...]], int] = {}

    def sessions(self, path: Path, most: int) -> list[list[TextCall]]:
        """The first sessions of a trace, at most so many. Raises TraceError."""
        return [self._session(each.calls) for each in select_sessions(path, most).sessions]

    def _session(self, calls: Sequence[Call]) -> list[TextCall]:
        history: tuple[Message, ...] = ()
        found = []
        for call in calls:
            prompt = prompt_of(history, call)
            tokens = list(self._encode(_rendered(prompt, raw=call.raw)))
            length = len(tokens)
            tokens += self._encode(call.reply or "")
            found.append(TextCall(self._path(tokens), length))
            history = after_reply(prompt, call, "")
        return found

    def _path(self, tokens: Sequence[int]) -> npt.NDArray[np.int64]:
        size, numbers = self._block_tokens, self._numbers
        parent, path = -1, []
        for start in range(0, len(tokens) - size + 1, size):
            key = parent, tuple(tokens[start : start + size])
            parent = numbers.setdefault(key, len(numbers))
            path.append(parent)
        return np.array(path, np.int64)


def _rendered(messages: Sequence[Message], *, raw: bool) -> str:
    if raw:
        return "".join(message.content for message in messages)
    shown = (f"<|im_start|>{each.role}\n{each.content}<|im_end|>\n" for each in messages)
    return "".join(shown) + "<|im_start|>assistant\n"
