"""The tree as plain data, for people to look at."""

from __future__ import annotations

from dataclasses import dataclass, replace

from radix_engine.cache.events import ALL, Everything
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.node import Node
from radix_engine.cache.prefix_cache import PrefixCache
from radix_engine.cache.token_run import TOKEN_BYTES, common_prefix_bytes, unpack


@dataclass(frozen=True, slots=True)
class NodeDump:
    """One node, in a list where parents stand before their children.

    ``index`` is its place in the list, ``parent`` its parent's (None for the root). ``tokens``: on
    its edge; the last ``ghost_tokens`` of them are remembered without blocks, and ``in_flight`` of
    its blocks are being computed. ``namespace``: set where one begins. ``head``: the first token
    ids of its run; ``locks``: the leases that pin it; ``hits``: those it has served; ``idle_s``:
    seconds since its last use ended, 0 while it is locked; ``retained``: by how many retentions;
    ``retained_s``: seconds until the last of them that ends at this node does, None where there is
    none or no end.

    In a tenant's dump ``blocks`` is empty, since the jumps of block ids would tell how much others
    store. Of the root, of public paths and of the namespace that they lie in it tells the tokens
    alone: ``in_flight``, ``locks``, ``hits``, ``idle_s`` and ``retained`` are 0 and ``retained_s``
    is None, whatever they are in truth; and ``hits`` is 0 of all that the namespace of public paths
    holds, since it depends on who else held a path when the rest was stored. Nor does the dump show
    where others have cut a public path: what does not fork there is one node, which ends with the
    path. A path counts as public for good, since some of these numbers are of the time when it was.

    ``locks`` are the node's pins: what is locked is pinned, and not evicted.
    """

    index: int
    parent: int | None
    tokens: int
    ghost_tokens: int
    blocks: tuple[int, ...]
    in_flight: int
    locks: int
    hits: int
    idle_s: float
    retained: int
    retained_s: float | None
    namespace: Namespace | None
    head: tuple[int, ...]


def dump(
    cache: PrefixCache, now: float, head_tokens: int = 32, scope: str | Everything | None = ALL
) -> list[NodeDump]:
    """The tree, depth first. A flat list, since a conversation of many turns is deeper than nested
    data can be.

    ``now`` is in the cache clock's seconds. ``scope``: ALL, for operators, with the most recently
    used child first; or one tenant's namespaces (None: those of nobody in particular, without the
    ones that have a salt), with the public paths that they continue and nothing else that tells of
    others (see `NodeDump`): so the order of children says nothing about their use.
    Cost: O(nodes + blocks), for a tenant times the public paths.
    """
    if scope is not ALL:
        return _dump_tenant(cache, now, head_tokens, scope)
    nodes: list[NodeDump] = []
    todo: list[tuple[Node, int | None]] = [(cache.root, None)]
    while todo:
        node, parent = todo.pop()
        part = _dump_part(cache, node, 0, len(node.run), now, head_tokens)
        index = _place(nodes, part, parent)
        children = sorted(node.children.values(), key=lambda child: child.tick)
        todo.extend((child, index) for child in children)
    return nodes


def _dump_tenant(
    cache: PrefixCache, now: float, head_tokens: int, tenant: str | None
) -> list[NodeDump]:
    nodes: list[NodeDump] = []
    leading = set() if tenant is None else _leading_to(cache, tenant)
    # With each node whether its namespace has public paths, those of them that begin with all that
    # is above it, and whether it is the only child of a part of one.
    todo: list[tuple[Node, int | None, bool, list[bytes], bool]] = []
    todo.append((cache.root, None, False, [], False))
    while todo:
        node, index, shared, paths, alone = todo.pop()
        space = node.namespace
        if space is not None:
            paths = cache.public.ever(space) if space == space.shared else []
            shared = bool(paths)
        end, public = len(node.run), _public_bytes(cache, node, paths)
        if public or node.parent is None or (space is not None and shared):
            part = _without_use(_dump_part(cache, node, 0, public, now, head_tokens))
            if public and alone and index is not None:
                nodes[index] = _joined(nodes[index], part, head_tokens)
            else:
                index = _place(nodes, part, index)
        if public < end or (space is not None and not shared):
            part = _dump_part(cache, node, public, end, now, head_tokens)
            part = replace(part, blocks=(), hits=0 if shared else part.hits)
            index = _place(nodes, part, index)
        all_own = tenant is None or not shared  # else of a public path only what leads to its own
        children = [
            child
            for _, child in sorted(node.children.items(), reverse=True)
            if child in leading
            or (all_own if child.namespace is None else child.namespace.is_told_to(tenant))
        ]
        alone = 0 < public == end and len(children) == 1
        below = _going_on(node, paths)
        todo.extend((child, index, shared, below, alone) for child in children)
    return nodes


