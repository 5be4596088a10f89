"""Look-ups: how far the tree covers a prompt. Nothing here changes anything."""

from __future__ import annotations

from radix_engine.cache.lease import Match
from radix_engine.cache.mode import CacheMode
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.node import Node, ghost_blocks
from radix_engine.cache.token_run import TOKEN_BYTES, common_prefix_bytes
from radix_engine.cache.tree import Tree, shared_tokens_bytes

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
) -> Match:
    """Match a prompt of which ``public_bytes`` lie on a public path."""
    block_bytes = tree.block_bytes
    most = max(0, len(tokens) - TOKEN_BYTES)
    whole = most - most % block_bytes
    node, inside, at = _known(tree, tokens, namespace, public_bytes)
    if at > whole:  # the last token is never matched
        while not node.run and node.parent is not None:  # a namespace below a public path
            node = node.parent
            inside = len(node.run)
        inside -= at - whole
        at = whole
        if not inside and node.parent is not None:
            node = node.parent
            inside = len(node.run)
    seen, seen_bytes = node, inside
    # Ghosts are only at the end of a path: go back to where blocks are.
    stored = len(node.blocks) * block_bytes
    while node.parent is not None and (inside > stored or _hangs_on_ghosts(node, block_bytes)):
        at -= inside - stored
        if stored:
            inside = stored
            break
        node = node.parent
        inside = len(node.run)
        stored = len(node.blocks) * block_bytes
    rows, source = 0, -1
    # Of a public path only whole blocks are shared: what else hangs on it is somebody's own.
    own = at > public_bytes or not public_bytes or node.namespace == namespace
    if partial_blocks and own and at < most:
        rows, source = _partial(tree, tokens[at : min(most, at + block_bytes)], node, inside)
    return Match(
        at // TOKEN_BYTES + rows,
        rows,
        source,
        tree.version,
        node,
        inside,
        seen,
        seen_bytes,
        len(tokens) // TOKEN_BYTES,
        public_bytes // TOKEN_BYTES,
        namespace,
        mode,
    )


def _known(
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


def _hangs_on_ghosts(node: Node, block_bytes: int) -> bool:
    """Whether this is a namespace below a public path that is not wholly in memory."""
    parent = node.parent
    return not node.run and parent is not None and ghost_blocks(parent, block_bytes) > 0


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
