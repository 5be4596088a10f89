"""Namespaces: whose prefixes may be shared with whom.

Two namespaces never share a block, and nothing said about one shows another's tokens or lengths.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256

# A namespace's key stands among the keys of a node's children, which are runs of whole blocks: it
# begins with a token id that no vocabulary has, and its length is no multiple of a token's.
_KEY_START = b"\xff\xff\xff\xff\xff"


@dataclass(frozen=True, slots=True)
class Namespace:
    """Where a request's prefixes live: whoever has an equal one shares them.

    ``tenant``: who asks, as the server knows it (None: nobody in particular). ``salt``: a secret
    of the client's own. ``adapter``: the adapter's name, with its version where it can change.
    ``weights``: counts the changes of the model's weights in this process; K and V of older weights
    are never found again. Raises ValueError for an empty name: it would look like a separation and
    be none.
    """

    tenant: str | None = None
    salt: str | None = None
    adapter: str | None = None
    weights: int = 0
    key: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("tenant", "salt", "adapter"):
            if getattr(self, name) == "":
                raise ValueError(f"an empty {name} separates nothing; leave it out or name one")
        object.__setattr__(self, "key", _KEY_START + self.digest())

    @property
    def shared(self) -> Namespace:
        """The namespace of the paths that are public for these weights and this adapter."""
        return Namespace(adapter=self.adapter, weights=self.weights)

    def is_told_to(self, tenant: str | None) -> bool:
        """Whether a tenant (None: nobody in particular) may know of what is stored here. A salt
        without a tenant is the secret of whoever knows it, so that such a namespace is told to
        operators only."""
        return self.tenant == tenant and (tenant is not None or self.salt is None)

    def digest(self) -> bytes:
        """SHA-256 over all fields, each with its type and length: 32 bytes, equal in every
        process."""
        parts = []
        for value in (self.tenant, self.salt, self.adapter, str(self.weights)):
            encoded = b"" if value is None else value.encode("utf-8", "surrogatepass")
            kind = b"-" if value is None else b"s"
            parts.append(kind + len(encoded).to_bytes(8, "little") + encoded)
        return sha256(b"".join(parts)).digest()


DEFAULT = Namespace()
