"""Log-probabilities in OpenAI's two forms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from radix_engine.model.token_logprob import TokenLogprob
from server.http.engine_like import TextLike
from server.outputs import PromptLogprobs

_CONTINUES = 0b10  # the top two bits of a byte that continues a character in UTF-8


def chat_logprobs(entries: Iterable[TokenLogprob], text: TextLike) -> dict[str, Any]:
    """As in a chat's choices."""
    content = [
        {
            **_looks(each.token, each.logprob, text),
            "top_logprobs": [_looks(token, value, text) for token, value in each.top],
        }
        for each in entries
    ]
    return {"content": content, "refusal": None}


def _looks(token: int, logprob: float, text: TextLike) -> dict[str, Any]:
    looks = text.token_text(token)
    return {"token": looks.text, "logprob": logprob, "bytes": list(looks.data)}


class TextLogprobs:
    """As in the choices of a completion, for one choice. ``text_offset``, where a token begins in
    the choice's text, goes on from piece to piece. ``shows_special``: the text has the special
    tokens, but for the one that ends it."""

    def __init__(self, text: TextLike, shows_special: bool = False) -> None:
        self._text = text
        self._shows_special = shows_special
        self._begun = 0  # characters so far

    def of(
        self,
        answer: Sequence[TokenLogprob],
        prompt: Sequence[int] = (),
        scores: PromptLogprobs = (),
        echoed: str = "",
    ) -> dict[str, Any]:
        """The next tokens; before the answer's those of the ``prompt``, with their ``scores``, that
        is ``echoed``."""
        rows = [
            self._row(token, score, echoed) for token, score in zip(prompt, scores, strict=True)
        ]
        rows += [self._row(each.token, each, "") for each in answer]
        names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
        return {name: [row[place] for row in rows] for place, name in enumerate(names)}

    def _row(
        self, token: int, entry: TokenLogprob | None, echoed: str
    ) -> tuple[str, float | None, dict[str, float] | None, int]:
        looks = self._text.token_text(token)
        offset = self._place(looks.data)
        # A special token is shown only on request, and in an echo that has it.
        is_shown = self._shows_special or not looks.special
        if is_shown or (looks.text and echoed.startswith(looks.text, self._begun)):
            self._begun += sum(byte >> 6 != _CONTINUES for byte in looks.data)
        if entry is None:
            return looks.text, None, None, offset
        return looks.text, entry.logprob, self._top(looks.text, entry), offset

    def _place(self, data: bytes) -> int:
        """Where a token with these bytes begins: maybe inside the last character."""
        inside = bool(data) and data[0] >> 6 == _CONTINUES
        return max(0, self._begun - inside)

    def _top(self, own: str, entry: TokenLogprob) -> dict[str, float]:
        """The likeliest tokens by their text, and the token itself. Of two with the same text the
        likelier one counts."""
        top: dict[str, float] = {}
        for token, value in entry.top:
            top.setdefault(self._text.token_text(token).text, value)
        top.setdefault(own, entry.logprob)
        return top
