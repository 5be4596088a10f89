"""Requests for the tests of what prompts share: in a few letters, one a block of four tokens."""

from __future__ import annotations

from radix_engine.cache import DEFAULT, CacheMode, Namespace
from scheduler.order import Order, make_order
from scheduler.prompt_trie import PromptTrie
from scheduler.request import Request
from scheduler.trie_node import TrieNode

SIZE = 4


def ask(
    arrival: int,
    letters: str,
    *,
    namespace: Namespace = DEFAULT,
    mode: CacheMode = CacheMode.DEFAULT,
    priority: int = 0,
    arrived_s: float = 0.0,
) -> Request:
    """A request whose path are these letters: its last token is one of its own."""
    prompt = [ord(letter) for letter in letters for _ in range(SIZE)]
    request = Request(arrival, [*prompt, 1], 1, namespace=namespace, mode=mode, priority=priority)
    request.arrival = arrival
    request.arrived_s = arrived_s
    return request


def new(name: str) -> tuple[PromptTrie, Order]:
    """An empty trie and this order over it."""
    trie = PromptTrie(SIZE)
    return trie, make_order(name, trie)


def arrival_of(request: Request | None) -> int | None:
    return None if request is None else request.arrival


def never(node: TrieNode) -> int:
    raise AssertionError("the nodes that others share tell what is cached")


def waits(trie: PromptTrie, order: Order, *requests: Request, cached: int = 0) -> None:
    """The requests arrive; a look-up finds so many tokens cached."""
    for request in requests:
        trie.add(request, lambda node: cached)
        order.add(request)


def runs(trie: PromptTrie, order: Order, *requests: Request) -> None:
    """The requests arrive and are started."""
    waits(trie, order, *requests)
    for request in requests:
        order.discard(request)
        trie.start(request)


def all_in_order(order: Order, now: float = 0.0) -> list[int]:
    """Take out all that the order offers; their arrivals."""
    taken = []
    while (request := order.best(now)) is not None:
        taken.append(request.arrival)
    return taken


def depth(trie: PromptTrie) -> int:
    """Nodes on the longest path below a namespace."""
    deepest, level = 0, list(trie.root.children.values())
    while level := [child for node in level for child in node.children.values()]:
        deepest += 1
    return deepest
