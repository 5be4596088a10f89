"""What a look at one prompt shows: which of its tokens are where, and where it leaves the stored
branch that is next to it."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from radix_engine.cache.lease import Match
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.node import Node, usable
from radix_engine.cache.token_run import TOKEN_BYTES, shared_tokens_bytes, unpack
from radix_engine.cache.tree import Tree
from radix_engine.cache.walk import known

# Children of a fork that are looked at to find the nearest.
_MOST_CHILDREN = 512

CACHED, IN_FLIGHT, EVICTED, NEW = "cached", "in_flight", "evicted", "new"


class Segment(NamedTuple):
    """Tokens ``start`` to ``end`` of a prompt, all in one state: cached, in_flight (another request
    computes them), evicted (stored once) or new."""

    start: int
    end: int
    state: str


class Parting(NamedTuple):
    """Where a prompt and a stored branch part: at token ``position`` both go on differently.
    ``before``: tokens they share right before it; ``prompt`` and ``stored``: how each goes on."""

    position: int
    before: list[int]
    prompt: list[int]
    stored: list[int]


def segments(tree: Tree, match: Match) -> list[Segment]:
    """The whole prompt in order, by where its tokens are. Cost: O(depth)."""
    found: list[Segment] = []
    count = match.prompt_tokens
    node, end = match.seen_node, match.seen_node.start + match.seen_bytes // TOKEN_BYTES
    end = min(end, count)
    known_end = end
    while node.parent is not None:
        stored = node.start + len(node.blocks) * tree.block_size
        computed = stored - node.in_flight * tree.block_size
        for start, stop, state in (
            (stored, end, EVICTED),
            (max(computed, node.start), min(stored, end), IN_FLIGHT),
            (node.start, min(computed, end), CACHED),
        ):
            if start < stop:
                found.append(Segment(start, stop, state))
        end = min(end, node.start)
        node = node.parent
    found.reverse()
    if match.copy_rows:  # of another branch, where its own was evicted
        whole = match.num_tokens - match.copy_rows
        after = match.num_tokens
        found = [
            *(Segment(part.start, min(part.end, whole), part.state) for part in found),
            Segment(whole, after, CACHED),
            *(Segment(max(part.start, after), part.end, part.state) for part in found),
        ]
        found = [part for part in found if part.start < part.end]
        known_end = max(known_end, after)
    if known_end < count:
        found.append(Segment(known_end, count, NEW))
    return _joined(found)


def parting(
    tree: Tree, tokens: bytes, namespace: Namespace, public_bytes: int, position: int, around: int
) -> Parting | None:
    """Where a prompt leaves the stored branch that shares most with it near token ``position``, or
    has left it before it was stored itself. ``around``: tokens to tell of each side. None where no
    branch of its own namespace is there. Cost: that of a match, and a look at up to 512 children.
    """
    found = stored_after(tree, tokens, namespace, public_bytes, position, around * TOKEN_BYTES)
    if found is None:
        return None
    end, stored = found
    room = around * TOKEN_BYTES
    return Parting(
        end // TOKEN_BYTES,
        unpack(tokens[max(0, end - room) : end]),
        unpack(tokens[end : end + room]),
        unpack(stored[:room]),
    )


def stored_after(
    tree: Tree, tokens: bytes, namespace: Namespace, public_bytes: int, position: int, most: int
) -> tuple[int, bytes] | None:
    """As `parting`, and its cost: after how many bytes both part, and at most about ``most`` bytes
    of how the stored branch goes on."""
    node, inside, at = known(tree, tokens, namespace, public_bytes)
    floor = position // tree.block_size * tree.block_bytes
    if floor > at:
        return None
    while node.run and node.start * TOKEN_BYTES >= floor and (above := node.parent) is not None:
        node, inside = above, len(above.run)
    inside = min(inside, floor - node.start * TOKEN_BYTES)
    if not node.run and node.namespace is None:
        return None
    if public_bytes and floor <= public_bytes and node.namespace != namespace:
        return None  # what hangs on a public path is somebody else's
    rest = tokens[floor:]
    other = _other(tree, node, inside, rest)
    if other is None:
        return None
    start, skip = other
    stored = _going_on(start, skip, tree.block_bytes + most)
    block = tree.block_bytes
    shared = shared_tokens_bytes(rest[:block], stored[:block])
    if shared == len(rest) or shared >= tree.block_bytes:
        return None
    return floor + shared, stored[shared:]


def _other(tree: Tree, node: Node, inside: int, rest: bytes) -> tuple[Node, int] | None:
    """The stored branch that shares most with ``rest``, which comes after so many bytes of a
    node's run, but not its next block: a node, and bytes of its run to leave out."""
    block = rest[: tree.block_bytes]
    if inside < len(node.run):
        computed = (len(node.blocks) - node.in_flight) * tree.block_bytes
        return (node, inside) if inside < computed else None
    best, most = None, -1
    for key, child in islice(node.children.items(), _MOST_CHILDREN):
        if child.namespace is None and usable(child) and key != block:
            shared = shared_tokens_bytes(block, key)
            if shared > most:
                best, most = child, shared
    return None if best is None else (best, 0)


def _going_on(node: Node, skip: int, most: int) -> bytes:
    """A stored branch's tokens from there on, along what was used last where it forks."""
    found = bytes(node.run[skip : skip + most])
    below: Node | None = node
    while below is not None and len(found) < most:
        below = below.hot if usable(below.hot) else None
        if below is not None and below.namespace is None:
            found += bytes(below.run[: most - len(found)])
    return found


def _joined(parts: list[Segment]) -> list[Segment]:
    """Neighbours of one state as one."""
    joined: list[Segment] = []
    for part in parts:
        if joined and joined[-1].state == part.state and joined[-1].end == part.start:
            part = Segment(joined.pop().start, part.end, part.state)
        joined.append(part)
    return joined
