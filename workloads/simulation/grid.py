"""The combinations that one simulation compares: orders, eviction rules and sizes of the memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal


@dataclass(frozen=True, slots=True)
class Combination:
    """One way to serve a load."""

    order: str
    eviction: str
    blocks: int
    max_sessions: int | Literal["auto"] | None = None


def combinations(
    orders: Sequence[str],
    evictions: Sequence[str],
    blocks: Sequence[int],
    max_sessions: Sequence[int | Literal["auto"] | None] = (None,),
) -> list[Combination]:
    """All of them; what is named last changes first."""
    return [Combination(*each) for each in product(orders, evictions, blocks, max_sessions)]


def named(grid: Sequence[Combination]) -> Mapping[str, Combination]:
    """Each by a name of what differs: the order, then the rule, the size and the sessions where
    there are several."""
    parts = (
        lambda each: each.eviction,
        lambda each: f"{each.blocks:,} blocks",
        lambda each: f"sessions {each.max_sessions or 'off'}",
    )
    telling = [part for part in parts if len({part(each) for each in grid}) > 1]
    return {", ".join([each.order, *(part(each) for part in telling)]): each for each in grid}


def key_of(name: str) -> str:
    """A combination's name in the keys of figures: without blanks, commas and the word blocks."""
    return name.replace(" blocks", "").replace(",", "").replace(" ", "_")
