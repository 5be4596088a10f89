"""What an engine's cache options and a request's cache mode do, end to end on a tiny model."""

from __future__ import annotations

import dataclasses
import gc
import random

import pytest

from radix_engine.cache import CacheMode, Namespace, Reason
from scheduler import Limits
from server import GenerationParams
from server.errors import RequestRefused
from server.options import CacheOptions
from tests.server.conftest import MakeEngine
from tests.server.prompts import greedy, ids

KINDS = [{}, {"partial_blocks": False}, {"index": "hash"}, {"eviction": "slru"}]


def prompts_that_share(count: int) -> list[list[int]]:
    """Heads shared in whole blocks and inside blocks, in a random order."""
    draw = random.Random(5)
    heads = [ids(length, length) for length in (5, 16, 40, 48, 61)]
    return [
        [*draw.choice(heads), *ids(draw.randrange(1, 30), draw.randrange(500))]
        for _ in range(count)
    ]


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_every_kind_of_cache_gives_the_answers_of_none(
    make_engine: MakeEngine, options: dict[str, object]
) -> None:
    calm = make_engine(num_blocks=64, prefix_cache=False)
    tight = make_engine(num_blocks=9, limits=Limits(max_step_tokens=40, max_running=8), **options)
    prompts = prompts_that_share(30)
    alone = [answer.token_ids for answer in calm.generate(prompts, greedy(6))]
    assert [answer.token_ids for answer in tight.generate(prompts, greedy(6))] == alone
    assert tight.counters()["cached_tokens"] > 0
    assert tight.counters()["evicted_blocks"] > 0


def test_a_prompt_that_parts_inside_a_block_reuses_the_part_before(make_engine: MakeEngine) -> None:
    prompt, other = ids(64, 1), [*ids(40, 1), *ids(24, 7)]
    exact, whole = make_engine(), make_engine(partial_blocks=False)
    alone = make_engine(prefix_cache=False).generate([other], greedy(8))[0]
    for engine, cached in ((exact, 40), (whole, 32)):
        engine.generate([prompt], greedy(1))
        answer = engine.generate([other], greedy(8))[0]
        assert answer.usage.cached_tokens == cached
        assert answer.token_ids == alone.token_ids
        end = answer.usage.match_end
        assert end is not None
        assert (end.reason, end.position) == (Reason.DIVERGED, 40)


def test_requests_that_arrive_together_compute_a_common_head_once(make_engine: MakeEngine) -> None:
    engine = make_engine(num_blocks=128, limits=Limits(max_step_tokens=64, max_running=8))
    prompts = [[*ids(96, 1), *ids(16, seed)] for seed in range(2, 10)]
    answers = engine.generate(prompts, greedy(1))
    assert all(answer.finish_reason == "length" for answer in answers)
    # No two of the ends share their first token.
    assert engine.counters()["computed_tokens"] == 96 + 8 * 16


def test_modes_read_and_store_as_they_say(make_engine: MakeEngine) -> None:
    engine = make_engine()
    prompt = ids(40, 1)

    def cached(mode: CacheMode) -> tuple[int, int]:
        answer = engine.generate([prompt], dataclasses.replace(greedy(1), cache_mode=mode))[0]
        return answer.usage.cached_tokens, engine.state()["blocks_cached"]

    assert cached(CacheMode.READ_ONLY) == (0, 0)
    assert cached(CacheMode.BYPASS) == (0, 0)
    assert cached(CacheMode.DEFAULT) == (0, 2)
    assert cached(CacheMode.BYPASS) == (0, 2)
    assert cached(CacheMode.READ_ONLY) == (32, 2)


def test_namespaces_share_nothing(make_engine: MakeEngine) -> None:
    engine = make_engine()

    def cached(namespace: Namespace) -> int:
        params: GenerationParams = dataclasses.replace(greedy(1), namespace=namespace)
        return engine.generate([ids(40, 1)], params)[0].usage.cached_tokens

    one, other = Namespace(salt="one"), Namespace(salt="other")
    assert [cached(one), cached(other), cached(Namespace())] == [0, 0, 0]
    assert [cached(one), cached(other), cached(Namespace())] == [32, 32, 32]


def test_the_hash_index_has_no_tree_to_show(make_engine: MakeEngine) -> None:
    with pytest.raises(RequestRefused, match="--prefix-index tree"):
        make_engine(index="hash").tree()


def test_a_rule_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(ValueError, match="eviction must be one of lru, lfu"):
        CacheOptions(eviction="belady")
    with pytest.raises(ValueError, match="for the tree only"):
        CacheOptions(index="hash", eviction="lfu")


def test_an_engine_that_collects_garbage_between_steps_answers_as_before(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    thresholds = gc.get_threshold()
    try:
        before = engine.generate([ids(40, 1)], greedy(20))[0].token_ids
        engine.tame_garbage_collector()
        assert gc.get_threshold()[2] > thresholds[2]
        assert engine.generate([ids(40, 1)], greedy(20))[0].token_ids == before
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
