"""The prefixes that another process stores, rebuilt from its events."""

from __future__ import annotations

from radix_engine.cache.block_hash import (
    HASH_BYTES,
    block_hashes,
    chain,
    chain_start,
    continuation_start,
    split_hashes,
)
from radix_engine.cache.events import Event, Removed, Snapshot, Stored
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.token_run import TOKEN_BYTES


class OutOfStep(RuntimeError):
    """This event cannot follow what the mirror knows; it was not applied. Load a snapshot."""


class TreeMirror:
    """The hashes of all stored blocks, as one stream tells of them.

    A hash stands for its whole prefix, so a dictionary is all the tree that is needed. One thread
    at a time. To keep up, ``apply`` each event of ``stream.since(mirror.next_sequence,
    mirror.stream)``, and ``load`` a snapshot where either raises. About 150 bytes a block.
    ``stream``: the identity of the stream that it follows; None before the first event or snapshot.
    """

    def __init__(self, block_size: int) -> None:
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1 token, not {block_size}")
        self.block_size = block_size
        self._block_bytes = block_size * TOKEN_BYTES
        self._blocks: dict[bytes, int | None] = {}
        self._next = 1
        self.stream: str | None = None

    @property
    def next_sequence(self) -> int:
        """The number of the event to be applied next."""
        return self._next

    def apply(self, event: Event) -> None:
        """Follow one event. Cost: O(its blocks).

        Raises OutOfStep when it is of another stream or not the next one, stores what is stored
        already or removes what is not, ValueError when its parts do not fit together. Nothing is
        changed then.
        """
        if self.stream not in (None, event.stream):
            raise OutOfStep(
                f"the event is of stream {event.stream}, but {self.stream} was followed so far, "
                "and its numbers do not go on there: load a snapshot"
            )
        if event.sequence != self._next:
            raise OutOfStep(
                f"event {event.sequence} came, but {self._next} is the next: "
                + ("some were lost; " if event.sequence > self._next else "it was applied before; ")
                + f"ask for those since {self._next}, or load a snapshot"
            )
        if isinstance(event, Stored):
            self._add(self._blocks, event)
        elif isinstance(event, Removed):
            self._remove(event)
        else:
            self._blocks.clear()
        self._next += 1
        self.stream = event.stream

    def load(self, snapshot: Snapshot) -> None:
        """Forget everything and start from a snapshot. Raises as ``apply`` does, and changes
        nothing then. Cost: O(blocks)."""
        blocks: dict[bytes, int | None] = {}
        for entry in snapshot.stored:
            if entry.sequence != 0:
                raise ValueError(f"a snapshot's entries have sequence 0, not {entry.sequence}")
            if entry.stream != snapshot.stream:
                raise ValueError(
                    f"an entry is of stream {entry.stream}, its snapshot of {snapshot.stream}"
                )
            self._add(blocks, entry)
        self._blocks = blocks
        self._next = snapshot.sequence + 1
        self.stream = snapshot.stream

    def match(self, tokens: bytes, namespace: Namespace, public_tokens: int = 0) -> int:
        """How many of these tokens are stored, in whole blocks from the first one on.

        ``public_tokens``: how many of them, rounded down to whole blocks, lie on a public path of
        ``namespace.shared``. A tenant's stream does not tell of public paths, but of the tenant's
        own blocks below them, and these are never there without the path. Cost: one hash a block of
        the public path and of what is stored after it.
        """
        above = 0
        if namespace != namespace.shared:
            above = min(public_tokens, len(tokens) // TOKEN_BYTES) // self.block_size
        if not above:
            return self.block_size * self._known(chain_start(namespace), tokens)
        cut = above * self._block_bytes
        path = block_hashes(chain_start(namespace.shared), tokens[:cut], self.block_size)
        own = self._known(continuation_start(path[-HASH_BYTES:], namespace), tokens[cut:])
        if own:
            return self.block_size * (above + own)
        missing = (i for i, one in enumerate(split_hashes(path)) if one not in self._blocks)
        return self.block_size * next(missing, above)

    def blocks(self) -> dict[bytes, int | None]:
        """A copy: the hash of each stored block and the block's id (None in a tenant's scope)."""
        return dict(self._blocks)

    def _known(self, parent: bytes, run: bytes) -> int:
        known = self._blocks
        count = 0
        for block_hash in chain(parent, run, self.block_size):
            if block_hash not in known:
                break
            count += 1
        return count

    def _add(self, known: dict[bytes, int | None], event: Stored) -> None:
        hashes = split_hashes(event.hashes)
        if len(event.run) != len(hashes) * self._block_bytes:
            raise ValueError(
                f"run has {len(event.run) // TOKEN_BYTES} tokens for {len(hashes)} hashes, and "
                f"this mirror's blocks have {self.block_size}: use the cache's block size"
            )
        ids: tuple[int | None, ...] = event.blocks or (None,) * len(hashes)
        if len(ids) != len(hashes):
            raise ValueError(f"{len(ids)} blocks do not belong to {len(hashes)} hashes")
        if not known.keys().isdisjoint(hashes):
            raise OutOfStep("a block was stored that is stored already: load a snapshot")
        known.update(zip(hashes, ids, strict=True))

    def _remove(self, event: Removed) -> None:
        known = self._blocks
        gone = set(split_hashes(event.hashes))
        if not known.keys() >= gone:
            raise OutOfStep("a block was removed that is not stored: load a snapshot")
        for block_hash in gone:
            del known[block_hash]
