"""Why a match ended where it did."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Reason(Enum):
    """The first that applies is given."""

    __hash__ = object.__hash__  # Enum's own is a Python function, and reasons are counted

    BYPASSED = "bypassed"  # the request does not read the cache, or no further
    FULL = "full"  # all that can be cached is: the last token is always computed
    IN_FLIGHT = "in_flight"  # another request is computing what comes next
    EVICTED = "evicted"  # what comes next was stored once
    NAMESPACE = "namespace"  # another of the tenant's namespaces, one without a salt, stores it
    SHORT = "short"  # what is shared, or the prompt, does not fill a block
    DIVERGED = "diverged"  # the prompt leaves what is stored
    COLD = "cold"  # nothing that was ever stored goes on from here
    UNKNOWN = "unknown"  # the flat index keeps no reasons


class Cause(Enum):
    """What took an evicted run out of memory."""

    CAPACITY = "capacity"
    TTL = "ttl"
    FLUSH = "flush"
    FAULT = "fault"  # a block of it, or before it, was taken out of use


class MatchEnd(NamedTuple):
    """Why a match ended at token ``position``.

    ``cause``: for EVICTED. ``lost_tokens``: how many tokens from ``position`` on were stored once
    (EVICTED). ``branch_tokens``: the length, from the root, of the stored branch that the prompt
    left (DIVERGED).
    """

    reason: Reason
    position: int
    cause: Cause | None = None
    lost_tokens: int = 0
    branch_tokens: int = 0
