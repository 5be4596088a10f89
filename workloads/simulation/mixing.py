"""Sessions that take turns: which call comes next, where a trace has no times of its own."""

from __future__ import annotations

import random
from collections.abc import Sequence

from workloads.simulation.serial_calls import SerialCall
from workloads.simulation.text_calls import TextCall


def mixed(
    sessions: Sequence[Sequence[TextCall]],
    in_flight: int,
    seed: int,
    *,
    block_tokens: int,
    shuffle_rounds: bool,
    seconds_a_call: float,
) -> list[SerialCall]:
    """All calls, from sessions in an order by seed, so many of them at a time, each in its turn.

    When a session ends, the next takes its place at the end of the round. ``shuffle_rounds``: the
    turns of every round come in another order. Each call comes ``seconds_a_call`` after the one
    before, and takes no time.
    """
    randomly = random.Random(seed)
    waiting = list(sessions)
    randomly.shuffle(waiting)
    waiting.reverse()
    running: list[list[TextCall]] = []
    calls: list[SerialCall] = []
    while waiting or running:
        while len(running) < in_flight and waiting:
            running.append(list(reversed(waiting.pop())))
        turns = list(running)
        if shuffle_rounds:
            randomly.shuffle(turns)
        for session in turns:
            if not session:
                continue
            call, at = session.pop(), len(calls) * seconds_a_call
            blocks = call.prompt_tokens // block_tokens
            calls.append(SerialCall(call.path, blocks, call.prompt_tokens, at, at))
        running = [session for session in running if session]
    return calls
