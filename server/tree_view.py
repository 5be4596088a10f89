"""The tree of cached prefixes as JSON, for people to look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from radix_engine.cache import NodeDump

TEXT_LIMIT = 80


def tree_view(
    nodes: Sequence[NodeDump],
    block_size: int,
    state: dict[str, int],
    decode: Callable[[Sequence[int]], str],
) -> dict[str, object]:
    """Nodes in depth-first order, parents first; ``parent`` refers to an ``id``.

    ``text`` is the beginning of the edge's text, at most 80 characters; it ends with an ellipsis
    where there is more. The last ``ghost_tokens`` of an edge were evicted and are only remembered.
    A node with a ``namespace`` and no tokens is where that namespace begins.
    """
    return {
        "block_size": block_size,
        "cached_tokens": sum(node.tokens - node.ghost_tokens for node in nodes),
        "state": state,
        "nodes": [
            {
                "id": node.index,
                "parent": node.parent,
                "namespace": _namespace(node),
                "tokens": node.tokens,
                "ghost_tokens": node.ghost_tokens,
                "in_flight_blocks": node.in_flight,
                "retained": node.retained,
                "retained_s": None if node.retained_s is None else round(node.retained_s, 3),
                "blocks": list(node.blocks),
                "locks": node.locks,
                "hits": node.hits,
                "idle_s": round(node.idle_s, 3),
                "text": shortened(decode(node.head), more=node.tokens > len(node.head)),
            }
            for node in nodes
        ],
    }


def _namespace(node: NodeDump) -> dict[str, object] | None:
    found = node.namespace
    if found is None:
        return None
    return {
        "tenant": found.tenant,
        "salted": found.salt is not None,  # the salt itself is the client's secret
        "adapter": found.adapter,
        "weights": found.weights,
    }


def shortened(text: str, *, more: bool) -> str:
    """The beginning of a text, with an ellipsis where there is more."""
    if len(text) > TEXT_LIMIT:
        text, more = text[:TEXT_LIMIT], True
    return text + "\N{HORIZONTAL ELLIPSIS}" if more else text
