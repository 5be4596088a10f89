"""Payloads: 4 bytes a token that go with a node's run, such as a log-probability as float32.

A node has a payload as long as its run, or none; where nothing was given for a token it is
not-a-number, until a later request that stores the same tokens brings a value. What grows is a
bytearray, so that a prompt that is stored in chunks is not copied for each of them.
"""

from __future__ import annotations

import numpy as np

from radix_engine.cache.node import Node
from radix_engine.cache.token_run import TOKEN_BYTES

# A float32 that is not a number, little-endian or big: all bits of its exponent and fraction.
MISSING_PAYLOAD = b"\xff\xff\xff\xff"


def payload_of(node: Node) -> bytes | bytearray:
    """What was given for the node's run; not-a-number where nothing was."""
    return node.payload or MISSING_PAYLOAD * (len(node.run) // TOKEN_BYTES)


def check_payload(payload: bytes, tokens: int) -> None:
    """Refuse a payload that does not fit so many tokens."""
    if payload and len(payload) != tokens * TOKEN_BYTES:
        raise ValueError(f"{len(payload)} bytes of payload for {tokens} tokens")


def fill(node: Node, payload: bytes) -> None:
    """Take over what is given for the node's whole run, where nothing was given before. What was
    stays: it is what others have been told. Cost: O(its length)."""
    before = node.payload
    if not before:
        node.payload = payload
    elif MISSING_PAYLOAD in before:
        known = np.frombuffer(before, np.uint32)
        given = np.frombuffer(payload, np.uint32)
        missing = np.frombuffer(MISSING_PAYLOAD, np.uint32)[0]
        filled = np.where(known == missing, given, known).tobytes()
        node.payload = filled if isinstance(before, bytes) else bytearray(filled)


def end_with(node: Node, start: int, payload: bytes) -> None:
    """From byte ``start`` of the run on, to its end, this is the payload. Cost: O(its length), and
    once one copy of what is before it."""
    before = payload_of(node)
    if isinstance(before, bytes):
        before = bytearray(before)
    before[start:] = payload
    node.payload = before
