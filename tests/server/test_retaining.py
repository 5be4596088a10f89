"""Prefixes that requests ask to keep: under pressure, within limits, told truly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from radix_engine.cache import CacheMode, Namespace
from scheduler import Limits
from server import Engine, GenerationParams
from server.generation_params import WHOLE_PROMPT, Retain
from server.outputs import Retained
from tests.cache.requests import Clock
from tests.server.conftest import MakeEngine
from tests.server.prompts import greedy, ids

BLOCKS = 32  # 512 tokens; all retentions together cover 128, a tenant's 64
A = Namespace(tenant="a")


@pytest.fixture
def engine(make_engine: MakeEngine) -> Engine:
    return make_engine(num_blocks=BLOCKS, limits=Limits(max_step_tokens=64, max_running=4))


@pytest.fixture
def clock(engine: Engine) -> Clock:
    clock = Clock()
    engine._cache._tree.clock = clock  # type: ignore[union-attr]
    return clock


def keeping(*retains: Retain, **fields: Any) -> GenerationParams:
    return replace(greedy(1), retain=retains, **fields)


def ask(engine: Engine, prompt: Sequence[int], params: GenerationParams | None = None) -> int:
    """How much of a prompt was cached."""
    return engine.generate([prompt], params or greedy(1))[0].usage.cached_tokens


def kept(engine: Engine, prompt: Sequence[int], params: GenerationParams) -> Retained:
    """What of a prompt is retained."""
    retained = engine.generate([prompt], params)[0].usage.retained
    assert retained is not None
    assert engine.audit() == []
    return retained


def sweep(engine: Engine) -> None:
    """One-off prompts for three times the memory."""
    answers = engine.generate([[4 + seed, *ids(63, seed)] for seed in range(24)], greedy(1))
    assert all(answer.finish_reason == "length" for answer in answers)


def test_a_tool_call_later_the_conversation_is_still_there(engine: Engine, clock: Clock) -> None:
    turn, other = ids(100, 600), ids(100, 700)
    assert kept(engine, turn, keeping(Retain(WHOLE_PROMPT, 30.0))).tokens == 96
    ask(engine, other)
    sweep(engine)
    clock.now = 10.0
    assert ask(engine, [*other, 9, 9]) == 0
    assert ask(engine, [*turn, 9, 9]) >= 96
    sweep(engine)
    clock.now = 39.0  # 29 s after it was read
    assert ask(engine, [*turn, 8, 8]) >= 96
    clock.now = 70.0
    sweep(engine)
    assert ask(engine, [*turn, 7, 7]) == 0
    assert engine.cache_control.retained() == []


def test_what_others_need_they_get_whatever_is_retained(engine: Engine) -> None:
    for seed in range(4):
        assert kept(engine, ids(32, 600 + seed), keeping(Retain(32, 60.0))).tokens == 32
    answer = engine.generate([ids(505, 1)], greedy(4))[0]  # all blocks but none
    assert (answer.finish_reason, answer.error) == ("length", None)
    assert engine.cache_control.retained() == []


def test_what_goes_beyond_the_limit_is_told_and_the_request_is_answered(engine: Engine) -> None:
    assert kept(engine, ids(100, 600), keeping(Retain(96, 60.0))) == Retained(
        96, None, engine.cache_control.retained()[0].id
    )
    answer = engine.generate([ids(100, 700)], keeping(Retain(96, 60.0)))[0]
    assert answer.usage.retained == Retained(0, "limit")
    assert answer.finish_reason == "length"
    assert kept(engine, ids(100, 700), keeping(Retain(32, 60.0))).tokens == 32


def test_of_prefixes_of_one_prompt_those_that_fit_are_kept(engine: Engine) -> None:
    retained = kept(engine, ids(300, 600), keeping(Retain(250, 60.0), Retain(70, 60.0)))
    assert (retained.tokens, retained.refused) == (64, "limit")


def test_one_tenant_does_not_take_all(engine: Engine) -> None:
    assert kept(engine, ids(64, 600), keeping(Retain(64, 60.0), namespace=A)).tokens == 64
    assert kept(engine, ids(64, 700), keeping(Retain(64, 60.0), namespace=A)).refused == "limit"
    b = Namespace(tenant="b")
    assert kept(engine, ids(64, 700), keeping(Retain(64, 60.0), namespace=b)).tokens == 64


@pytest.mark.parametrize(
    ("prompt", "fields", "refused"),
    [
        (ids(15, 1), {}, "short"),
        (ids(40, 1), {"cache_mode": CacheMode.BYPASS}, "cache_mode"),
        (ids(40, 1), {"cache_mode": CacheMode.READ_ONLY}, "cache_mode"),
    ],
)
def test_what_is_not_stored_is_not_kept(
    engine: Engine, prompt: list[int], fields: dict[str, object], refused: str
) -> None:
    params = keeping(Retain(WHOLE_PROMPT, 60.0), **fields)
    assert kept(engine, prompt, params) == Retained(0, refused)


@pytest.mark.parametrize("options", [{"index": "hash"}, {"prefix_cache": False}], ids=str)
def test_without_a_tree_nothing_is_kept_and_that_is_told(
    make_engine: MakeEngine, options: dict[str, object]
) -> None:
    engine = make_engine(**options)
    assert not engine.info.retains
    params = keeping(Retain(WHOLE_PROMPT, 60.0))
    assert kept(engine, ids(40, 1), params) == Retained(0, "unavailable")


@pytest.mark.parametrize(
    "params",
    [
        replace(greedy(4), n=3),
        replace(greedy(0)),
        GenerationParams(max_tokens=3, n=2, use_beam_search=True),
        replace(greedy(2), logprobs=2, prompt_logprobs=1),
    ],
    ids=["several", "none", "beams", "scored"],
)
def test_however_it_is_answered_the_prompt_is_kept(
    engine: Engine, params: GenerationParams
) -> None:
    wanted = replace(params, retain=(Retain(WHOLE_PROMPT, 60.0),))
    answers = engine.generate([ids(40, 1)], wanted)
    assert {answer.usage.retained and answer.usage.retained.tokens for answer in answers} == {32}
    assert [each.tokens for each in engine.cache_control.retained()] == [32]


def test_naming_a_prefix_again_refreshes_the_one_retention(engine: Engine, clock: Clock) -> None:
    first = kept(engine, ids(40, 1), keeping(Retain(32, 20.0, "head")))
    clock.now = 15.0
    again = kept(engine, [*ids(32, 1), *ids(20, 9)], keeping(Retain(48, 20.0)))
    assert (again.tokens, again.id) == (48, engine.cache_control.retained()[-1].id)
    clock.now = 16.0
    assert kept(engine, [*ids(32, 1), 5, 5, 5], keeping(Retain(32, 60.0))).id == first.id
    left = {each.id: each.seconds_left for each in engine.cache_control.retained()}
    assert left == {first.id: 60.0, again.id: 19.0}
    kept(engine, [*ids(32, 1), 6, 6, 6], keeping(Retain(32, 5.0)))  # never for less long
    assert engine.cache_control.retained()[0].seconds_left == 60.0


def test_what_eviction_took_of_a_prefix_is_kept_again_when_it_is_named_again(
    engine: Engine,
) -> None:
    first = kept(engine, ids(100, 600), keeping(Retain(96, 60.0)))
    engine.generate([ids(430, 1)], greedy(1))  # leaves room for 5 blocks
    assert 0 < engine.cache_control.retained()[0].tokens < 96
    again = kept(engine, ids(100, 600), keeping(Retain(96, 60.0)))
    assert (again.tokens, again.id) == (96, first.id)
    assert len(engine.cache_control.retained()) == 1


def test_of_a_growing_conversation_only_its_newest_prefix_is_kept(
    engine: Engine, clock: Clock
) -> None:
    system = Retain(16, 20.0, "system")
    for turn in range(1, 5):
        clock.now += 1.0
        conversation = ids(20 * turn, 1)
        kept(engine, conversation, keeping(system, Retain(WHOLE_PROMPT, 10.0), session="s"))
    assert [each.tokens for each in engine.cache_control.retained()] == [16, 80]
    other = [*ids(20, 1), *ids(20, 9)]
    kept(engine, other, keeping(Retain(WHOLE_PROMPT, 10.0), session="other"))
    assert [each.tokens for each in engine.cache_control.retained()] == [16, 80, 32]
    clock.now += 5.0
    kept(engine, ids(100, 1), keeping(Retain(WHOLE_PROMPT, 1.0), session="s"))  # for less long
    assert [each.tokens for each in engine.cache_control.retained()] == [16, 80, 32, 96]


def test_what_another_session_or_a_name_keeps_is_not_let_go(engine: Engine) -> None:
    kept(engine, ids(20, 1), keeping(Retain(16, 10.0, "named"), session="s"))
    kept(engine, ids(40, 1), keeping(Retain(32, 10.0), session="other"))
    kept(engine, ids(50, 1), keeping(Retain(48, 10.0), session="s"))
    kept(engine, ids(90, 1), keeping(Retain(80, 20.0), session="s"))
    assert [each.tokens for each in engine.cache_control.retained()] == [16, 32, 80]


def test_the_list_tells_a_tenant_of_its_own_only(engine: Engine) -> None:
    salted, nobodys = Namespace(tenant="a", salt="s"), Namespace(salt="s")
    for seed, space in enumerate((A, salted, Namespace(tenant="b"), Namespace(), nobodys)):
        kept(engine, ids(16, seed), keeping(Retain(16, 60.0), namespace=space, session="x"))
    control = engine.cache_control
    assert [each.salted for each in control.retained("a")] == [False, True]
    assert [each.tenant for each in control.retained("b")] == ["b"]
    assert [each.tenant for each in control.retained(None)] == [None]
    assert len(control.retained()) == 5
    mine, theirs = control.retained("a")[0], control.retained("b")[0]
    assert control.release("a", theirs.id) == 0
    assert control.release("a", mine.id) == 1
    assert control.release("a", mine.id) == 0
    assert control.release("a") == 1
    assert len(control.retained()) == 3
    assert control.release() == 3
    assert engine.audit() == []
    assert engine.state()["blocks_retained"] == 0


def test_a_flush_lets_all_go(engine: Engine) -> None:
    kept(engine, ids(40, 1), keeping(Retain(32, 60.0)))
    engine.flush_cache()
    assert engine.cache_control.retained() == []
    assert kept(engine, ids(40, 1), keeping(Retain(32, 60.0))).tokens == 32


def test_ended_retentions_are_forgotten(engine: Engine, clock: Clock) -> None:
    for seed in range(300):
        kept(engine, ids(20, seed), keeping(Retain(16, 1.0)))
        clock.now += 2.0
    register = engine.cache_control._retained
    assert register is not None
    assert len(register._entries) < 100
    assert len(register._by_number) == len(register._by_key) == len(register._entries)


def test_requests_are_counted_by_session(engine: Engine) -> None:
    for prompt, space, session in (
        (ids(40, 1), A, "one"),
        (ids(41, 1), A, "one"),
        (ids(40, 2), A, "two"),
        (ids(40, 1), Namespace(tenant="b"), "one"),
        (ids(40, 3), A, None),
    ):
        engine.generate([prompt], replace(greedy(1), namespace=space, session=session))
    seen = engine.cache_control.sessions("a")
    assert [(s.name, s.requests, s.prompt_tokens, s.cached_tokens, s.hits) for s in seen] == [
        ("two", 1, 40, 0, 0),
        ("one", 2, 81, 32, 1),
    ]
    assert [(s.tenant, s.name) for s in engine.cache_control.sessions()] == [
        ("b", "one"),
        ("a", "two"),
        ("a", "one"),
    ]
