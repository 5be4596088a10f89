"""The tree as plain data, for people to look at."""

from __future__ import annotations

from dataclasses import dataclass

from radix_engine.cache.node import Node
from radix_engine.cache.token_run import TOKEN_BYTES, unpack


@dataclass(frozen=True, slots=True)
class NodeDump:
    """One node, in a list where parents stand before their children.

    ``index`` is its place in the list, ``parent`` its parent's (None for the root). ``head``: the
    first token ids of its run; ``locks``: its pins; ``idle_s``: seconds since its last access.
    """

    index: int
    parent: int | None
    tokens: int
    blocks: tuple[int, ...]
    locks: int
    hits: int
    idle_s: float
    head: tuple[int, ...]


def dump(root: Node, now: float, head_tokens: int = 32) -> list[NodeDump]:
    """The tree from ``root`` on, depth first, the most recently used child first.

    ``now`` is in the cache clock's seconds. A flat list, since a conversation of many turns is
    deeper than nested data can be. Cost: O(nodes + blocks).
    """
    nodes: list[NodeDump] = []
    todo: list[tuple[Node, int | None]] = [(root, None)]
    while todo:
        node, parent = todo.pop()
        index = len(nodes)
        nodes.append(
            NodeDump(
                index=index,
                parent=parent,
                tokens=node.num_tokens,
                blocks=tuple(node.blocks),
                locks=node.pins,
                hits=node.hits,
                idle_s=max(0.0, now - node.last_used),
                head=tuple(unpack(node.run[: head_tokens * TOKEN_BYTES])),
            )
        )
        children = sorted(node.children.values(), key=lambda child: child.tick)
        todo.extend((child, index) for child in children)
    return nodes
