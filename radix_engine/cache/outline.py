"""The tree in outline: its most recently used and its largest parts, within a bound of work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from radix_engine.cache.namespace import Namespace


class Sighting(NamedTuple):
    """A node that is shown. ``parent``: its place in the list (None: the root's). ``last_used``: on
    the cache's clock, None while it is locked; ``retained_until`` likewise, None where there is no
    end or no retention that ends here. ``children``: all of them, shown or not. ``victim``: its
    place among those evicted next, from 1. ``head``: the first tokens of its run, packed, a block
    at least where there is one. Else as in `NodeDump`."""

    parent: int | None
    start: int
    tokens: int
    blocks: int
    in_flight: int
    locks: int
    hits: int
    last_used: float | None
    retained: int
    retained_until: float | None
    namespace: Namespace | None
    children: int
    victim: int | None
    head: bytes


@dataclass(slots=True)
class Fold:
    """The children of a node that are not shown, with all below them. ``nodes`` counts the children
    alone. ``is_whole`` False: not all was looked at, so that there is more than these totals."""

    nodes: int = 0
    tokens: int = 0
    blocks: int = 0
    hits: int = 0
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class Outline:
    """Parents stand before their children. ``folds``: by the place of the node they hang on.
    ``is_found`` False: nothing is stored at the path that was asked for."""

    block_size: int
    nodes: list[Sighting]
    folds: dict[int, Fold]
    is_found: bool = True


@dataclass(frozen=True, slots=True)
class Scope:
    """What to show: ``limit`` nodes at most. ``below``: only from one node on, the first of these;
    the keys of the nodes from the root down to it, each the key of a namespace or the first block
    of a run. What is above it is told, too, without its other children. Empty: the whole tree.
    ``depth``: edges below that node, or else below a namespace's start. ``tells``: the namespaces
    that are shown; others are not even counted. ``head_tokens``: of each run. ``victims``: of those
    that are evicted next, so many are marked, and shown with what is above them."""

    limit: int
    below: Sequence[bytes] = ()
    depth: int | None = None
    tells: Callable[[Namespace], bool] | None = None
    head_tokens: int = 32
    victims: int = 32
