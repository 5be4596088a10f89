"""What one request does with the cache."""

from __future__ import annotations

from enum import Enum


class CacheMode(Enum):
    """``DEFAULT`` reads and stores, ``READ_ONLY`` may hit and stores nothing, ``BYPASS`` does
    neither."""

    DEFAULT = "default"
    READ_ONLY = "read-only"
    BYPASS = "bypass"

    @property
    def reads(self) -> bool:
        """Whether the request may be served from the cache."""
        return self is not CacheMode.BYPASS

    @property
    def stores(self) -> bool:
        """Whether others may be served from what the request computes."""
        return self is CacheMode.DEFAULT
