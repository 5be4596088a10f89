"""Answers as the tokens that they were, for the turns that follow.

A model may write a text in other tokens than the tokenizer makes of it: ``a`` and ``b`` where the
tokenizer knows ``ab``. When the next turn of a conversation sends the answer back as text, fresh
tokens would differ from those in the cache, and nothing from there on were found again::

    turn 1   text of prompt 1 | answer 1
    turn 2   text of prompt 1 | answer 1 | what is new | answer 2
             '--- the stored tokens ----'  '- fresh ones

So each answer's tokens are stored with its prompt. A later prompt that begins with that prompt's
text, and goes on as the answer does, gets the stored tokens as far as their text is the same. Only
the rest is made into tokens, which also saves that time for a long conversation.

The rest begins where the tokenizer cuts any text: at a token such as the end of a turn. Where the
client has changed the answer before one, the last message is made into tokens afresh, and the
stored ones are taken up to the last place where both have a border. So what follows the stored
tokens is always what the tokenizer makes of it in the whole text.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from radix_engine.cache import Namespace
from server.chat.transcript_store import Answer, Prompt, TranscriptStore, tail_of
from server.tokens import Tokens


class Tokenized(NamedTuple):
    """``reused``: how many of the first ``ids`` were stored ones. ``remember`` stores an answer."""

    ids: list[int]
    reused: int
    remember: Callable[[Sequence[int]], None]


class _Start(NamedTuple):
    """What of a text is stored: its first tokens ``ids``, those of ``prompt`` and ``taken`` ones of
    its ``answer``. ``rest``: the tokens of what follows."""

    ids: list[int]
    prompt: Prompt
    answer: Answer
    taken: int
    rest: list[int]


class Transcripts:
    """Makes tokens of conversations. Thread-safe; `tokens` blocks, what it gives to remember
    answers with does not.

    ``max_bytes`` bounds what is stored for all namespaces together; what was used longest ago goes
    first. 0: nothing is stored.
    """

    def __init__(self, tokens: Tokens, max_bytes: int) -> None:
        self._tokens = tokens
        self._store = TranscriptStore(max_bytes)
        self._stores = max_bytes > 0
        self._dividers = tuple(tokens.dividers)
        self._names = {token: name for name, token in tokens.dividers.items()}
        self._lock = threading.Lock()
        self.reused_prompts = 0
        self.reused_tokens = 0

    @property
    def size_bytes(self) -> int:
        """What is stored."""
        return self._store.size_bytes

    def clear(self) -> None:
        """Forget everything."""
        self._store.clear()

    def tokens(self, namespace: Namespace, text: str) -> Tokenized:
        """The tokens of a conversation's text, those of its answers as they were generated.

        Raises RequestRefused for a text that cannot fit the context.
        """
        self._tokens.check_length(text)
        if not self._stores:
            return Tokenized(self._tokens.encode(text, special=False), 0, _forget)
        known, key = self._store.look_up(namespace, text)
        for prompt in known:
            if prompt.key == key:
                self._store.used(prompt)
                return self._tokenized(prompt, prompt.ids(), None)
            start = self._start(prompt, text)
            if start is not None:
                rest, tail = array("i", start.rest), tail_of(text)
                new = Prompt(key, len(text), tail, rest, prompt, start.answer, start.taken)
                self._store.used(prompt)
                return self._tokenized(new, start.ids + start.rest, len(start.ids))
        ids = self._tokens.encode(text, special=False)
        return self._tokenized(Prompt(key, len(text), tail_of(text), array("i", ids)), ids, 0)

    def _tokenized(self, prompt: Prompt, ids: list[int], reused: int | None) -> Tokenized:
        reused = len(ids) if reused is None else reused
        with self._lock:
            self.reused_prompts += reused > 0
            self.reused_tokens += reused
        return Tokenized(ids, reused, partial(self._store.add, prompt))

    def _start(self, prompt: Prompt, text: str) -> _Start | None:
        """The text's beginning as far as the prompt and one of its answers have it; None if the
        answers begin otherwise."""
        ids, follows = prompt.ids(), text[prompt.length :]
        best: Answer | None = None
        taken = 0
        for answer in reversed(tuple(prompt.answers)):
            fitting = self._fitting(prompt, answer, ids, follows)
            if fitting > taken:
                best, taken = answer, fitting
        if best is None or best.ends is None:
            return None
        rest = self._after_divider(best.tokens[taken - 1], follows[best.ends[taken - 1] :])
        if rest is None:
            taken, rest = self._after_border(prompt, best, taken, ids, text)
        if not taken:
            return None
        return _Start(ids + best.tokens[:taken].tolist(), prompt, best, taken, rest)

    def _fitting(self, prompt: Prompt, answer: Answer, ids: list[int], follows: str) -> int:
        """With how many of an answer's tokens a text goes on after its prompt."""
        if answer.ends is None:
            text, ends = self._text_of(answer.tokens, ids)
            self._store.set_text(prompt, answer, text, ends)
        assert answer.ends is not None
        common = _common(answer.text, follows)
        fitting = bisect_right(answer.ends, common)
        # A token that ends inside a character is nothing without those that complete it.
        while fitting and answer.ends[fitting - 1] == (
            answer.ends[fitting - 2] if fitting > 1 else 0
        ):
            fitting -= 1
        return fitting

    def _after_divider(self, last: int, rest: str) -> list[int] | None:
        """The tokens of ``rest`` after the token ``last``, if the tokenizer cuts between them
        whatever else there is."""
        if not rest:
            return []
        name = self._names.get(last)
        if name is not None:
            ids = self._tokens.encode(name + rest, special=False)
            return ids[1:] if ids[:1] == [last] else None
        if rest.startswith(self._dividers):
            ids = self._tokens.encode(rest, special=False)
            return ids if ids[0] in self._names else None
        return None

    def _after_border(
        self, prompt: Prompt, answer: Answer, fitting: int, ids: list[int], text: str
    ) -> tuple[int, list[int]]:
        """The last message afresh: how many of the answer's tokens end where one of these does, and
        those that come after them. 0 of them where that cannot be told."""
        divider = next((token for token in reversed(ids) if token in self._names), None)
        begins = -1 if divider is None else text.rfind(self._names[divider], 0, prompt.length)
        if begins < 0 or answer.ends is None:
            return 0, []
        message = text[begins:]
        fresh = self._tokens.encode(message, special=False)
        shown, ends = self._text_of(fresh, ())
        if fresh[:1] != [divider] or shown != message:
            return 0, []
        before = prompt.length - begins
        for taken in range(fitting, 0, -1):
            end = before + answer.ends[taken - 1]
            at = bisect_left(ends, end)
            if at < len(ends) and ends[at] == end:
                return taken, fresh[at + 1 :]
        return 0, []

    def _text_of(self, tokens: Sequence[int], before: Sequence[int]) -> tuple[str, list[int]]:
        """The text of tokens that come after others, and where in it each ends."""
        detokenizer = self._tokens.detokenizer(before, ())
        pieces = [detokenizer.push(token) for token in tokens]
        ends = list(accumulate(map(len, pieces)))
        text = "".join(pieces) + detokenizer.flush()
        if ends:
            ends[-1] = len(text)
        return text, ends


def _forget(answer: Sequence[int]) -> None:
    """Remember nothing."""


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    if other.startswith(one):
        return len(one)
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
