"""Events as plain data for JSON, and back.

    {"type": "stored", "stream": "<the stream's identity>", "sequence": 1,
     "namespace": {"tenant": null, "salt": null, "adapter": null, "weights": 0},
     "parent": "<64 hex digits>", "tokens": [1, 2, ...], "blocks": [7, ...], "hashes": ["..."]}
    {"type": "removed", "stream": "...", "sequence": 2, "namespace": {...}, "hashes": ["...", ...]}
    {"type": "cleared", "stream": "...", "sequence": 3}

A salt is a client's secret: whoever gets a stream of its tenant's, or of ALL, gets it too.
"""

from __future__ import annotations

from collections.abc import Mapping

from radix_engine.cache.block_hash import HASH_BYTES, split_hashes
from radix_engine.cache.events import Cleared, Event, Removed, Stored
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.token_run import pack, unpack


def to_json(event: Event) -> dict[str, object]:
    """An event as a dictionary of lists, texts, numbers and None."""
    if isinstance(event, Cleared):
        return {"type": "cleared", "stream": event.stream, "sequence": event.sequence}
    namespace = event.namespace
    fields: dict[str, object] = {
        "type": "removed",
        "stream": event.stream,
        "sequence": event.sequence,
        "namespace": {
            "tenant": namespace.tenant,
            "salt": namespace.salt,
            "adapter": namespace.adapter,
            "weights": namespace.weights,
        },
        "hashes": [block_hash.hex() for block_hash in split_hashes(event.hashes)],
    }
    if isinstance(event, Stored):
        fields["type"] = "stored"
        fields["parent"] = event.parent.hex()
        fields["tokens"] = unpack(event.run)
        fields["blocks"] = list(event.blocks)
    return fields


def from_json(data: Mapping[str, object]) -> Event:
    """The event again. Raises ValueError, naming the field, for what ``to_json`` cannot have made;
    fields that it does not know are ignored."""
    kind = data.get("type")
    stream, sequence = _text(data, "stream"), _integer(data, "sequence")
    if kind == "cleared":
        return Cleared(sequence, stream=stream)
    if kind not in ("stored", "removed"):
        raise ValueError(f"type must be stored, removed or cleared, not {kind!r}")
    namespace = _namespace(data.get("namespace"))
    hashes = [_hash(value, "hashes") for value in _list(data, "hashes")]
    if not hashes:
        raise ValueError("hashes must name at least one block")
    joined = b"".join(hashes)
    if kind == "removed":
        return Removed(sequence, namespace, joined, stream=stream)
    tokens, blocks = _integers(data, "tokens"), _integers(data, "blocks")
    if not tokens or len(tokens) % len(hashes):
        raise ValueError(f"{len(tokens)} tokens do not fill {len(hashes)} blocks of equal size")
    if blocks and len(blocks) != len(hashes):
        raise ValueError(f"blocks has {len(blocks)} ids for {len(hashes)} hashes")
    try:
        run = pack(tokens)
    except OverflowError:
        raise ValueError("tokens must be int32") from None
    parent = _hash(data.get("parent"), "parent")
    return Stored(sequence, namespace, parent, run, tuple(blocks), joined, stream=stream)


def _namespace(value: object) -> Namespace:
    if not isinstance(value, Mapping):
        raise ValueError("namespace must be a mapping of tenant, salt, adapter and weights")
    tenant, salt, adapter = (_name(value, name) for name in ("tenant", "salt", "adapter"))
    return Namespace(tenant, salt, adapter, _integer(value, "weights"))


def _name(data: Mapping[str, object], name: str) -> str | None:
    # One that is left out is no None: it would be taken for a wider namespace.
    value = data.get(name, 0)
    if value is None or isinstance(value, str):
        return value
    raise ValueError(f"{name} must be a text or null")


def _text(data: Mapping[str, object], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} must be a text that is not empty")
    return value


def _integer(data: Mapping[str, object], name: str) -> int:
    value = data.get(name)
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} must be a whole number from 0 on")
    return value


def _integers(data: Mapping[str, object], name: str) -> list[int]:
    values = _list(data, name)
    numbers = [value for value in values if type(value) is int]
    if len(numbers) != len(values):
        raise ValueError(f"{name} must be whole numbers")
    return numbers


def _list(data: Mapping[str, object], name: str) -> list[object]:
    value = data.get(name)
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list")
    return value


def _hash(value: object, name: str) -> bytes:
    try:
        decoded = bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        decoded = b""
    if len(decoded) != HASH_BYTES:
        raise ValueError(f"{name} must be hashes of {2 * HASH_BYTES} hex digits")
    return decoded
