"""Prefixes that an operator has made public: all tenants share them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from radix_engine.cache import DEFAULT, PrefixCache, pack
from server.errors import RequestRefused


@dataclass(frozen=True, slots=True)
class PublicPrefix:
    """``tokens``: how many first tokens are shared, whole blocks."""

    id: str
    tokens: int
    name: str | None


class PublicPrefixes:
    """On the engine's thread."""

    def __init__(self, cache: PrefixCache) -> None:
        self._cache = cache
        self._marked: dict[bytes, PublicPrefix] = {}

    def mark(self, tokens: Sequence[int], name: str | None) -> PublicPrefix:
        """Share the whole blocks of a prefix from now on. Again changes its name at most. Raises
        RequestRefused for less than a block."""
        size = self._cache.block_size
        shared = len(tokens) // size * size
        if not shared:
            raise RequestRefused(
                f"the prefix has {len(tokens)} tokens; only whole blocks of {size} are shared, so "
                "send a longer one",
                param="prompt",
                code="prefix_too_short",
            )
        run = pack(tokens[:shared])
        known = self._marked.get(run)
        if known is None:
            self._cache.mark_public(run, DEFAULT)
            known = PublicPrefix(f"pub-{secrets.token_hex(8)}", shared, name)
        self._marked[run] = PublicPrefix(known.id, shared, name or known.name)
        return self._marked[run]

    def listed(self) -> list[PublicPrefix]:
        """All of them, in the order in which they were marked."""
        return list(self._marked.values())

    def unmark(self, prefix_id: str) -> bool:
        """Share it no longer; False where there is none of this id."""
        for run, prefix in self._marked.items():
            if prefix.id == prefix_id:
                del self._marked[run]
                return self._cache.unmark_public(run, DEFAULT)
        return False
