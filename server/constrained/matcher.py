"""One answer's way through a grammar."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from llguidance import LLMatcher

from radix_engine.model.allowed_tokens import AllowedTokens

_ALLOWANCE_S = 0.2
_PER_TOKEN_S = 0.002  # a token usually takes 10 microseconds


@dataclass(slots=True)
class Grammar:
    """What became of a constraint, and what its answers share: a matcher at the beginning, or
    (``problem``) why it cannot be used. ``seconds``: what they have taken. It also tells how much
    memory that is: llguidance keeps what it has found out, some 150 MB in a second at most."""

    matcher: LLMatcher | None = None
    problem: str | None = None
    seconds: float = 0.0


class Matcher:
    """Tells which tokens may come next, of ``num_tokens`` (of the tokenizer's), and takes the one
    that came. On the engine's thread, whose time it takes: all answers wait meanwhile. An answer
    whose grammar takes more than 0.2 seconds and 2 ms a token is given up.

    ``problem``: why the answer can follow its grammar no further. Where that is the grammar's own
    fault it is the grammar's from then on, in the words that ``explain`` makes of llguidance's.
    """

    def __init__(
        self,
        grammar: Grammar,
        beginning: LLMatcher,
        num_tokens: int,
        explain: Callable[[str], str],
    ) -> None:
        self._grammar = grammar
        self._matcher = beginning.deep_copy()
        self._mask = np.zeros(-(-num_tokens // 32), np.int32)
        self._explain = explain
        self._seconds = -_ALLOWANCE_S
        self.problem: str | None = None

    def allowed(self) -> AllowedTokens | None:
        """What may come next; good until the next call of this. None where there is a problem."""
        if self.problem is not None:
            return None
        began = time.thread_time()
        self._matcher.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)
        self._look(began)
        return None if self.problem is not None else self._mask.view(np.uint8)

    def take(self, token: int) -> None:
        """A token that came, of those that were allowed."""
        if self.problem is not None:
            return
        if not self._mask[token // 32] >> token % 32 & 1:
            self.problem = f"token {token} came, which it does not allow"
            return
        began = time.thread_time()
        self._matcher.consume_token(token)
        self._seconds -= _PER_TOKEN_S
        self._look(began)

    def _look(self, began: float) -> None:
        spent = time.thread_time() - began
        self._seconds += spent
        self._grammar.seconds += spent
        if self._matcher.is_error():
            self._give_up(self._matcher.get_error())
        elif self._seconds > 0:
            self._give_up(
                f"it takes more than {_ALLOWANCE_S:g} seconds and {_PER_TOKEN_S * 1e3:g} ms a token"
            )

    def _give_up(self, problem: str) -> None:
        self.problem = self._grammar.problem = self._explain(problem)
        self._grammar.matcher = None
