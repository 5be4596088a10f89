"""The tree's operations, one at a time: each on the same kind of path in trees of any size.

Timed with ``perf_counter_ns``, since the operations take microseconds, and the thread's CPU clock
costs as much to read as the shorter ones take. Its own cost is subtracted. The sizes take turns, so
that a machine that becomes faster or slower in between does so for all of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns

from radix_engine.cache import Lease
from workloads.tree.build import (
    BLOCK,
    TOKEN_BYTES,
    GrownTree,
    Progress,
    publish,
    store,
    tokens,
)

LONG = 65_536  # tokens of the long prompts
DEPTH = 64  # nodes of a long prompt
SPLIT_RUN = 1_024  # tokens of an edge that is cut
ROUNDS = 10
PUBLISHED = 2  # of LONG tokens a round: each takes 4,096 blocks, for good
SPLITS = 20  # a round
_EVICTED = 4  # blocks, each a leaf
_SUMS = 100  # sums in one measurement, since one takes less than a microsecond


@dataclass(frozen=True, slots=True)
class Paths:
    """What the operations work on, beside the leaves.

    ``turns``: a prompt of LONG tokens over DEPTH nodes, none with a second branch, as turns leave
    it of which each began before the last one had ended. ``forks``: the same, with a second branch
    at each node, which was used last.
    ``one``: LONG tokens in one node. ``edges``: runs to cut in two.
    """

    tree: GrownTree
    turns: bytes
    forks: bytes
    one: bytes
    edges: list[bytes]
    held: list[Lease] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Operation:
    """``run`` carries it out ``times`` times and returns how many nanoseconds that took."""

    name: str
    label: str
    per_round: int
    run: Callable[[Paths], int]
    times: int = 1


def room_needed(rounds: int) -> int:
    """Blocks that `Paths` and so many rounds of operations take, beside the leaves."""
    per_prompt = LONG // BLOCK
    edges = SPLITS * rounds * (SPLIT_RUN // BLOCK)
    return (3 + PUBLISHED * rounds) * per_prompt + DEPTH + edges + 8


def lay_paths(tree: GrownTree, rounds: int) -> Paths:
    """Store what the operations need."""
    turns, forks, one = (tokens(tree.rng, LONG) for _ in range(3))
    turn = len(turns) // DEPTH
    for run in (turns, forks):
        # While a turn's lease is held, the next one cannot make its node longer.
        leases = [publish(tree.cache, run[:end]) for end in range(turn, len(run) + 1, turn)]
        for lease in leases:
            tree.cache.release(lease)
    # The deepest first, so that in the end each fork was last passed towards its side branch.
    for end in range(len(forks) - turn, 0, -turn):
        store(tree.cache, forks[:end] + tokens(tree.rng, BLOCK))
    store(tree.cache, one)
    edges = [tokens(tree.rng, SPLIT_RUN) for _ in range(SPLITS * rounds)]
    for edge in edges:
        store(tree.cache, edge)
    return Paths(tree, turns, forks, one, edges)


def _match(paths: Paths, run: bytes) -> int:
    cache, prompt = paths.tree.cache, run + bytes(TOKEN_BYTES)
    start = perf_counter_ns()
    match = cache.match(prompt)
    taken = perf_counter_ns() - start
    if match.num_tokens != LONG:
        raise RuntimeError(f"the match covers {match.num_tokens} tokens instead of {LONG}")
    return taken


def _publish(paths: Paths) -> int:
    cache, run = paths.tree.cache, tokens(paths.tree.rng, LONG)
    lease = cache.lease(cache.match(run))
    blocks = cache.allocate(LONG // BLOCK)
    if blocks is None:
        raise RuntimeError("the pool of the measured cache is too small")
    start = perf_counter_ns()
    cache.publish(lease, run, blocks)
    taken = perf_counter_ns() - start
    paths.held.append(lease)  # so that these are never the victims of an eviction
    return taken


def _split(paths: Paths) -> int:
    cache, edge = paths.tree.cache, paths.edges.pop()
    prompt = edge[: len(edge) // 2] + tokens(paths.tree.rng, BLOCK)
    match = cache.match(prompt)
    start = perf_counter_ns()
    lease = cache.lease(match)
    taken = perf_counter_ns() - start
    if lease.num_tokens != SPLIT_RUN // 2:
        raise RuntimeError(f"the edge was cut at {lease.num_tokens} tokens, not in the middle")
    cache.release(lease)
    return taken


def _lease_and_release(paths: Paths) -> int:
    cache = paths.tree.cache
    match = cache.match(paths.turns + bytes(TOKEN_BYTES))
    start = perf_counter_ns()
    cache.release(cache.lease(match))
    return perf_counter_ns() - start


def _evict(paths: Paths) -> int:
    paths.tree.cache.expire()  # as at the start of every step
    taken = _timed_eviction(paths)
    _store_as_many(paths)
    return taken


def _expire(paths: Paths) -> int:
    paths.tree.cache.expire()
    _timed_eviction(paths)
    start = perf_counter_ns()
    paths.tree.cache.expire()
    taken = perf_counter_ns() - start
    _store_as_many(paths)
    return taken


def _timed_eviction(paths: Paths) -> int:
    cache = paths.tree.cache
    before = cache.counters.evicted_blocks
    start = perf_counter_ns()
    cache.evict(_EVICTED)
    taken = perf_counter_ns() - start
    if cache.counters.evicted_blocks - before != _EVICTED:
        raise RuntimeError(f"{_EVICTED} blocks were to be evicted")
    return taken


def _store_as_many(paths: Paths) -> None:
    for _ in range(_EVICTED):
        paths.tree.store_leaf()


def _sum(paths: Paths) -> int:
    problem = paths.tree.cache.pool.sum_problem
    start = perf_counter_ns()
    for _ in range(_SUMS):
        problem()
    return perf_counter_ns() - start


OPERATIONS = (
    Operation("match_64_nodes", "match 64k, 64 turns", 30, lambda p: _match(p, p.turns)),
    Operation("match_64_forks", "match 64k, 64 forks", 30, lambda p: _match(p, p.forks)),
    Operation("match_1_node", "match 64k, 1 node", 30, lambda p: _match(p, p.one)),
    Operation("publish", "publish 64k", PUBLISHED, _publish),
    Operation("split", "split an edge of 1k", SPLITS, _split),
    Operation("lease_release", "lease + release, depth 64", 40, _lease_and_release),
    # Fewer than there are leaves, in the smallest tree too: what is older than `Paths`.
    Operation("evict_4", "evict 4 blocks off 4 leaves", 15, _evict),
    Operation("expire_4", "a step's expire, 4 ghosts dropped", 5, _expire),
    Operation("sum", "audit sum", 3, _sum, _SUMS),
)


def measure(
    all_paths: Sequence[Paths], rounds: int, progress: Progress
) -> list[dict[str, list[float]]]:
    """Microseconds of each operation, by name, for each of ``all_paths``."""
    own = timer_cost_ns()
    samples: list[dict[str, list[float]]] = [{op.name: [] for op in OPERATIONS} for _ in all_paths]
    for _ in range(rounds):
        for paths, taken in zip(all_paths, samples, strict=True):
            for operation in OPERATIONS:
                for _ in range(operation.per_round):
                    nanoseconds = max(0, operation.run(paths) - own) / operation.times
                    taken[operation.name].append(nanoseconds / 1000)
            progress(1)
    return samples


def timer_cost_ns() -> int:
    """What reading the clock twice adds to a measurement."""
    spans = []
    for _ in range(1001):
        start = perf_counter_ns()
        spans.append(perf_counter_ns() - start)
    return int(statistics.median(spans))
