"""Where tokens of earlier prompts and answers are kept: bounded, by namespace, found by text."""

from __future__ import annotations

import threading
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TypeVar

from radix_engine.cache import Namespace

_PROMPT_BYTES = 700  # that an entry takes beyond its tokens, measured
_ANSWER_BYTES = 200
_TOKEN_BYTES = 4
_TAIL_CHARACTERS = 24
_MAX_TAILS = 8  # of one namespace
_MAX_PLACES = 32  # in one text
_MAX_ANSWERS = 16  # to one prompt

Key = tuple[Namespace, bytes]
T = TypeVar("T")


@dataclass(eq=False, slots=True)
class Answer:
    """``ends``: after how many characters of ``text`` each token ends, those that end inside a
    character where it begins; None until somebody needs them."""

    tokens: array[int]
    text: str = ""
    ends: array[int] | None = None


@dataclass(eq=False, slots=True)
class Prompt:
    """``length`` characters of text, known by their hash in ``key``, that end with ``tail``. Their
    tokens: those of ``parent``, ``taken`` of its ``answer``, and ``rest``."""

    key: Key
    length: int
    tail: str
    rest: array[int]
    parent: Prompt | None = None
    answer: Answer | None = None
    taken: int = 0
    answers: list[Answer] = field(default_factory=list)
    size: int = 0

    def ids(self) -> list[int]:
        """All tokens. Cost: their number."""
        parts = []
        prompt: Prompt | None = self
        while prompt is not None:
            parts.append(prompt.rest)
            if prompt.answer is not None:
                parts.append(prompt.answer.tokens[: prompt.taken])
            prompt = prompt.parent
        whole = array("i")
        for part in reversed(parts):
            whole += part
        return whole.tolist()


class TranscriptStore:
    """Prompts with their answers, as a tree: a conversation's turn holds only what is new in it.

    Bounded to ``max_bytes``; whoever was used longest ago goes first, and nobody before those that
    go on from it. A prompt is looked for only where the prompts of its namespace usually end, which
    is where an assistant begins to speak. Thread-safe; nothing here takes longer than some
    microseconds but `look_up`.
    """

    def __init__(self, max_bytes: int) -> None:
        self.size_bytes = 0
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._prompts: OrderedDict[Key, Prompt] = OrderedDict()  # those used last at the end
        self._lengths: dict[Namespace, Counter[int]] = {}
        self._tails: dict[Namespace, Counter[str]] = {}

    def look_up(self, namespace: Namespace, text: str) -> tuple[list[Prompt], Key]:
        """The stored prompts that the text begins with, longest first; and the text's own key.

        Cost: the text's length (1 ms for 400,000 characters); any thread.
        """
        places = self._places(namespace, text)
        found = []
        hashed, done = blake2b(digest_size=20), 0
        for place in (*places, len(text)):
            hashed.update(text[done:place].encode("utf-8", "surrogatepass"))
            done = place
            prompt = self._prompts.get((namespace, hashed.digest()))
            if prompt is not None and prompt.length == place:
                found.append(prompt)
        return found[::-1], (namespace, hashed.digest())

    def add(self, prompt: Prompt, tokens: Sequence[int]) -> None:
        """Store an answer to a prompt, which was looked up or is new."""
        answer = Answer(array("i", tokens))
        with self._lock:
            known = self._prompts.get(prompt.key) or self._insert(prompt)
            if known is None or len(known.answers) >= _MAX_ANSWERS:
                return
            if not any(each.tokens == answer.tokens for each in known.answers):
                known.answers.append(answer)
                self._charge(known, _ANSWER_BYTES + _TOKEN_BYTES * len(tokens))
            self._touch(known)
            while self.size_bytes > self._max_bytes:
                self._remove(next(iter(self._prompts.values())))

    def used(self, prompt: Prompt) -> None:
        """Note that a prompt was used, and with it all that it goes on from."""
        with self._lock:
            self._touch(prompt)

    def set_text(self, prompt: Prompt, answer: Answer, text: str, ends: Iterable[int]) -> None:
        """Add an answer's text to it."""
        places = array("i", ends)
        with self._lock:
            if answer.ends is None:
                answer.text, answer.ends = text, places
                if self._prompts.get(prompt.key) is prompt:
                    size = len(text.encode("utf-8", "surrogatepass"))
                    self._charge(prompt, size + _TOKEN_BYTES * len(places))

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            for prompt in list(self._prompts.values()):
                self._remove(prompt)

    def _places(self, namespace: Namespace, text: str) -> list[int]:
        """Where in the text stored prompts may end, in order; the last ones if there are many."""
        lengths = self._lengths.get(namespace)
        places: set[int] = set()
        for tail in list(self._tails.get(namespace, ())):
            at = text.rfind(tail, 0, len(text) - 1)
            while at >= 0 and len(places) < _MAX_PLACES:
                if lengths is not None and at + len(tail) in lengths:
                    places.add(at + len(tail))
                at = text.rfind(tail, 0, at + len(tail) - 1)
        return sorted(places)

    def _insert(self, prompt: Prompt) -> Prompt | None:
        """Put a new prompt in; None if its namespace has too many ways to end."""
        namespace = prompt.key[0]
        tails = self._tails.setdefault(namespace, Counter())
        if prompt.tail not in tails and len(tails) >= _MAX_TAILS:
            return None
        parent = prompt.parent
        if parent is not None and self._prompts.get(parent.key) is not parent:
            # It has gone meanwhile: from now on its tokens are this one's.
            prompt.rest = array("i", prompt.ids())
            prompt.parent, prompt.answer, prompt.taken = None, None, 0
        tails[prompt.tail] += 1
        self._lengths.setdefault(namespace, Counter())[prompt.length] += 1
        self._prompts[prompt.key] = prompt
        self._charge(prompt, _PROMPT_BYTES + _TOKEN_BYTES * len(prompt.rest))
        return prompt

    def _remove(self, prompt: Prompt) -> None:
        namespace = prompt.key[0]
        del self._prompts[prompt.key]
        self.size_bytes -= prompt.size
        prompt.size = 0
        prompt.answers = []
        _decrement(self._lengths, namespace, prompt.length)
        _decrement(self._tails, namespace, prompt.tail)

    def _touch(self, prompt: Prompt | None) -> None:
        # What it goes on from is moved later, so that it goes later.
        while prompt is not None and self._prompts.get(prompt.key) is prompt:
            self._prompts.move_to_end(prompt.key)
            prompt = prompt.parent

    def _charge(self, prompt: Prompt, size: int) -> None:
        prompt.size += size
        self.size_bytes += size


def tail_of(text: str) -> str:
    """The end by which a prompt's place in another text is found."""
    return text[-_TAIL_CHARACTERS:]


def _decrement(counters: dict[Namespace, Counter[T]], namespace: Namespace, key: T) -> None:
    counter = counters[namespace]
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
    if not counter:
        del counters[namespace]