def _leading_to(cache: PrefixCache, tenant: str) -> set[Node]:
    """The nodes of public paths, and their namespaces, below which this tenant's prompts go on."""
    leading: set[Node] = set()
    todo: list[tuple[Node, list[bytes]]] = []
    for node in cache.root.children.values():
        space = node.namespace
        if space is not None and space == space.shared:
            todo.append((node, cache.public.ever(space)))
    while todo:
        node, paths = todo.pop()
        for child in node.children.values():
            if child.namespace is None:
                if _public_bytes(cache, child, paths) == len(child.run):
                    todo.append((child, _going_on(child, paths)))
            elif child.namespace.is_told_to(tenant):
                above = node
                while above.parent is not None and above not in leading:
                    leading.add(above)
                    above = above.parent
    return leading


def _public_bytes(cache: PrefixCache, node: Node, paths: list[bytes]) -> int:
    """How much of a node's run, in whole blocks, lies on one of these public paths."""
    at, step = node.start * TOKEN_BYTES, cache.block_size * TOKEN_BYTES
    return max((common_prefix_bytes(path, at, node.run, step) for path in paths), default=0)


def _going_on(node: Node, paths: list[bytes]) -> list[bytes]:
    """Those of the public paths above a node that go on behind it."""
    run, start, end = bytes(node.run), node.start * TOKEN_BYTES, node.end * TOKEN_BYTES
    return [path for path in paths if len(path) > end and path.startswith(run, start)]


def _dump_part(
    cache: PrefixCache, node: Node, start: int, end: int, now: float, head_tokens: int
) -> NodeDump:
    """A node from byte ``start`` to ``end`` of its run, as if it were cut there; without a place.

    A cut changes none of the numbers of what is below it.
    """
    step = cache.block_size * TOKEN_BYTES
    tokens, blocks = (end - start) // TOKEN_BYTES, node.blocks[start // step : end // step]
    until = cache.retentions.until(node)
    return NodeDump(
        index=0,
        parent=None,
        tokens=tokens,
        ghost_tokens=tokens - len(blocks) * cache.block_size,
        blocks=tuple(blocks),
        in_flight=min(node.in_flight, len(blocks)),
        locks=node.pins,
        hits=node.hits,
        idle_s=0.0 if node.pins else max(0.0, now - node.last_used),
        retained=node.retained,
        retained_s=None if until is None else max(0.0, until - now),
        namespace=node.namespace,
        head=tuple(unpack(bytes(node.run[start : min(end, start + head_tokens * TOKEN_BYTES)]))),
    )


def _without_use(part: NodeDump) -> NodeDump:
    """The tokens alone, which all may know."""
    return replace(
        part, blocks=(), in_flight=0, locks=0, hits=0, idle_s=0.0, retained=0, retained_s=None
    )


def _joined(upper: NodeDump, lower: NodeDump, head_tokens: int) -> NodeDump:
    """Two parts of a public path as one."""
    return replace(
        upper,
        tokens=upper.tokens + lower.tokens,
        ghost_tokens=upper.ghost_tokens + lower.ghost_tokens,
        head=(upper.head + lower.head)[:head_tokens],
    )


def _place(nodes: list[NodeDump], part: NodeDump, parent: int | None) -> int:
    """Put a part at the end of the list; its index there."""
    nodes.append(replace(part, index=len(nodes), parent=parent))
    return len(nodes) - 1
