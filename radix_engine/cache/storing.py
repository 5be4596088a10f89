"""Handing computed blocks over to the tree.

::

    |  leased from the tree   |  computed by this request, published   |  private tail  |
    0                   cached tokens                          lease.num_tokens    num_computed
       shared, read-only            shared, read-only             written by it alone

Where another request stored the same tokens first, its blocks stay (they are the canonical ones)
and the publisher takes them over.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from radix_engine.cache.block_pool import OwnershipError
from radix_engine.cache.hash_chain import tell_stored
from radix_engine.cache.lease import Lease
from radix_engine.cache.leasing import pin_step, top_of
from radix_engine.cache.node import Node, ghost_blocks
from radix_engine.cache.payload import MISSING_PAYLOAD, check_payload, end_with, fill
from radix_engine.cache.token_run import TOKEN_BYTES, common_prefix_bytes, token_array
from radix_engine.cache.tree import Tree


def publish(tree: Tree, lease: Lease, run: bytes, blocks: array[int], payload: bytes) -> array[int]:
    """Store ``run`` after the lease's tokens. See `PrefixCache.publish`."""
    check(tree, lease, run, blocks)
    check_payload(payload, len(run) // TOKEN_BYTES)
    if lease.in_flight_tokens:
        raise OwnershipError("commit or withdraw what is in flight before publishing more")
    if lease.node.in_flight:
        raise OwnershipError("what this lease stands on is in flight: commit that first")
    if tree.pool.in_flight_blocks or tree.pool.quarantined:
        count = min(_storable(tree, lease, run), tree.pool.before_quarantined(blocks))
        run, blocks = run[: count * tree.block_bytes], blocks[:count]
        payload = payload[: len(run)]
    if not run:
        return token_array()
    tree.pool.publish(blocks)  # refuses before anything has changed
    below = _start(lease)
    is_new = below is lease.node and run[: tree.block_bytes] not in below.children
    if is_new and not 0 < _to_boundary(lease) < len(run):
        end = _append(tree, lease, lease.node, run, blocks, payload, in_flight=False)
        _cover(tree, lease, end, len(run) // TOKEN_BYTES)
        return blocks
    store = _Store(tree, lease, in_flight=False)
    for start, part in _parts(tree, lease, run):
        first = start // tree.block_bytes
        count = len(part) // tree.block_bytes
        store.add(part, blocks[first : first + count], payload[start : start + len(part)])
    _cover(tree, lease, store.node, len(run) // TOKEN_BYTES)
    if store.duplicates:
        tree.counters.duplicate_blocks += len(store.duplicates)
        tree.pool.free_from_tree(store.duplicates)
    return store.table


def announce(tree: Tree, lease: Lease, run: bytes, blocks: array[int]) -> bool:
    """Store ``run`` as in flight. See `PrefixCache.announce`."""
    check(tree, lease, run, blocks)
    if not run or lease.root is not tree.root:
        return False
    below = _start(lease)
    child = None if below is None else below.children.get(run[: tree.block_bytes])
    if 0 < _to_boundary(lease) < len(run) or (child is not None and child.blocks):
        return False
    if tree.pool.before_quarantined(blocks) < len(blocks):
        return False
    tree.pool.announce(blocks)
    tokens = len(run) // TOKEN_BYTES
    if below is lease.node and child is None:
        _cover(tree, lease, _append(tree, lease, below, run, blocks, b"", in_flight=True), tokens)
    else:
        store = _Store(tree, lease, in_flight=True)
        store.add(run, blocks, b"")
        _cover(tree, lease, store.node, tokens)
    lease.in_flight_tokens += tokens
    return True


def check(tree: Tree, lease: Lease, run: bytes, blocks: array[int]) -> None:
    """Refuse what cannot be stored, before anything changes."""
    if lease.released:
        raise OwnershipError("a released lease cannot publish")
    if len(run) != len(blocks) * tree.block_bytes:
        raise ValueError(
            f"{len(run) // TOKEN_BYTES} tokens do not fill {len(blocks)} blocks "
            f"of {tree.block_size}"
        )
    if tree.detached and top_of(lease.node) is not lease.root:
        raise OwnershipError("a lease on something that was withdrawn cannot publish")


class _Store:
    """One walk down from the end of a lease, storing as it goes."""

    def __init__(self, tree: Tree, lease: Lease, *, in_flight: bool) -> None:
        self.tree = tree
        self.lease = lease
        self.in_flight = in_flight
        self.node = lease.node
        self.position = lease.num_tokens
        self.table = token_array()
        self.duplicates = token_array()

    def add(self, run: bytes, blocks: array[int], payload: bytes) -> None:
        """Store a run of one namespace at the position reached so far."""
        tree, step = self.tree, self.tree.block_bytes
        node = self._enter()
        at = 0
        while at < len(run):
            child = node.children.get(run[at : at + step])
            if child is None:
                break
            shared = common_prefix_bytes(run, at, child.run, step)
            if shared < len(child.run):
                child = tree.split(child, shared)
            if child.retained and ghost_blocks(child, step):  # what was evicted of it is not
                shared = len(child.blocks) * step
                child = tree.split(child, shared)
            pin_step(tree, child)
            first, have = at // step, len(child.blocks)
            self.table.extend(child.blocks)
            self.duplicates.extend(blocks[first : first + have])
            if have < shared // step:
                self._revive(child, blocks[first + have : first + shared // step])
            if payload:
                fill(child, payload[at : at + shared])
            node = child
            at += shared
        if at < len(run):
            rest = blocks[at // step :]
            self.table.extend(rest)
            node = _append(
                tree, self.lease, node, run[at:], rest, payload[at:], in_flight=self.in_flight
            )
        self.node = node
        self.position += len(run) // TOKEN_BYTES

    def _enter(self) -> Node:
        """The node below which the next tokens belong: a namespace's, where one begins here."""
        lease, node = self.lease, self.node
        public = lease.public_tokens
        if self.position == public:  # also 0, for a prompt that is not public at all
            namespace = lease.namespace
        elif self.position == 0:
            namespace = lease.namespace.shared
        else:
            return node
        below = self.tree.namespace_below(node, namespace)
        below.pins += 1
        return below

    def _revive(self, node: Node, blocks: array[int]) -> None:
        """Store the first blocks of a ghost part again: all of it, since the node ends with it."""
        tree = self.tree
        emptied = not node.blocks
        first = len(node.blocks)
        node.blocks.extend(blocks)
        tree.ghosts.revived(node, len(blocks))
        if self.in_flight:
            node.in_flight = len(blocks)  # the cause stays, for the case that it is withdrawn
        else:
            node.cause = None
        if emptied:
            node.hits = node.rank = 0  # for the eviction rule it is a new one
            node.born = tree.clock()
            tree.child_stored(node)
        if not self.in_flight:
            _computed(tree, self.lease, node, first)
        self.table.extend(blocks)


def _append(
    tree: Tree,
    lease: Lease,
    node: Node,
    run: bytes,
    blocks: array[int],
    payload: bytes,
    *,
    in_flight: bool,
) -> Node:
    """A new run, pinned by this lease, below ``node``, where nothing begins like it; or ``node``
    made longer, where the lease alone ends there and nothing hangs below."""
    if (
        node is lease.node
        and node.pins == 1
        and node.run
        and not node.children
        and not node.retained
        and node.cause is None  # a ghost that is in flight again may become one again, alone
    ):
        if node.payload or payload:
            missing = MISSING_PAYLOAD * (len(run) // TOKEN_BYTES)
            end_with(node, len(node.run), payload or missing)
        if isinstance(node.run, bytes):
            node.run = bytearray(node.run)
        node.run += run
        first = len(node.blocks)
        node.blocks.extend(blocks)
        if in_flight:
            node.in_flight += len(blocks)
        else:
            _computed(tree, lease, node, first)
        return node
    child = tree.add_child(node, run, blocks[:], len(blocks) if in_flight else 0)
    child.pins = 1
    child.payload = payload
    if not in_flight:
        _computed(tree, lease, child, 0)
    return child


def _cover(tree: Tree, lease: Lease, end: Node, tokens: int) -> None:
    """The lease covers ``tokens`` more, down to ``end``."""
    lease.node = end
    lease.num_tokens += tokens
    tree.version += 1
    tree.leaves.rule.stored(lease, tree.clock())
    if lease.root is not tree.root and lease.root not in tree.detached:
        tree.detached.append(lease.root)


def _computed(tree: Tree, lease: Lease, node: Node, first: int) -> None:
    """The blocks of a node from index ``first`` on are stored, and computed."""
    if lease.root is tree.root:
        if not first:
            tree.count_head(node, 1)
        tell_stored(tree, node, first)


def _parts(tree: Tree, lease: Lease, run: bytes) -> Iterator[tuple[int, bytes]]:
    """The run cut where the public path ends; each part with its place in the run, in bytes."""
    boundary = _to_boundary(lease)
    if 0 < boundary < len(run):
        yield 0, run[:boundary]
        yield boundary, run[boundary:]
    else:
        yield 0, run


def _to_boundary(lease: Lease) -> int:
    """Bytes from the end of a lease to that of the public path; negative beyond it."""
    return (lease.public_tokens - lease.num_tokens) * TOKEN_BYTES


def _start(lease: Lease) -> Node | None:
    """Where the next tokens are looked for, if there is such a place already."""
    if lease.num_tokens == lease.public_tokens:
        return lease.node.children.get(lease.namespace.key)
    if lease.num_tokens == 0:
        return lease.node.children.get(lease.namespace.shared.key)
    return lease.node


def _storable(tree: Tree, lease: Lease, run: bytes) -> int:
    """How many blocks of the run come before one that another request has in flight, or that is
    stored and in quarantine."""
    node, at, step = _start(lease), 0, tree.block_bytes
    boundary = _to_boundary(lease)
    while node is not None and at < len(run):
        if at and at == boundary:
            node = node.children.get(lease.namespace.key)
            if node is None:
                break
        end = boundary if at < boundary else len(run)
        child = node.children.get(run[at : at + step])
        if child is None:
            break
        shared = min(end - at, common_prefix_bytes(run, at, child.run, step))
        computed = (len(child.blocks) - child.in_flight) * step
        if child.in_flight and shared > computed:
            return (at + computed) // step
        sound = tree.pool.before_quarantined(child.blocks)
        if sound < min(len(child.blocks), shared // step):
            return at // step + sound
        at += shared
        if shared < len(child.run) or ghost_blocks(child, step):
            break
        node = child
    return len(run) // step
