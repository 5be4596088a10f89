"""What an engine does with the news that an answer turned out to call a tool."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from server import Engine
from server.request_ids import RequestIds
from tests.server.conftest import MakeEngine
from tests.server.prompts import greedy, ids


def told(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tokens of each path whose call the cache is told of, from now on."""
    paths: list[int] = []
    cache: Any = engine._cache
    monkeypatch.setattr(cache, "note_tool_call", lambda lease: paths.append(lease.num_tokens))
    return paths


def answered(engine: Engine, prompt: list[int], *, n: int = 1) -> int:
    """Answer a prompt with 20 tokens; the request's id."""
    pieces = list(engine.stream(prompt, replace(greedy(20), n=n, ignore_eos=True)))
    return pieces[0].request_id


def test_the_cache_is_told_of_the_path_that_the_answer_left(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(eviction="agent")
    paths = told(engine, monkeypatch)
    request_id = answered(engine, ids(30, 1))
    for unknown in (request_id + 1, 0, request_id):
        engine.note_tool_call(unknown)
    assert engine.audit() == []  # after all that was posted before
    assert paths == [48]  # 30 + 19 computed tokens fill three blocks of 16


def test_each_of_several_answers_has_a_path_of_its_own(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(eviction="agent")
    request_id = answered(engine, ids(30, 1), n=3)
    leases: list[Any] = []
    cache: Any = engine._cache
    monkeypatch.setattr(cache, "note_tool_call", leases.append)
    for index in (2, 0, 1, 3):
        engine.note_tool_call(request_id, index)
    assert engine.audit() == []
    assert len({id(lease) for lease in leases}) == 3


@pytest.mark.parametrize("options", [{"eviction": "lru"}, {"eviction": "agent"}, {"index": "hash"}])
def test_the_news_harms_no_kind_of_cache(make_engine: MakeEngine, options: dict[str, Any]) -> None:
    engine = make_engine(num_blocks=8, **options)
    for seed in range(6):
        engine.note_tool_call(answered(engine, ids(40, seed)))
        assert engine.audit() == []
    engine.flush_cache()
    engine.note_tool_call(answered(engine, ids(40, 1)))
    assert engine.audit() == []


def test_an_engine_that_has_ended_takes_no_notice(make_engine: MakeEngine) -> None:
    engine = make_engine()
    request_id = answered(engine, ids(30, 1))
    engine.shutdown(0.0)
    engine.note_tool_call(request_id)


def test_the_ids_of_the_answers_to_one_prompt_follow_one_another() -> None:
    taken = RequestIds()
    assert [taken.take(3), taken.take(), taken.take(2), taken.take()] == [1, 4, 5, 7]
