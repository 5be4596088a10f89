"""A conversation made ready for the model, and how that is to be done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """``add_generation_prompt``: end where the assistant's answer begins.
    ``continue_final_message`` (not both): the last message is left open, for the answer to go on
    with. ``variables``: what else the template may look at, such as ``enable_thinking``."""

    add_generation_prompt: bool = True
    continue_final_message: bool = False
    variables: Mapping[str, Any] = field(default_factory=dict)


DEFAULT_OPTIONS = ChatOptions()


def _forget(answer: Sequence[int]) -> None:
    """Remember nothing."""


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """``ids``: the tokens; ``text``: what they stand for, special tokens included. ``reasons``: the
    answer begins inside the model's reasoning. ``begun``: the beginning of the answer that the
    prompt ends with, where the tokenizer describes how answers are read. ``remember``: to be called
    with the tokens of an answer that has ended, so that a next turn which sends its text back is
    given these very tokens; quick, any thread."""

    ids: Sequence[int]
    text: str
    reasons: bool = False
    begun: str = ""
    remember: Callable[[Sequence[int]], None] = _forget
