"""Tenants: who may send requests, and how many at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """How many requests of a tenant may be in flight (come and not ended), and how many of these
    may wait to be started. None: any number."""

    max_in_flight: int | None = None
    max_queued: int | None = None


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """Whose key it is. ``tenant`` None: an operator's who is no tenant."""

    tenant: str | None
    is_operator: bool = False


@dataclass(frozen=True, slots=True)
class Keys:
    """All keys and limits. ``holders``: by the SHA-256 of each key, 32 bytes. The keys themselves
    are not kept."""

    holders: Mapping[bytes, KeyHolder] = field(repr=False)
    limits: Mapping[str, TenantLimits]

    def holder_of(self, key: str) -> KeyHolder | None:
        """Who has this key; None for nobody.

        Only hashes are compared, so how long it takes says nothing about the keys that there are.
        """
        return self.holders.get(key_hash(key))

    def limits_of(self, tenant: str | None) -> TenantLimits:
        """A tenant's limits; none for one without."""
        return _NO_LIMITS if tenant is None else self.limits.get(tenant, _NO_LIMITS)


_NO_LIMITS = TenantLimits()


def key_hash(key: str) -> bytes:
    """A key as it is looked up: its SHA-256."""
    return sha256(key.encode("utf-8", "surrogatepass")).digest()
