"""An engine that lets few conversations run at a time answers all of them."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from scheduler import Limits
from server.outputs import Output
from tests.server.conftest import MakeEngine
from tests.server.prompts import greedy, ids


@pytest.mark.parametrize("most", [1, "auto"])
@pytest.mark.parametrize("named", [True, False])
def test_all_conversations_are_answered_and_rightly(
    make_engine: MakeEngine, most: Any, named: bool
) -> None:
    free = make_engine(num_blocks=64)
    tight = make_engine(num_blocks=12, limits=Limits(64, 8, max_sessions=most))
    prompts = [ids(60, seed) for seed in range(4)]
    done = threading.Semaphore(0)
    answers: dict[int, list[int]] = {}

    def receiver(number: int) -> Any:
        def receive(output: Output) -> None:
            answers.setdefault(number, []).extend(output.token_ids)
            if output.finish_reason is not None:
                done.release()

        return receive

    for turn in range(2):
        alone = [answer.token_ids for answer in free.generate(prompts, greedy(6))]
        answers.clear()
        for number, prompt in enumerate(prompts):
            params = replace(greedy(6), session=f"s{number}" if named else None)
            tight.submit(prompt, params, receiver(number))
        for _ in prompts:
            assert done.acquire(timeout=30)
        assert [tuple(answers[number]) for number in range(4)] == alone
        assert tight.audit() == []
        prompts = [
            [*prompt, *answer, 5, 6, 7 + turn]
            for prompt, answer in zip(prompts, alone, strict=True)
        ]
    state = tight.state()
    assert (state["waiting"], state["running"]) == (0, 0)


def test_requests_that_are_held_wait_for_those_who_look(make_engine: MakeEngine) -> None:
    engine = make_engine(num_blocks=64, limits=Limits(64, 8, max_sessions=1))
    entered, go_on = threading.Event(), threading.Event()

    def first_piece(output: Output) -> None:
        entered.set()
        assert go_on.wait(30)

    engine.submit(
        ids(20, 1),
        replace(
            greedy(
                4,
            ),
            ignore_eos=True,
        ),
        first_piece,
    )
    assert entered.wait(30)
    ids_held = [engine.submit(ids(20, seed), greedy(2), lambda output: None) for seed in (2, 3)]
    assert engine.queue().waiting == 2
    go_on.set()
    for request_id in ids_held:
        engine.abort(request_id)
    engine._loop.wait_idle(30)
    assert engine.audit() == []
