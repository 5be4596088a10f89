"""One answer's way through a grammar."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from llguidance import LLMatcher

from radix_engine.model.allowed_tokens import AllowedTokens

_ALLOWANCE_S = 0.2
_PER_TOKEN_S = 0.002  # a token usually takes 10 microseconds


class Matcher:
    """Tells which tokens may come next, of ``num_tokens`` (of the tokenizer's), and takes the one
    that came. On the engine's thread, whose time it takes: all answers wait meanwhile. An answer
    whose grammar takes more than 0.2 seconds and 2 ms a token is given up.

    ``problem``: why the answer can follow its grammar no further, in the words that ``explain``
    makes of llguidance's.
    """

    def __init__(self, matcher: LLMatcher, num_tokens: int, explain: Callable[[str], str]) -> None:
        self._matcher = matcher
        self._mask = np.zeros(-(-num_tokens // 32), np.int32)
        self._explain = explain
        self._seconds = -_ALLOWANCE_S
        self.problem: str | None = None

    def allowed(self) -> AllowedTokens | None:
        """What may come next; good until the next call. None where there is a problem."""
        if self.problem is not None:
            return None
        began = time.thread_time()
        self._matcher.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)
        self._look(began)
        return None if self.problem is not None else self._mask.view(np.uint8)

    def take(self, token: int) -> None:
        """A token that came."""
        if self.problem is not None:
            return
        began = time.thread_time()
        self._matcher.consume_token(token)
        self._seconds -= _PER_TOKEN_S
        self._look(began)

    def _look(self, began: float) -> None:
        self._seconds += time.thread_time() - began
        if self._matcher.is_error():
            self._give_up(self._matcher.get_error())
        elif self._seconds > 0:
            self._give_up(
                f"it takes more than {_ALLOWANCE_S:g} seconds and {_PER_TOKEN_S * 1e3:g} ms a token"
            )

    def _give_up(self, problem: str) -> None:
        self.problem = self._explain(problem)
