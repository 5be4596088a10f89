"""Token runs: consecutive token ids as one contiguous buffer of int32.

A run is an immutable ``bytes`` object, 4 bytes a token in the machine's order. Comparing two runs
is then one ``memcmp``, a run can be looked up in a dictionary, and walking a prompt by offset
copies nothing but the first block of each edge.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np

TOKEN_BYTES = 4
_TOKEN_TYPE = "i"
assert array(_TOKEN_TYPE).itemsize == TOKEN_BYTES, "this platform's C int is not 32 bits wide"


def token_array(ids: Iterable[int] = ()) -> array[int]:
    """A growable int32 buffer of ids; used for token ids and for block ids alike."""
    return array(_TOKEN_TYPE, ids)


def pack(ids: Iterable[int]) -> bytes:
    """The run of these token ids."""
    return token_array(ids).tobytes()


def unpack(run: bytes) -> list[int]:
    """The token ids of a run."""
    return token_array_from(run).tolist()


def token_array_from(run: bytes) -> array[int]:
    """The run's ids as an int32 buffer of its own."""
    ids = token_array()
    ids.frombytes(run)
    return ids


def common_prefix_bytes(left: bytes, offset: int, right: bytes | bytearray, unit: int) -> int:
    """How many leading bytes ``left[offset:]`` and ``right`` share, rounded down to whole ``unit``
    s.

    ``offset`` and ``unit`` are in bytes and multiples of 4. Cost: one compare of the shared length.
    """
    length = min(len(left) - offset, len(right))
    if left.startswith(right[:length], offset):
        return length - length % unit
    count = length // TOKEN_BYTES
    a = np.frombuffer(left, np.int32, count, offset)
    b = np.frombuffer(right, np.int32, count)
    first_difference = int((a != b).argmax()) * TOKEN_BYTES
    return first_difference - first_difference % unit


def shared_tokens_bytes(block: bytes, key: bytes) -> int:
    """Bytes of the leading tokens that two blocks share. Cost: O(log block)."""
    low, high = 0, min(len(block), len(key)) // TOKEN_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        if block[: middle * TOKEN_BYTES] == key[: middle * TOKEN_BYTES]:
            low = middle
        else:
            high = middle - 1
    return low * TOKEN_BYTES
