"""Look-ups: how far the tree covers a prompt. Nothing here changes anything."""

from __future__ import annotations

from radix_engine.cache.lease import Match
from radix_engine.cache.mode import CacheMode
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.node import Node, ghost_blocks
from radix_engine.cache.token_run import TOKEN_BYTES, common_prefix_bytes, shared_tokens_bytes
from radix_engine.cache.tree import Tree

# Slicing a run out of the prompt and comparing is quicker than ``startswith`` for short runs; a
# long slice has to be allocated anew each time.
_LONG_RUN = 1 << 10


def descend(start: Node, tokens: bytes, at: int, block_bytes: int) -> tuple[Node, int, int]:
    """Follow the prompt from byte ``at``, at the end of ``start``, as far as its tokens are known.

    Returns the node it ends in, how many bytes of that node's run it shares (whole blocks) and the
    position in bytes. Ghosts are followed like the rest. Cost: a look-up and a compare an edge;
    where no more than one child holds blocks, the one used last is tried first, without a look-up.
    """
    node = start
    starts = tokens.startswith
    while True:
        child = node.hot if node.stored_children < 2 else None
        if child is not None:
            run = child.run
            size = len(run)
            if starts(run, at) if size > _LONG_RUN else tokens[at : at + size] == run:
                node = child
                at += size
                continue
        child = node.children.get(tokens[at : at + block_bytes])
        if child is None:
            break
        run = child.run
        if not starts(run, at):
            shared = common_prefix_bytes(tokens, at, bytes(run), block_bytes)
            return child, shared, at + shared
        node = child
        at += len(run)
    return node, len(node.run), at


def find(
    tree: Tree,
    tokens: bytes,
    namespace: Namespace,
    public_bytes: int,
    mode: CacheMode,
    *,
    partial_blocks: bool,
    near: Match | None = None,
    shared_tokens: int = 0,
    most_tokens: int | None = None,
) -> Match:
    """Match a prompt of which ``public_bytes`` lie on a public path; from an earlier match on, if
    there is one, of a prompt that has so many tokens in common with this one. Not beyond its last
    token but one, nor ``most_tokens``."""
    block_bytes = tree.block_bytes
    prompt_tokens = len(tokens) // TOKEN_BYTES
    if most_tokens is not None:
        tokens = tokens[: (most_tokens + 1) * TOKEN_BYTES]
        shared_tokens = min(shared_tokens, most_tokens)
    most = max(0, len(tokens) - TOKEN_BYTES)
    whole = most - most % block_bytes
    start = None
    # What was public then need not be now: an earlier match counts where all of it is its own.
    if (
        near is not None
        and not (public_bytes or near.public_tokens)
        and (near.namespace is namespace or near.namespace == namespace)
    ):
        start = _still_there(tree, near, shared_tokens)
    if start is None:
        node, inside, at = known(tree, tokens, namespace, public_bytes)
    else:
        node, inside, at = descend(start, tokens, start.end * TOKEN_BYTES, block_bytes)
    seen, seen_bytes = node, inside
    if at > whole:  # the last token is never matched
        while not node.run and node.parent is not None:  # a namespace below a public path
            node = node.parent
            inside = len(node.run)
        inside -= at - whole
        at = whole
        if not inside and node.parent is not None:
            node = node.parent
            inside = len(node.run)
        if seen_bytes <= len(seen.blocks) * block_bytes:
            seen, seen_bytes = node, inside  # else the last block was evicted
    # Ghosts are only at the end of a path: go back to where blocks are.
    stored = len(node.blocks) * block_bytes
    while node.parent is not None and (
        inside > stored or (not node.run and _hangs_on_ghosts(node.parent, block_bytes))
    ):
        at -= inside - stored
        if stored:
            inside = stored
            break
        node = node.parent
        inside = len(node.run)
        stored = len(node.blocks) * block_bytes
    rows, source = 0, -1
    if tree.pool.quarantined:
        node, inside, at = _before_quarantined(tree, node, inside, at)
    # Of a public path only whole blocks are shared: what else hangs on it is somebody's own.
    own = at > public_bytes or not public_bytes or node.namespace == namespace
    if partial_blocks and own and at < most:
        rows, source = _partial(tree, tokens[at : min(most, at + block_bytes)], node, inside)
        if source in tree.pool.quarantined:
            rows, source = 0, -1
    return Match(
        at // TOKEN_BYTES + rows,
        rows,
        source,
        tree.version,
        node,
        inside,
        seen,
        seen_bytes,
        prompt_tokens,
        public_bytes // TOKEN_BYTES,
        most // TOKEN_BYTES,
        namespace,
        mode,
    )


