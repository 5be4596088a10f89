"""Numbers that say what happened: no hit without a common prefix, each request counted once."""

from __future__ import annotations

import random

import pytest

from radix_engine.cache import Reason
from scheduler import Limits
from server import Engine
from tests.server.conftest import MakeEngine
from tests.server.prompts import greedy, ids


def random_prompts(count: int) -> list[list[int]]:
    """No two begin with the same token."""
    draw = random.Random(3)
    firsts = draw.sample(range(4, 500), count)
    return [[first, *(draw.randrange(4, 500) for _ in range(70))] for first in firsts]


def test_random_prompts_hit_nothing_whatever_happens_to_them(make_engine: MakeEngine) -> None:
    # One answer's memory and a bit: most wait often, and those who run are preempted.
    engine = make_engine(num_blocks=16, limits=Limits(max_step_tokens=24, max_running=6))
    prompts = random_prompts(20)
    answers = engine.generate(prompts, greedy(60))
    assert [answer.usage.cached_tokens for answer in answers] == [0] * 20
    counters = engine.counters()
    assert counters["preemptions"] > 0
    assert counters["cached_tokens"] == 0
    assert counters["prompt_tokens"] == sum(map(len, prompts))
    assert counters["computed_tokens"] == counters["prompt_tokens"]
    assert engine._cache.ends.total() == 20  # type: ignore[union-attr]


def test_counters_are_the_sums_of_what_answers_say(make_engine: MakeEngine) -> None:
    engine = make_engine(num_blocks=20, limits=Limits(max_step_tokens=48, max_running=4))
    head = ids(40, 1)
    prompts = [[*head, *ids(10 + seed, seed)] for seed in range(2, 12)] * 2
    usages = [answer.usage for answer in engine.generate(prompts, greedy(20))]
    counters = engine.counters()
    assert sum(usage.cached_tokens for usage in usages) == counters["cached_tokens"] > 0
    assert sum(usage.prompt_tokens for usage in usages) == counters["prompt_tokens"]
    assert counters["cached_tokens"] + counters["computed_tokens"] == counters["prompt_tokens"]


def shared(engine: Engine, stored: int, common: int) -> tuple[int, Reason]:
    """What a prompt is served that has so many tokens in common with one of so many."""
    engine.generate([ids(stored, 1)], greedy(1))
    usage = engine.generate([[*ids(common, 1), *ids(40, 3)]], greedy(1))[0].usage
    assert usage.match_end is not None
    return usage.cached_tokens, usage.match_end.reason


@pytest.mark.parametrize("common", [1, 2, 15])
def test_with_partial_blocks_one_common_token_is_served_where_a_block_is_stored(
    make_engine: MakeEngine, common: int
) -> None:
    assert make_engine().info.min_cacheable_tokens == 1
    assert shared(make_engine(), 16, common) == (common, Reason.DIVERGED)
    assert shared(make_engine(), 15, common) == (0, Reason.COLD)  # what is stored are whole blocks


def test_without_partial_blocks_less_than_a_block_is_not_served(make_engine: MakeEngine) -> None:
    assert make_engine(partial_blocks=False).info.min_cacheable_tokens == 16
    assert shared(make_engine(partial_blocks=False), 40, 15) == (0, Reason.SHORT)
    assert shared(make_engine(partial_blocks=False), 40, 16)[0] == 16


def test_the_hash_index_serves_whole_blocks_and_no_cache_nothing(make_engine: MakeEngine) -> None:
    assert make_engine(index="hash").info.min_cacheable_tokens == 16
    assert make_engine(prefix_cache=False).info.min_cacheable_tokens is None
