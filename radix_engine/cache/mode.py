"""What one request does with the cache."""

from __future__ import annotations

from enum import Enum


class CacheMode(Enum):
    """``DEFAULT`` reads and stores, ``READ_ONLY`` may hit and stores nothing, ``WRITE_ONLY``
    computes all of its prompt and stores it, ``BYPASS`` does neither.

    ``reads``: whether the request may be served from the cache. ``stores``: whether others may be
    served from what it computes.
    """

    reads: bool
    stores: bool

    def __new__(cls, value: str, reads: bool, stores: bool) -> CacheMode:
        mode = object.__new__(cls)
        mode._value_ = value
        # Not properties: every look-up asks, and these cost a tenth.
        mode.reads, mode.stores = reads, stores
        return mode

    DEFAULT = ("default", True, True)
    READ_ONLY = ("read-only", True, False)
    WRITE_ONLY = ("write-only", False, True)
    BYPASS = ("bypass", False, False)

    @property
    def without_reading(self) -> CacheMode:
        """The mode that stores as this one does and reads nothing."""
        return CacheMode.WRITE_ONLY if self.stores else CacheMode.BYPASS