def find_nothing(tree: Tree, tokens: bytes, namespace: Namespace, mode: CacheMode) -> Match:
    """The match of a request that does not read the cache."""
    root, count = tree.root, len(tokens) // TOKEN_BYTES
    return Match(0, 0, -1, tree.version, root, 0, root, 0, count, 0, 0, namespace, mode)


def _still_there(tree: Tree, near: Match, shared_tokens: int) -> Node | None:
    """The deepest node of an earlier match that is in the tree and lies within what is shared.

    What a node's path says never changes, however it is split; but a run grows in place, and a node
    without blocks may go. Cost: O(depth).
    """
    shared = min(shared_tokens, near.num_tokens - near.copy_rows)
    node: Node | None = near.node
    while node is not None and node.end > shared:
        node = node.parent
    if node is None or not node.run:
        return None
    top = node
    while top.parent is not None:
        top = top.parent
    return node if top is tree.root else None


def known(
    tree: Tree, tokens: bytes, namespace: Namespace, public_bytes: int
) -> tuple[Node, int, int]:
    """How far the prompt's tokens are known in its namespace, along the public path first."""
    root = tree.root
    if public_bytes:
        start = root.children.get(namespace.shared.key)
        if start is None:
            return root, 0, 0
        node, inside, at = descend(start, tokens[:public_bytes], 0, tree.block_bytes)
        if at < public_bytes or inside < len(node.run):
            return node, inside, at
        own = node.children.get(namespace.key)
        if own is None:
            return node, inside, at
        return descend(own, tokens, public_bytes, tree.block_bytes)
    start = root.children.get(namespace.key)
    if start is None:
        return root, 0, 0
    return descend(start, tokens, 0, tree.block_bytes)


def _hangs_on_ghosts(above: Node, block_bytes: int) -> bool:
    """Whether what is above a namespace is a public path that is not wholly in memory."""
    return ghost_blocks(above, block_bytes) > 0


def _before_quarantined(tree: Tree, node: Node, inside: int, at: int) -> tuple[Node, int, int]:
    """Where a match ends that reads no block in quarantine: others in use may still read it, but
    nobody knows what it holds. Cost: O(blocks matched)."""
    found = node, inside, at
    below: Node = node
    while (parent := below.parent) is not None:
        at -= inside
        blocks = below.blocks[: inside // tree.block_bytes]
        sound = tree.pool.before_quarantined(blocks) * tree.block_bytes
        if sound < inside:
            found = (below, sound, at + sound) if sound else (parent, len(parent.run), at)
        below, inside = parent, len(parent.run)
    return found


def _partial(tree: Tree, block: bytes, node: Node, inside: int) -> tuple[int, int]:
    """The rows of a stored block that begin as the prompt goes on, and that block."""
    if inside < len(node.run):
        index = inside // tree.block_bytes
        if index >= len(node.blocks) - node.in_flight:
            return 0, -1
        following = bytes(node.run[inside : inside + tree.block_bytes])
        rows = shared_tokens_bytes(block, following) // TOKEN_BYTES
        return (rows, node.blocks[index]) if rows else (0, -1)
    found = tree.nearest_child(node, block)
    if found is None:
        return 0, -1
    return found[1] // TOKEN_BYTES, found[0].blocks[0]
