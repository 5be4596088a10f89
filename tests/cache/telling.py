"""Small helpers of the tests of events: storing through a hub, and following a stream."""

from __future__ import annotations

import struct
from collections.abc import Callable
from hashlib import sha256
from itertools import count

from radix_engine.cache.block_hash import chain_start
from radix_engine.cache.event_hub import EventHub
from radix_engine.cache.events import EventStream
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.token_run import pack
from radix_engine.cache.tree_mirror import TreeMirror

SIZE = 2
PUBLIC = Namespace()
ALICE, BOB = Namespace(tenant="alice"), Namespace(tenant="bob")


def named() -> Callable[[], str]:
    """Identities s1, s2 and so on, for one hub's streams."""
    numbers = count(1)
    return lambda: f"s{next(numbers)}"


def expected_chain(parent: bytes, tokens: list[int], size: int = SIZE) -> list[bytes]:
    hashes = []
    for start in range(0, len(tokens), size):
        parent = sha256(parent + struct.pack(f"<{size}i", *tokens[start : start + size])).digest()
        hashes.append(parent)
    return hashes


def store(
    hub: EventHub, namespace: Namespace, tokens: list[int], first_block: int = 0
) -> list[bytes]:
    """Store a namespace's first blocks; their hashes, one by one."""
    size = len(tokens) // hub.block_size
    blocks = range(first_block, first_block + size)
    joined = hub.stored(namespace, chain_start(namespace), pack(tokens), blocks)
    assert len(joined) == 32 * size
    return [joined[32 * i : 32 * i + 32] for i in range(size)]


def follow(mirror: TreeMirror, stream: EventStream) -> None:
    for event in stream.since(mirror.next_sequence, mirror.stream):
        mirror.apply(event)


def mirror_of(stream: EventStream, size: int = SIZE) -> TreeMirror:
    mirror = TreeMirror(size)
    follow(mirror, stream)
    return mirror
