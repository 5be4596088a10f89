"""What an answer's next token may be, whatever the model would rather say."""

from __future__ import annotations

from radix_engine.model.allowed_tokens import AllowedTokens
from server.constrained.matcher import Matcher


class NextTokens:
    """``matcher``: the answer's constraint, if it has one. Of an answer's first ``min_tokens``
    tokens none ends it: these are ``not_ends``. But a constraint that leaves nothing else to say
    ends the answer early.
    """

    def __init__(
        self,
        matcher: Matcher | None = None,
        min_tokens: int = 0,
        not_ends: AllowedTokens | None = None,
    ) -> None:
        self._matcher = matcher
        self._min_tokens = min_tokens
        self._not_ends = not_ends

    def are_free(self, so_far: int) -> bool:
        """Whether anything may come after so many tokens."""
        return self._matcher is None and not self._is_early(so_far)

    def allowed(self, so_far: int) -> AllowedTokens | None:
        """What may come after so many tokens, good until the next call; None: anything."""
        early = self._not_ends if self._is_early(so_far) else None
        by_constraint = None if self._matcher is None else self._matcher.allowed()
        if by_constraint is None or early is None:
            return early if by_constraint is None else by_constraint
        both = by_constraint[: len(early)] & early
        return both if both.any() else by_constraint

    def take(self, token: int) -> str | None:
        """A token has come. Why the answer cannot go on, where it cannot: the token is none that
        its constraint allows."""
        if self._matcher is None:
            return None
        self._matcher.take(token)
        problem = self._matcher.problem
        return None if problem is None else f"the answer cannot follow its constraint: {problem}"

    def _is_early(self, so_far: int) -> bool:
        return so_far < self._min_tokens and self._not_ends is not None
