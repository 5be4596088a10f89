"""A retained prefix, and why one cannot be retained."""

from __future__ import annotations

from radix_engine.cache.namespace import Namespace
from radix_engine.cache.node import Node


class RetentionRefused(ValueError):
    """A prefix cannot be retained; the message says why and what to do. ``reason``, for programs:
    ``seconds``, ``not_stored`` or ``limit``."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Retention:
    """A retained prefix, until ``until`` in the cache clock's seconds, which is ``seconds`` after
    its last use (None: until it is released).

    ``lost`` where eviction had to take the last of it, or a flush did.
    """

    __slots__ = (
        "_block_size",
        "lost",
        "namespace",
        "node",
        "number",
        "released",
        "seconds",
        "until",
    )

    def __init__(
        self,
        number: int,
        node: Node,
        block_size: int,
        namespace: Namespace,
        seconds: float | None,
        until: float | None,
    ) -> None:
        self.number = number
        self.node = node
        self.namespace = namespace
        self.seconds = seconds
        self.until = until
        self.released = False
        self.lost = False
        self._block_size = block_size

    @property
    def ended(self) -> bool:
        """Whether it keeps nothing any more."""
        return self.released or self.lost

    @property
    def num_tokens(self) -> int:
        """Tokens from the prompt's first on that it still keeps: fewer than were asked for where
        they were not all stored, or eviction had to take some; 0 once it has ended."""
        return 0 if self.ended else self.node.start + len(self.node.blocks) * self._block_size


def not_stored(how: str) -> RetentionRefused:
    """The refusal of a prefix of which nothing is stored, or computed yet."""
    return RetentionRefused("not_stored", f"nothing of this prefix is {how}; compute it first")


def check_seconds(seconds: float | None) -> None:
    """Raise RetentionRefused for a time that is none."""
    if seconds is not None and not seconds > 0:
        raise RetentionRefused("seconds", f"seconds must be greater than 0, not {seconds}")
