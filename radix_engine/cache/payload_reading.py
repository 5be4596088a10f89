"""Reading the payloads along a prompt: those of what a match covers, and of what comes next."""

from __future__ import annotations

import numpy as np

from radix_engine.cache.explain import goes_on_in_own
from radix_engine.cache.lease import Match
from radix_engine.cache.node import Node
from radix_engine.cache.payload import MISSING_PAYLOAD, payload_of
from radix_engine.cache.token_run import TOKEN_BYTES, shared_tokens_bytes
from radix_engine.cache.tree import Tree


def payload_along(tree: Tree, match: Match, tokens: bytes) -> bytes:
    """See `PrefixCache.payload`."""
    if not match.mode.reads:
        return b""
    parts = [_in_next_block(tree, match, tokens)]
    node: Node | None = match.node
    inside = match.inside_bytes
    while node is not None:
        parts.append(bytes(payload_of(node)[:inside]))
        node = node.parent
        inside = 0 if node is None else len(node.run)
    return b"".join(reversed(parts))


def first_known(payload: bytes) -> int:
    """How many of the first tokens have a payload. Cost: O(tokens)."""
    missing = np.frombuffer(payload, np.uint32) == _MISSING
    return int(missing.argmax()) if missing.any() else len(payload) // TOKEN_BYTES


_MISSING = np.frombuffer(MISSING_PAYLOAD, np.uint32)[0]


def _in_next_block(tree: Tree, match: Match, tokens: bytes) -> bytes:
    """The payload of the tokens after the whole blocks, as far as a stored block has them too."""
    # Of a block that nobody may read nobody knows whether its values are right.
    if not goes_on_in_own(match) or tree.pool.quarantined:
        return b""
    at = (match.num_tokens - match.copy_rows) * TOKEN_BYTES
    block, node, inside = tokens[at : at + tree.block_bytes], match.node, match.inside_bytes
    if inside < len(node.run):
        following = bytes(node.run[inside : inside + tree.block_bytes])
        shared = shared_tokens_bytes(block, following)
        return bytes(payload_of(node)[inside : inside + shared])
    found = tree.nearest_child(node, block) if block else None
    return b"" if found is None else bytes(payload_of(found[0])[: found[1]])
