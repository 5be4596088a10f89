"""Branches: several answers to one prompt, which is computed once.

::

    parent    [ full blocks, leased from the tree ][ tail, in part full ]
                         | the same lease again        | copied rows
    branch    [ the same blocks                   ][ a tail of its own  ]

A branch forks off when a token is sampled: its parent goes on with one token, it with another.
"""

from __future__ import annotations

from scheduler.budget import blocks_for
from scheduler.holding import Cache
from scheduler.plan import RowCopy
from scheduler.request import Request


def fork(cache: Cache, parent: Request, branch: Request) -> list[RowCopy] | None:
    """Let a branch hold what its parent has computed; the copies that the next step begins with.

    All that the parent's lease covers is shared. Its tail is copied: rows of one block for a
    request that stores what it computes, all of its blocks for one that does not. None, and nothing
    changes, when too few blocks are available. Cost: the lease's depth, and its blocks.
    """
    size, lease = cache.block_size, parent.lease
    assert lease is not None
    computed = parent.num_computed_tokens
    blocks = cache.allocate(blocks_for(computed - lease.num_tokens, size))
    if blocks is None:
        return None
    branch.lease = cache.share(lease)
    branch.block_table = branch.lease.blocks()
    branch.num_computed_tokens = computed
    sources = parent.private_tail(size)
    copies = []
    for index, (source, target) in enumerate(zip(sources, blocks, strict=False)):
        rows = min(size, computed - lease.num_tokens - index * size)
        copies.append(RowCopy(source, target, rows))
    branch.block_table.extend(blocks)
    return copies


def go_on_like(parent: Request, branch: Request) -> None:
    """Give a branch the tokens and the figures of its parent."""
    branch.tokens = parent.tokens[:]
    branch.num_prompt_tokens, branch.run = parent.num_prompt_tokens, parent.run
    branch.arrival, branch.arrived_s = parent.arrival, parent.arrived_s
    branch.cached_tokens, branch.match_end = parent.cached_tokens, parent.match_end
    branch.admitted_s = parent.admitted_s
    branch.payload = None if parent.payload is None else parent.payload[:]
    # Of a parent that was preempted it is more than what is computed now.
    branch.most_computed_tokens = max(parent.most_computed_tokens, parent.num_computed_tokens)
