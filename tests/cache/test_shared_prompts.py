"""Under few long prompts asked again and again, the tree serves what the best flat order does."""

from __future__ import annotations

import pytest

from radix_engine.cache import PrefixCache
from tests.cache.zipf import CEILING, hit_share, round_robin_order, zipf_order


def test_under_zipf_the_tree_serves_what_a_flat_index_does_that_evicts_tails_first() -> None:
    assert hit_share(PrefixCache(256), zipf_order()) >= 0.36 - 0.03


def test_in_round_robin_over_more_than_memory_the_tree_keeps_the_heads() -> None:
    assert hit_share(PrefixCache(1024), round_robin_order()) >= 0.81 - 0.03


def test_with_memory_for_all_prompts_only_first_uses_and_own_tokens_are_computed() -> None:
    share = hit_share(PrefixCache(9048), zipf_order())
    assert share == pytest.approx(CEILING, abs=0.01)
    assert share < CEILING
