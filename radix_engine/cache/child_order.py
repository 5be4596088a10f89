"""Which stored child shares most tokens with a prompt, among many."""

from __future__ import annotations

from collections.abc import Callable

from sortedcontainers import SortedList

from radix_engine.cache.token_run import TOKEN_BYTES, common_prefix_bytes

# Below this many children looking at each is as fast.
FEW = 16
_MOST_NOTES = 64


class ChildOrder:
    """The keys (first blocks) of a node's usable children, in order.

    Among sorted keys, the one that shares most with a given block stands right before or right
    after that block's place. Changes are only noted, and sorted in later, so that storing and
    evicting a child stay cheap. Cost: O(log children) for each change and for each look-up; one
    look-up in a set where no key begins with the block's first token.
    """

    def __init__(self, keys: list[bytes], is_usable: Callable[[bytes], bool]) -> None:
        self._keys: SortedList[bytes] = SortedList(keys)
        self._is_usable = is_usable
        # First tokens of all keys, of those noted too, and of some that have gone.
        self._firsts = {key[:TOKEN_BYTES] for key in keys}
        self._changed: dict[bytes, None] = {}

    def note(self, key: bytes) -> None:
        """A child has come, or changed between usable and not."""
        self._firsts.add(key[:TOKEN_BYTES])
        self.note_gone(key)

    def note_gone(self, key: bytes) -> None:
        """A child has gone, or is no longer usable."""
        self._changed[key] = None
        if len(self._changed) >= _MOST_NOTES:
            self._sort_in()

    def nearest(self, block: bytes) -> tuple[bytes, int] | None:
        """The key that shares most leading tokens with ``block``, and how many bytes these are.

        ``block`` may be shorter than a key. None where no key shares a token.
        """
        if block[:TOKEN_BYTES] not in self._firsts:
            return None
        self._sort_in()
        keys = self._keys
        place = keys.bisect_left(block)
        best: tuple[bytes, int] | None = None
        for index in (place - 1, place):
            if 0 <= index < len(keys):
                key: bytes = keys[index]
                shared = common_prefix_bytes(block, 0, key, TOKEN_BYTES)
                if shared > (best[1] if best else 0):
                    best = key, shared
        return best

    def first(self, count: int) -> list[bytes]:
        """The first ``count`` keys in order."""
        self._sort_in()
        return list(self._keys[:count])

    def _sort_in(self) -> None:
        keys = self._keys
        for key in self._changed:
            present = key in keys
            if self._is_usable(key) != present:
                if present:
                    keys.remove(key)
                else:
                    keys.add(key)
        self._changed.clear()
        if len(self._firsts) > 2 * len(keys) + _MOST_NOTES:
            self._firsts = {key[:TOKEN_BYTES] for key in keys}
