"""What can go wrong between processes."""

from __future__ import annotations


class ParallelError(RuntimeError):
    """A process of the group was lost or failed, or cannot do its part; the message names it."""
