"""What a prompt was made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from server.token_text import TokenText


class TokenLooks(Protocol):
    """How tokens look: the part of a codec that is needed here."""

    def token_text(self, token: int, /) -> TokenText:
        """How a token looks by itself."""


@dataclass(frozen=True, slots=True)
class PromptSource:
    """``text``: what the tokens stand for, as the chat template wrote it; empty: only the tokens
    are known. ``messages`` and ``tools``: what it was written from; both empty for plain text."""

    text: str = ""
    messages: Sequence[Mapping[str, Any]] = ()
    tools: Sequence[Mapping[str, Any]] = ()


def text_of(looks: TokenLooks, tokens: Sequence[int]) -> str:
    """The text of some tokens, special ones included; what is no whole character is left out.
    Cost: a look at each token."""
    return b"".join(looks.token_text(token).data for token in tokens).decode(errors="ignore")
