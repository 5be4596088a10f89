"""Which part of the tree somebody wants to see."""

from __future__ import annotations

from dataclasses import dataclass

from radix_engine.cache import Namespace

DEFAULT_LIMIT, MOST_NODES = 500, 20_000


@dataclass(frozen=True, slots=True)
class TreeQuery:
    """``limit``: nodes at most. ``depth``: edges below a namespace's start, or below ``root``.
    ``namespace``: only those of this tenant; empty: of nobody in particular; None: all. ``text``:
    the beginnings of runs are shown. ``root``: only what is below the node of this id, and what is
    above it; None: all."""

    limit: int = DEFAULT_LIMIT
    depth: int | None = None
    namespace: str | None = None
    text: bool = True
    root: str | None = None

    def tells(self, namespace: Namespace) -> bool:
        """Whether a namespace is shown."""
        return self.namespace is None or (namespace.tenant or "") == self.namespace
