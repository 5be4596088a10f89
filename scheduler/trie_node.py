"""A node of the trie of prompts, and how one node becomes two and two become one."""

from __future__ import annotations

from typing import Any


class TrieNode:
    """A run of whole blocks that prompts have in common, below ``parent``.

    Offsets are bytes from the start of the prompt::

        start          cover               end
          |   cached     |   not cached     |

    ``cover`` is beyond ``start`` only where everything before ``start`` is cached. A namespace, and
    the root above them, has an empty run and always counts as covered. ``children`` are keyed by
    their first block, ``covered`` are those of them with ``cover`` beyond ``start`` (None: there
    are none). ``ends``: requests whose path ends here. ``waiting``: waiting requests that end here
    or below, ``running``: running ones that store what they compute, likewise. ``serial`` is the
    node's own number, ``first`` the arrival of the request that made this branch.

    ``heap`` (who can be taken here or below), ``queued`` (the rank under which the node is in its
    parent's heap, or None) and ``place`` belong to the order. ``near``: a look-up of some prompt
    that passes here, for whoever looks up the next one.
    """

    __slots__ = (
        "children",
        "cover",
        "covered",
        "end",
        "ends",
        "first",
        "heap",
        "key",
        "near",
        "parent",
        "place",
        "queued",
        "run",
        "running",
        "serial",
        "source",
        "start",
        "waiting",
    )

    def __init__(
        self,
        parent: TrieNode | None,
        key: bytes,
        source: bytes,
        start: int,
        end: int,
        serial: int,
        first: int,
    ) -> None:
        self.parent = parent
        self.key = key
        self.source = source  # a prompt that has the run in its place; until ``run`` is cut from it
        self.run: bytes | None = None
        self.start = start
        self.end = end
        self.cover = start
        self.children: dict[bytes, TrieNode] = {}
        self.covered: set[TrieNode] | None = None
        self.ends = 0
        self.waiting = 0
        self.running = 0
        self.serial = serial
        self.first = first
        self.heap: list[Any] = []
        self.queued: int | None = None
        self.place: Any = None
        self.near: Any = None

    @property
    def is_covered(self) -> bool:
        """Whether something of the node is cached, and all before it."""
        return self.cover > self.start or self.start == self.end

    @property
    def is_blocked(self) -> bool:
        """Whether a running request is about to compute what is missing here."""
        return self.cover < self.end and self.running > 0


def own_run(node: TrieNode) -> bytes:
    """The node's run; cut from the prompt at the first call."""
    run = node.run
    if run is None:
        run = node.run = node.source[node.start : node.end]
        node.source = b""  # the prompt may leave before the node does
    return run


def mark_covered(parent: TrieNode, child: TrieNode) -> None:
    """The child has a cached part from now on."""
    if parent.covered is None:
        parent.covered = {child}
    else:
        parent.covered.add(child)


def mark_uncovered(parent: TrieNode, child: TrieNode) -> None:
    """The child has no cached part, or is gone."""
    if parent.covered is not None:
        parent.covered.discard(child)


def split(node: TrieNode, at: int, block_bytes: int, serial: int) -> TrieNode:
    """Cut a node at offset ``at`` (whole blocks) and return the new upper part.

    ``node`` stays the lower part, so that the requests that end there still do. Cost: two copies of
    the run at most.
    """
    parent = node.parent
    assert parent is not None
    upper = TrieNode(parent, node.key, b"", node.start, at, serial, node.first)
    run, cut = own_run(node), at - node.start
    upper.run, node.run = run[:cut], run[cut:]
    node.key = node.run[:block_bytes]
    parent.children[upper.key] = upper
    upper.children[node.key] = node
    upper.waiting, upper.running, upper.near = node.waiting, node.running, node.near
    if node.cover > node.start:
        mark_uncovered(parent, node)
        mark_covered(parent, upper)
    upper.cover = min(node.cover, at)
    if node.cover > at:
        mark_covered(upper, node)
    else:
        node.cover = at
    node.start, node.parent = at, upper
    node.queued = None
    return upper


def merge(node: TrieNode) -> TrieNode:
    """Join a node that no request ends at with its only child; the child becomes both.

    Cost: a copy of the joined run, or nothing where the child's was never cut from its prompt.
    """
    parent = node.parent
    (child,) = node.children.values()
    assert parent is not None
    if child.run is not None:
        child.run = own_run(node) + child.run
    if node.cover < node.end:
        child.cover = node.cover
    mark_uncovered(parent, node)
    child.key, child.start, child.parent = node.key, node.start, parent
    child.first = node.first
    child.queued = None
    parent.children[child.key] = child
    if child.cover > child.start:
        mark_covered(parent, child)
    bury(node)
    return child


def bury(node: TrieNode) -> None:
    """Leave nothing in a node that is no longer in the trie: heaps may still hold it."""
    node.parent = node.covered = node.place = node.queued = node.near = None
    node.children = {}
    node.heap = []
    node.source, node.run = b"", None
    node.waiting = node.running = node.ends = 0


def parent_of(node: TrieNode) -> TrieNode:
    """The node above one that is not the root."""
    parent = node.parent
    assert parent is not None, "the root is above all"
    return parent


def common_end(run: bytes, end: int, child: TrieNode, block_bytes: int) -> int:
    """The offset up to which a path, the first ``end`` bytes of ``run``, and a node whose first
    block it has are the same. Cost: O(bytes of the node)."""
    start, other = child.start, child.run or own_run(child)
    if child.end <= end and run.startswith(other, start):
        return child.end
    size = min(end - start, len(other))
    if run.startswith(other[:size], start):
        return start + size
    same = block_bytes
    while size - same > block_bytes:  # ``same`` bytes are the same, ``size`` are not
        middle = same + (size - same) // (2 * block_bytes) * block_bytes
        if run.startswith(other[same:middle], start + same):
            same = middle
        else:
            size = middle
    return start + same
