"""Where two texts part."""

from __future__ import annotations


def common_prefix(one: str, other: str) -> int:
    """How many characters two texts begin with alike. Cost: O(text)."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
