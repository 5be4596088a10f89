"""A flat prefix cache: full blocks found by a hash over all tokens up to their end. No tree.

The design is that of vLLM's automatic prefix caching, in our own code: a dictionary from a block's
key to the block, pins that are counted block by block, and one queue of cached blocks that nobody
pins, least recently used first. A request's last block enters the queue before its first, so that
what only it can use goes before what it shares.

What it does not have, and the radix tree has: matches that end inside a block (a partial tail is no
block, nothing is ever copied), memory of what was evicted, reasons for a miss, priorities,
retention, paths that are public to all namespaces. It compares hashes, not tokens: were two
different runs to get one key, the later request would be served the other's K and V, and nothing
would notice. With ``sha256`` nobody can bring that about; ``xxh3_128`` is for clients who trust
each other, since its collisions can be made on purpose. Every look-up hashes the prompt again,
up to the first block that is not stored.
"""

from radix_engine.cache.flat.flat_cache import FlatCache
from radix_engine.cache.flat.flat_lease import FlatLease, FlatMatch

__all__ = ["FlatCache", "FlatLease", "FlatMatch"]
