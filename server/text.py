"""Text to tokens and back: the model's tokenizer, its chat template, and text as tokens come."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2.exceptions import TemplateError
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream
from transformers import PreTrainedTokenizerFast

from server.errors import RequestRefused
from server.token_text import TokenText, TokenTexts

# A tokenizer may write a first token without the space that it would have inside a text, so the
# decoder sees this many tokens of the prompt before the answer.
_CONTEXT_TOKENS = 6


class TextCodec:
    """The tokenizer in a model folder. Thread-safe; its methods block, so keep them off event
    loops.

    With ``context_length`` (tokens), megabytes of text that cannot fit are refused without
    spending seconds on tokenizing them. Raises ValueError when the folder holds no usable
    tokenizer.
    """

    def __init__(self, folder: Path, context_length: int | None = None) -> None:
        try:
            self._chat = _load(folder)
            # The fast tokenizer itself: transformers' wrapper changes state on each call.
            self._tokenizer: Tokenizer = self._chat.backend_tokenizer
            # Left in the file by training tools; a prompt that is too long is refused, not cut.
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()
        except (OSError, ValueError, AttributeError) as error:
            raise ValueError(f"no tokenizer can be read in {folder}: {error}") from error
        self._token_texts = TokenTexts(self._tokenizer)
        self._context_length = context_length
        self._most_characters: int | None = None
        if context_length is not None and _keeps_every_character(self._tokenizer):
            longest = max(map(len, self._tokenizer.get_vocab()))
            self._most_characters = context_length * longest

    def encode(self, text: str) -> list[int]:
        """Token ids of a completion prompt, with the special tokens that the tokenizer adds.

        Raises RequestRefused for a text that is too long for the context whatever its tokens are.
        """
        return self._encode(text, special=True)

    def render_chat(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] | None = None,
    ) -> list[int]:
        """Token ids of a conversation up to where the assistant answers, by the model's template.

        Raises RequestRefused when the model has no template or the template refuses the messages.
        """
        if not self._chat.chat_template:
            raise RequestRefused(
                "this model has no chat template; use /v1/completions with a prompt of your own",
                param="messages",
                code="no_chat_template",
            )
        try:
            text = self._chat.apply_chat_template(
                list(messages),
                tools=list(tools) if tools else None,
                add_generation_prompt=True,
                tokenize=False,
            )
        except (TemplateError, TypeError, ValueError, KeyError) as error:
            raise RequestRefused(
                f"the model's chat template refuses these messages: {error}", param="messages"
            ) from error
        return self._encode(text, special=False)

    @property
    def takes_tools(self) -> bool:
        """Whether the chat template shows tool definitions to the model."""
        return "tools" in str(self._chat.chat_template or "")

    def _encode(self, text: str, *, special: bool) -> list[int]:
        if self._most_characters is not None and len(text) > self._most_characters:
            raise RequestRefused(
                f"the prompt has {len(text)} characters, which cannot fit the model's context of "
                f"{self._context_length} tokens; shorten the prompt",
                code="context_length_exceeded",
            )
        # A batch of one: unlike ``encode`` it lets other threads run meanwhile.
        encodings = self._tokenizer.encode_batch_fast([text], add_special_tokens=special)
        ids: list[int] = encodings[0].ids
        return ids

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """The text of some tokens; ``special`` ones are shown only on request."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=not special)

    def token_text(self, token: int) -> TokenText:
        """How a token looks by itself."""
        return self._token_texts[token]

    def detokenizer(self, prompt: Sequence[int]) -> Detokenizer:
        """Text for an answer to this prompt, token by token."""
        return Detokenizer(self._tokenizer, prompt[-_CONTEXT_TOKENS:])


class Detokenizer:
    """Text as tokens come. A character is shown once all its bytes are there."""

    def __init__(self, tokenizer: Tokenizer, context: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._context = list(context)
        self._ids: list[int] = []
        self._shown = 0
        # A character that the prompt leaves unfinished belongs to the answer: the stream would
        # otherwise take all of the context for new.
        unfinished: list[int] = []
        while self._context and self._decode(self._context).endswith("\ufffd"):
            unfinished.insert(0, self._context.pop())
        self._stream = DecodeStream(ids=self._context, skip_special_tokens=True)
        for token in unfinished:
            self.push(token)

    def push(self, token: int) -> str:
        """The text that this token completes; empty inside a character."""
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
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text


def _keeps_every_character(tokenizer: Tokenizer) -> bool:
    """Whether a text's tokens have at least as many characters as the text: byte-level."""
    return tokenizer.normalizer is None and "ByteLevel" in repr(tokenizer.pre_tokenizer)


def _load(folder: Path) -> Any:
    if (folder / "tokenizer.json").is_file():
        # Complete by itself. AutoTokenizer would first import the model's configuration class and,
        # with it, seconds' worth of modules that nothing here needs.
        return PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True)
