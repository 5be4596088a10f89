"""The tokenizer: text to token ids and back."""

from __future__ import annotations

from collections.abc import Container, Sequence

from tokenizers import Tokenizer

from server.detokenizer import Detokenizer
from server.errors import RequestRefused

# A tokenizer may write a first token without the space that it would have inside a text, so the
# decoder sees this many tokens of the prompt before the answer.
_CONTEXT_TOKENS = 6
# Of one text, unless the model's context is long: some milliseconds for which nothing else runs.
MOST_TOKENS = 1 << 18


class Tokens:
    """One tokenizer. Thread-safe; its methods block.

    With ``context_length`` (tokens), megabytes of text that cannot fit are refused without spending
    seconds on tokenizing them.
    """

    def __init__(self, tokenizer: Tokenizer, context_length: int | None = None) -> None:
        # Left in the file by training tools; a prompt that is too long is refused, not cut.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        self._added = {each.content: token for token, each in added.items()}
        self.special_ids = frozenset(token for token, each in added.items() if each.special)
        # Text is cut at these before all else, so that what comes before one is made into the same
        # tokens whatever follows; but for those that take the spaces before them along.
        self.dividers = {
            each.content: token
            for token, each in added.items()
            if each.content
            and not (each.lstrip or each.rstrip or each.single_word or each.normalized)
        }
        # The token for the beginning, where the tokenizer adds it.
        plain, added_to = (
            tokenizer.encode("a", add_special_tokens=each).ids for each in (False, True)
        )
        self._bos = added_to[:1] if added_to[1 : 1 + len(plain)] == plain else []
        self._context_length = context_length
        self._most_tokens: int | None = None
        self._most_characters: int | None = None
        if context_length is not None:
            self._most_tokens = max(MOST_TOKENS, 4 * context_length)
        if context_length is not None and _keeps_every_character(tokenizer):
            self._most_characters = context_length * max(map(len, tokenizer.get_vocab()))

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Token ids; with ``special`` also those that the tokenizer adds, but no second token for
        the beginning where the text has one.

        Raises RequestRefused for a text that is too long for the context whatever its tokens are,
        or has several times as many tokens.
        """
        self.check_length(text)
        # A batch of one: unlike ``encode`` it lets other threads run meanwhile.
        encoding = self.tokenizer.encode_batch_fast([text], add_special_tokens=special)[0]
        # To make a list of millions would stop the others.
        if self._most_tokens is not None and len(encoding) > self._most_tokens:
            raise self._too_long(f"{len(encoding)} tokens")
        ids: list[int] = encoding.ids
        return ids[1:] if special and self._bos and ids[:2] == self._bos * 2 else ids

    def added_id(self, content: str) -> int | None:
        """The token that stands for a text whatever is around it, if there is one."""
        return self._added.get(content)

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """The text of some tokens; ``special`` ones are shown only on request."""
        # A batch of one: unlike ``decode`` it lets other threads run meanwhile.
        texts = self.tokenizer.decode_batch([list(ids)], skip_special_tokens=not special)
        return str(texts[0])

    def names(self, ids: Sequence[int]) -> list[str | None]:
        """How the vocabulary writes tokens; None for those that it has not."""
        return [self.tokenizer.id_to_token(token) for token in ids]

    def detokenizer(self, prompt: Sequence[int], hidden: Container[int]) -> Detokenizer:
        """Text for an answer to this prompt, token by token, without the ``hidden`` ones."""
        return Detokenizer(self.tokenizer, prompt[-_CONTEXT_TOKENS:], hidden)

    def check_length(self, text: str) -> None:
        """Raise RequestRefused for a text that is too long whatever its tokens are."""
        if self._most_characters is not None and len(text) > self._most_characters:
            raise self._too_long(f"{len(text)} characters")

    def _too_long(self, length: str) -> RequestRefused:
        return RequestRefused(
            f"the prompt has {length}, which cannot fit the model's context of "
            f"{self._context_length} tokens; shorten the prompt",
            code="context_length_exceeded",
        )


def _keeps_every_character(tokenizer: Tokenizer) -> bool:
    """Whether a text's tokens have at least as many characters as the text: byte-level."""
    return tokenizer.normalizer is None and "ByteLevel" in repr(tokenizer.pre_tokenizer)
