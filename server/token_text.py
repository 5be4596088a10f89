"""How single tokens look: their bytes and text, for lists of log-probabilities."""

from __future__ import annotations

import re
from typing import NamedTuple

from tokenizers import Tokenizer

_BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")


class TokenText(NamedTuple):
    """One token by itself. ``data``: its bytes, which need not be whole characters; ``text``: these
    as text, or else as in ``bytes:\\xe2\\x80``. ``special``: answers do not show it."""

    text: str
    data: bytes
    special: bool = False


class TokenTexts:
    """The tokens of one tokenizer. Thread-safe; each token is looked at once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._added = tokenizer.get_added_tokens_decoder()
        decoder = repr(tokenizer.decoder)
        self._is_byte_level = "ByteLevel" in decoder
        self._has_spaces_marked = "Metaspace" in decoder or "\u2581" in decoder
        self._known: dict[int, TokenText] = {}

    def __getitem__(self, token: int) -> TokenText:
        """A token's looks; nothing at all for an id that the tokenizer does not have."""
        known = self._known.get(token)
        if known is None:
            known = self._known[token] = self._look(token)
        return known

    def _look(self, token: int) -> TokenText:
        added = self._added.get(token)
        if added is not None:
            return TokenText(added.content, added.content.encode(), added.special)
        data = self._bytes_of(token)
        try:
            return TokenText(data.decode(), data)
        except UnicodeDecodeError:
            return TokenText("bytes:" + "".join(f"\\x{byte:02x}" for byte in data), data)

    def _bytes_of(self, token: int) -> bytes:
        name = self._tokenizer.id_to_token(token)
        if name is None:
            return b""
        if self._is_byte_level and all(character in _BYTES for character in name):
            return bytes(_BYTES[character] for character in name)
        if (single := _BYTE_TOKEN.fullmatch(name)) is not None:
            return bytes([int(single.group(1), 16)])
        if self._has_spaces_marked:
            return name.replace("\u2581", " ").encode()
        text: str = self._tokenizer.decode([token])
        return text.encode()


def _byte_alphabet() -> dict[str, int]:
    """The character that stands for each byte in a byte-level vocabulary: printable ones of Latin-1
    for themselves, those from 256 on for the others in order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    moved = {chr(256 + place): byte for place, byte in enumerate(others)}
    return {chr(byte): byte for byte in printable} | moved


_BYTES = _byte_alphabet()
