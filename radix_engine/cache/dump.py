"""The tree as plain data, for people to look at."""

from __future__ import annotations

from dataclasses import dataclass, replace

from radix_engine.cache.events import ALL, Everything
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.node import Node
from radix_engine.cache.prefix_cache import PrefixCache
from radix_engine.cache.token_run import TOKEN_BYTES, unpack


@dataclass(frozen=True, slots=True)
class NodeDump:
    """One node, in a list where parents stand before their children.

    ``index`` is its place in the list, ``parent`` its parent's (None for the root). ``tokens``: on
    its edge; the last ``ghost_tokens`` of them are remembered without blocks, and ``in_flight`` of
    its blocks are being computed. ``namespace``: set where one begins. ``head``: the first token
    ids of its run; ``locks``: the leases that pin it; ``idle_s``: seconds since its last use ended,
    0 while it is locked; ``retained``: by how many retentions; ``retained_s``: seconds until the
    last of them that ends at this node does, None where there is none or no end.
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
    """The tree, depth first, the most recently used child first.

    ``now`` is in the cache clock's seconds. ``scope``: ALL, for operators, or one tenant's
    namespaces (None: those of nobody in particular), without block ids, whose jumps would tell how
    much others store. A flat list, since a conversation of many turns is deeper than nested data
    can be. Cost: O(nodes + blocks).
    """
    nodes: list[NodeDump] = []
    todo: list[tuple[Node, int | None]] = [(cache.root, None)]
    while todo:
        node, parent = todo.pop()
        index = len(nodes)
        shown = _dump_node(cache, node, index, parent, now, head_tokens)
        nodes.append(shown if scope is ALL else replace(shown, blocks=()))
        children = sorted(node.children.values(), key=lambda child: child.tick)
        todo.extend((child, index) for child in children if _in_scope(child, scope))
    return nodes


def _dump_node(
    cache: PrefixCache, node: Node, index: int, parent: int | None, now: float, head_tokens: int
) -> NodeDump:
    until = cache.retentions.until(node)
    return NodeDump(
        index=index,
        parent=parent,
        tokens=node.num_tokens,
        ghost_tokens=node.num_tokens - len(node.blocks) * cache.block_size,
        blocks=tuple(node.blocks),
        in_flight=node.in_flight,
        locks=node.pins,
        hits=node.hits,
        idle_s=0.0 if node.pins else max(0.0, now - node.last_used),
        retained=node.retained,
        retained_s=None if until is None else max(0.0, until - now),
        namespace=node.namespace,
        head=tuple(unpack(bytes(node.run[: head_tokens * TOKEN_BYTES]))),
    )


def _in_scope(node: Node, scope: str | Everything | None) -> bool:
    """Whether a tenant may see a node. A tenant's namespace below a public path is shown under that
    path's tokens only if the path is the tenant's own."""
    return scope is ALL or node.namespace is None or node.namespace.tenant == scope
