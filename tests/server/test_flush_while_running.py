"""A flush takes nothing from those who run or wait: their answers are what they would have been."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from scheduler import Limits
from server import Completion, Engine
from tests.server.conftest import MakeEngine
from tests.server.prompts import greedy, ids

HEAD = ids(48, 1)
PROMPTS = [[*HEAD, *ids(30, seed)] for seed in range(2, 8)]
LIMITS = Limits(max_step_tokens=32, max_running=3)  # prompts in chunks, and some wait


def flushing(engine: Engine, steps: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Flush right after these steps, while what they computed is being used. Returns how many steps
    there were so far, in a list."""
    model = engine._loop._steps._model
    forward, done = model.forward, [0]

    def forward_then_flush(spans: Any) -> Any:
        done[0] += 1
        if done[0] in steps:
            engine._loop.post(lambda: flush(engine))
        return forward(spans)

    monkeypatch.setattr(model, "forward", forward_then_flush)
    return done


def flush(engine: Engine) -> None:
    engine.flush_cache()
    assert engine.audit() == []


def texts(answers: Sequence[Completion]) -> list[tuple[int, ...]]:
    return [answer.token_ids for answer in answers]


@pytest.mark.parametrize(
    "steps",
    [[1], [2], [3], [4], [6], [9], [12], [20], [2, 3, 4], list(range(1, 40))],
    ids=lambda steps: "-".join(map(str, steps[:3])),
)
def test_a_flush_at_any_step_leaves_all_answers_right(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, steps: list[int]
) -> None:
    alone = texts(make_engine(prefix_cache=False).generate(PROMPTS, greedy(12)))
    engine = make_engine(num_blocks=40, limits=LIMITS)
    done = flushing(engine, steps, monkeypatch)
    answers = engine.generate(PROMPTS, greedy(12))
    assert texts(answers) == alone
    assert engine.audit() == []
    assert engine.counters()["flushes"] == sum(step <= done[0] for step in steps) > 0
    assert texts(engine.generate(PROMPTS[:1], greedy(12))) == alone[:1]


def test_a_flush_while_memory_is_short_leaves_all_answers_right(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = texts(make_engine(prefix_cache=False).generate(PROMPTS, greedy(30)))
    engine = make_engine(num_blocks=12, limits=LIMITS)
    flushing(engine, range(1, 200, 3), monkeypatch)
    assert texts(engine.generate(PROMPTS, greedy(30))) == alone
    assert engine.counters()["preemptions"] > 0


def test_after_a_flush_nothing_is_cached(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.generate(PROMPTS[:1], greedy(1))
    engine.flush_cache()
    usage = engine.generate(PROMPTS[:1], greedy(1))[0].usage
    assert usage.cached_tokens == 0
    assert usage.match_end is not None
    assert (usage.match_end.reason.value, usage.match_end.lost_tokens) == ("evicted", 64)
    assert usage.match_end.cause is not None
    assert usage.match_end.cause.value == "flush"
