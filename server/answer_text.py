"""An answer's text as its tokens come, and what ends it."""

from __future__ import annotations

from server.detokenizer import Detokenizer
from server.generation_params import GenerationParams
from server.stop_strings import StopStrings


class AnswerText:
    """``stop_tokens``: the tokens that end this answer and usually no other. ``stop_reason``: which
    of them, or of the stop strings, has ended it; None while none has."""

    def __init__(
        self, detokenizer: Detokenizer, params: GenerationParams, stop_tokens: frozenset[int]
    ) -> None:
        self._detokenizer = detokenizer
        self._stops = StopStrings(params.stop, params.include_stop)
        self._min_tokens = params.min_tokens
        self._stop_tokens = stop_tokens
        self._shown_ends = stop_tokens if params.include_stop else frozenset()
        self.stop_reason: str | int | None = None

    def push(self, token: int, number: int, finish_reason: str | None) -> tuple[str, bool]:
        """The text that the answer's token with this number, from 1, brings, and whether a stop
        string ends the answer here. With ``stop`` the token ends it, and is no part of the text but
        where it was asked for."""
        ends_it = finish_reason == "stop"
        shows = not ends_it or token in self._shown_ends
        piece = self._detokenizer.push(token) if shows else ""
        if finish_reason is not None:
            piece += self._detokenizer.flush()
        text, stop = self._stops.push(piece, may_end=number > self._min_tokens)
        if stop is not None:
            self.stop_reason = stop
        elif finish_reason is not None:
            text += self._stops.flush()
            if ends_it and token in self._stop_tokens:
                self.stop_reason = token
        return text, stop is not None

    def rest(self, count: int) -> str:
        """What is left of the text of ``count`` tokens after which no further one comes."""
        may_end = count > self._min_tokens
        text, stop = self._stops.push(self._detokenizer.flush(), may_end=may_end)
        return text if stop is not None else text + self._stops.flush()
