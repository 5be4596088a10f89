"""What a request may ask of its turn, and of its time."""

from __future__ import annotations

import threading

import pytest

from scheduler import Limits
from server.generation_params import GenerationParams
from server.outputs import Output
from tests.server.conftest import MakeEngine


@pytest.mark.parametrize(("order", "first_tokens"), [("priority", [5, 7, 6]), ("fcfs", [5, 6, 7])])
def test_the_higher_priority_starts_first_where_the_order_is_by_priority(
    make_engine: MakeEngine, order: str, first_tokens: list[int]
) -> None:
    engine = make_engine(limits=Limits(max_running=1), order=order)
    entered, go_on, done = threading.Event(), threading.Event(), threading.Event()
    ended: list[int] = []

    def step_that_takes_long() -> None:
        entered.set()
        go_on.wait(30)

    def receiver(first_token: int) -> object:
        def receive(output: Output) -> None:
            if output.finish_reason is not None:
                ended.append(first_token)
                if len(ended) == 3:
                    done.set()

        return receive

    assert engine._loop.post(step_that_takes_long)
    assert entered.wait(30)
    for first_token, priority in ((5, 1), (6, -1), (7, 0)):
        params = GenerationParams(max_tokens=1, priority=priority)
        engine.submit([first_token, 8, 9], params, receiver(first_token))  # type: ignore[arg-type]
    go_on.set()
    assert done.wait(30)
    assert ended == first_tokens


def test_an_answer_whose_time_is_over_before_it_has_a_token_is_an_error(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    (late,) = engine.generate([[5, 6, 7]], GenerationParams(max_tokens=4, timeout_s=1e-9))
    assert late.finish_reason == "error"
    assert late.error is not None
    assert "deadline" in late.error
    (other,) = engine.generate([[5, 6, 7]], GenerationParams(max_tokens=4, timeout_s=3600.0))
    assert other.finish_reason in ("length", "stop")


@pytest.mark.parametrize(
    "fields",
    [{"priority": 1.5}, {"priority": 10**7}, {"timeout_s": 0}, {"timeout_s": float("nan")}],
)
def test_a_priority_or_time_that_makes_no_sense_is_named(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        GenerationParams(**fields)  # type: ignore[arg-type]
