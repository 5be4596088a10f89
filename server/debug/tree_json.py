"""The tree in outline as JSON-able data, made off the engine's thread."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

from radix_engine.cache import TOKEN_BYTES, Fold, Namespace, Outline, Sighting, unpack
from server.tree_view import shortened

_MOST_TEXTS = 16_384
_MOST_PLACES = 32_768  # and those of the last outline, if there are more


class TreeWriter:
    """Writes outlines. ``decode`` gives tokens' text; ``to_unix_s`` turns the cache's clock into
    seconds since 1970. An id is a hash, with a secret, of where a node hangs: it stays from one
    outline to the next as long as nothing above the node is cut, and tells nothing. One thread at a
    time."""

    def __init__(
        self, decode: Callable[[Sequence[int]], str], to_unix_s: Callable[[float], float]
    ) -> None:
        self._decode = decode
        self._to_unix_s = to_unix_s
        self._secret = secrets.token_bytes(16)
        self._texts: OrderedDict[bytes, str] = OrderedDict()
        self._places: OrderedDict[bytes, tuple[bytes, bytes]] = OrderedDict()  # parent's id, key

    def nodes(self, seen: Outline, *, text: bool = True) -> list[dict[str, Any]]:
        """The nodes, parents first. Cost: O(nodes), and decoding texts that are new."""
        ids: list[bytes] = []
        told: list[dict[str, Any]] = []
        block_bytes = seen.block_size * TOKEN_BYTES
        for place, node in enumerate(seen.nodes):
            above = b"" if node.parent is None else ids[node.parent]
            key = node.head[:block_bytes] if node.namespace is None else node.namespace.key
            own = blake2b(above + key, digest_size=6, key=self._secret).digest()
            ids.append(own)
            self._places[own] = above, key
            self._places.move_to_end(own)
            parent = None if node.parent is None else above.hex()
            told.append(
                self._node(node, own.hex(), parent, seen.folds.get(place), seen.block_size, text)
            )
        while len(self._places) > max(_MOST_PLACES, len(ids)):
            self._places.popitem(last=False)
        return told

    def path_to(self, name: str) -> list[bytes] | None:
        """The keys of the nodes from the root down to the one of this id; None where no node of
        recent outlines had it. Cost: O(depth)."""
        keys: list[bytes] = []
        try:
            own = bytes.fromhex(name)
        except ValueError:
            return None
        while own:
            found = self._places.get(own)
            if found is None:
                return None
            own, key = found
            keys.append(key)
        return keys[-2::-1] if keys else None  # the root has no key

    def _node(
        self,
        node: Sighting,
        own: str,
        parent: str | None,
        fold: Fold | None,
        block_size: int,
        text: bool,
    ) -> dict[str, Any]:
        used, until = node.last_used, node.retained_until
        return {
            "id": own,
            "parent": parent,
            "namespace": namespace_json(node.namespace),
            "start": node.start,
            "tokens": node.tokens,
            "ghost_tokens": node.tokens - node.blocks * block_size,
            "blocks": node.blocks,
            "in_flight_blocks": node.in_flight,
            "locks": node.locks,
            "hits": node.hits,
            "used_at": None if used is None else round(self._to_unix_s(used), 2),
            "retained": node.retained,
            "retained_until": None if until is None else round(self._to_unix_s(until), 2),
            "victim": node.victim,
            "children": node.children,
            "folded": None if fold is None else _fold(fold),
            "text": self._text(node) if text else None,
        }

    def _text(self, node: Sighting) -> str:
        known = self._texts.get(node.head)
        if known is None:
            more = node.tokens * 4 > len(node.head)
            known = shortened(self._decode(unpack(node.head)), more=more)
            self._texts[node.head] = known
            if len(self._texts) > _MOST_TEXTS:
                self._texts.popitem(last=False)
        return known


def namespace_json(found: Namespace | None) -> dict[str, Any] | None:
    """A namespace without its salt, which is the client's secret."""
    if found is None:
        return None
    return {
        "tenant": found.tenant,
        "salted": found.salt is not None,
        "adapter": found.adapter,
        "weights": found.weights,
    }


def _fold(fold: Fold) -> dict[str, Any]:
    return {
        "nodes": fold.nodes,
        "tokens": fold.tokens,
        "blocks": fold.blocks,
        "hits": fold.hits,
        "at_least": not fold.is_whole,
    }
