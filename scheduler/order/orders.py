"""The orders by name."""

from __future__ import annotations

from collections.abc import Callable

from scheduler.order.dfs import DepthFirst
from scheduler.order.lpm import LongestMatch
from scheduler.order.plain import FirstCome, Priority, ResponseRatio
from scheduler.order.rule import Order
from scheduler.prompt_trie import PromptTrie

ORDERS: dict[str, Callable[[PromptTrie], Order]] = {
    "lpm": LongestMatch,
    "dfs": DepthFirst,
    "hrrn": ResponseRatio,
    "fcfs": lambda trie: FirstCome(),
    "priority": lambda trie: Priority(),
}


def make_order(name: str, trie: PromptTrie) -> Order:
    """A new order over the requests of ``trie``, which must be empty; it is the only one there.

    Raises ValueError for a name that is none of ``ORDERS``.
    """
    make = ORDERS.get(name)
    if make is None:
        raise ValueError(f"order must be one of {', '.join(ORDERS)}, not {name!r}")
    return make(trie)
