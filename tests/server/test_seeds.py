"""A seed fixes an answer: whoever shares the batch, whatever is cached, however it is computed."""

from __future__ import annotations

import pytest

from radix_engine.cpu.processor import KernelKind
from scheduler import Limits
from server import Engine, GenerationParams, SamplingParams
from server.collector import Collector
from tests.server.conftest import KINDS, MakeEngine
from tests.server.prompts import ids

PROMPT = ids(37, 1)
ON_BOTH = pytest.mark.parametrize(
    "kind", [None, *KINDS[:1]], ids=lambda kind: kind.name if kind else "torch"
)


def drawn(seed: int | None, n: int = 1) -> GenerationParams:
    return GenerationParams(60, SamplingParams(temperature=1.0, seed=seed), n=n)


def answers(engine: Engine, *asked: tuple[list[int], int | None]) -> list[tuple[int, ...]]:
    """Those to several prompts, each with its own seed, computed together."""
    collectors = [Collector(1) for _ in asked]
    for (prompt, seed), collector in zip(asked, collectors, strict=True):
        engine.submit(prompt, drawn(seed), collector.push)
    return [answer.token_ids for collector in collectors for answer in collector.wait()]


@ON_BOTH
def test_neighbours_change_nothing_with_a_seed_or_without(
    make_engine: MakeEngine, kind: KernelKind | None
) -> None:
    engine = make_engine(192, kind=kind)
    (alone,) = answers(engine, (PROMPT, 42))
    engine.flush_cache()
    for neighbours in ([(ids(20, 2), None)], [(ids(50, 3), 7), (PROMPT, 43), (PROMPT, 42)]):
        for _ in range(2):  # cold and warm
            together = answers(engine, (PROMPT, 42), *neighbours)
            assert together[0] == alone
            if len(neighbours) == 3:
                assert together[-1] == alone
                assert together[-2] != alone


@ON_BOTH
def test_neither_the_cache_nor_chunks_nor_preemptions_change_anything(
    make_engine: MakeEngine, kind: KernelKind | None
) -> None:
    (expected,) = answers(make_engine(kind=kind, prefix_cache=False), (PROMPT, 42))
    engine = make_engine(kind=kind)
    assert [answers(engine, (PROMPT, 42))[0] for _ in range(3)] == [expected] * 3
    chunks = make_engine(kind=kind, limits=Limits(max_step_tokens=5, max_running=4))
    assert answers(chunks, (PROMPT, 42)) == [expected]
    tight = make_engine(8, kind=kind, limits=Limits(max_step_tokens=16, max_running=4))
    others: list[tuple[list[int], int | None]] = [(ids(37, seed), seed) for seed in (2, 3)]
    assert answers(tight, *others, (PROMPT, 42), *others)[2] == expected
    assert tight.counters()["preemptions"] > 0


def test_the_first_of_several_answers_is_the_lone_one_and_the_others_are_their_own(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    (alone,) = answers(engine, (PROMPT, 42))
    first = engine.generate([PROMPT], drawn(42, n=4))
    assert first[0].token_ids == alone
    assert len({answer.token_ids for answer in first}) == 4
    again = engine.generate([PROMPT], drawn(42, n=4))
    assert [answer.token_ids for answer in again] == [answer.token_ids for answer in first]


def test_without_a_seed_calls_differ(make_engine: MakeEngine) -> None:
    engine = make_engine()
    assert len({answers(engine, (PROMPT, None))[0] for _ in range(4)}) == 4


def test_four_answers_to_100_tokens_cost_one_prefill_and_count_it_once(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    for cached in (0, 99):  # the answers have filled the prompt's last block
        before = engine.counters()["computed_tokens"]
        several = engine.generate([ids(100, 1)], drawn(1, n=4))
        assert [answer.index for answer in several] == [0, 1, 2, 3]
        for answer in several:
            assert answer.usage.prompt_tokens == 100
            assert answer.usage.cached_tokens == cached
            assert answer.usage.completion_tokens == len(answer.token_ids)
        assert engine.counters()["computed_tokens"] - before == 100 - cached
