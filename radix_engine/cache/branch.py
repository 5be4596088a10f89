"""How the stored branch goes on that a prompt has left."""

from __future__ import annotations

from typing import NamedTuple

from radix_engine.cache.namespace import Namespace
from radix_engine.cache.parting import stored_after
from radix_engine.cache.prefix_cache import PrefixCache
from radix_engine.cache.token_run import TOKEN_BYTES

MOST_TOKENS = 1 << 15


class Branch(NamedTuple):
    """``position``: the first token at which the prompt and the branch differ. ``run``: the
    branch's tokens from there on, packed."""

    position: int
    run: bytes


def branch_after(
    cache: PrefixCache, run: bytes, namespace: Namespace, position: int, most: int = MOST_TOKENS
) -> Branch | None:
    """The branch of its own namespace that a prompt has left near token ``position``, where its
    match ended; it may have been stored itself since. At most about ``most`` tokens of the branch,
    along what was used last where it forks. None where the branch is not there any more.

    Changes nothing. Cost: that of a match, a look at a node's children, and a copy of the tokens.
    """
    public = cache.public.covered_bytes(run, namespace) if cache.public else 0
    found = stored_after(cache._tree, run, namespace, public, position, most * TOKEN_BYTES)
    return None if found is None else Branch(found[0] // TOKEN_BYTES, found[1])
