"""Text as tokens come."""

from __future__ import annotations

from collections.abc import Container, Sequence

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


class Detokenizer:
    """The text of an answer, token by token. A character is shown once all its bytes are there.

    ``context``: the tokens before the answer, as far as they matter. ``hidden``: tokens that have
    no text.
    """

    def __init__(
        self, tokenizer: Tokenizer, context: Sequence[int], hidden: Container[int] = ()
    ) -> None:
        self._tokenizer = tokenizer
        self._hidden = hidden
        self._context = [token for token in context if token not in hidden]
        self._ids: list[int] = []
        self._shown = 0
        # A character that the prompt leaves unfinished belongs to the answer: the stream would
        # otherwise take all of the context for new.
        unfinished: list[int] = []
        while self._context and self._decode(self._context).endswith("\ufffd"):
            unfinished.insert(0, self._context.pop())
        self._stream = DecodeStream(ids=self._context, skip_special_tokens=False)
        for token in unfinished:
            self.push(token)

    def push(self, token: int) -> str:
        """The text that this token completes; empty inside a character."""
        if token in self._hidden:
            return ""
        self._ids.append(token)
        piece: str | None = self._stream.step(self._tokenizer, token)
        self._shown += len(piece or "")
        return piece or ""

    def flush(self) -> str:
        """What is left at the end: a character whose last bytes never came shows as U+FFFD."""
        before = self._decode(self._context)
        rest = self._decode(self._context + self._ids)[len(before) + self._shown :]
        self._shown += len(rest)
        return rest

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text
