"""What has changed between one outline of the tree and the next."""

from __future__ import annotations

from typing import Any


class TreeChanges:
    """Remembers the last outline that was told."""

    def __init__(self) -> None:
        self._last: dict[str, dict[str, Any]] = {}

    def since_last(self, nodes: list[dict[str, Any]]) -> dict[str, Any]:
        """The nodes that are new or not as they were, parents first, and the ids of those that are
        not there any more. Cost: O(nodes)."""
        last = self._last
        now = {node["id"]: node for node in nodes}
        changed = [node for node in nodes if last.get(node["id"]) != node]
        gone = [each for each in last if each not in now]
        self._last = now
        return {"full": False, "nodes": changed, "gone": gone}

    def forget(self) -> None:
        """Nobody listens any more."""
        self._last = {}
