"""Any sequence of operations leaves the trie and its order equal to loops over all requests."""

from __future__ import annotations

import pytest

from scheduler.order import ORDERS
from tests.scheduler.prompts_use import PromptsUse

SEEDS = {"lpm": 25, "dfs": 25, "hrrn": 5, "fcfs": 5, "priority": 5}


@pytest.mark.parametrize("name", list(ORDERS))
def test_random_use_is_as_the_loops_say(name: str) -> None:
    for seed in range(SEEDS[name]):
        use = PromptsUse(name, seed)
        for _ in range(150):
            use.step()
