"""A trace's times made anew from its recorded pauses."""

from __future__ import annotations

import numpy as np
import pytest

from workloads.simulation.pauses import with_pauses
from workloads.traces.block_trace import BlockCall, BlockTrace
from workloads.traces.lines import TraceError


def call(session: str | None, at: float, pause: float | None, reply: float | None) -> BlockCall:
    return BlockCall(session, at, 64, np.array([1], np.int32), reply, pause_s=pause)


# Pauses of at most 60 s: b answers in 5 s, which nobody recorded; a/1 begins with a's first reply.
TRACE = BlockTrace(
    64,
    (
        call("a", 0.0, 0.0, 2.0),
        call("a/1", 2.0, 0.0, 400.0),
        call("b", 30.0, 0.0, None),
        call("a", 62.0, 500.0, 1.0),
        call("b", 45.0, 10.0, 1.0),
        call("a", 70.0, 7.0, 1.0),
        call("a/1", 362.0, 1000.0, 1.0),
    ),
)


def times(trace: BlockTrace) -> list[tuple[str | None, float]]:
    return [(call.session, call.arrival_s) for call in trace.calls]


def test_with_the_pauses_that_its_times_were_made_of_a_trace_stays_as_it_is() -> None:
    assert times(with_pauses(TRACE, 60.0)) == sorted(times(TRACE), key=lambda each: each[1])


def test_longer_pauses_move_what_comes_after_them() -> None:
    assert times(with_pauses(TRACE, 600.0)) == [
        ("a", 0.0),
        ("a/1", 2.0),
        ("b", 30.0),
        ("b", 45.0),
        ("a", 502.0),
        ("a", 510.0),
        ("a/1", 902.0),  # the reply counts 300 s, the pause 600
    ]


def test_a_sub_agent_begins_with_the_reply_that_called_it_wherever_that_has_moved() -> None:
    late = BlockTrace(64, (*TRACE.calls[:1], TRACE.calls[3], call("a/2", 63.0, 0.0, 1.0)))
    assert times(with_pauses(late, 600.0)) == [("a", 0.0), ("a", 502.0), ("a/2", 503.0)]


def test_a_call_without_a_pause_comes_at_once() -> None:
    trace = BlockTrace(64, (call("a", 0.0, 0.0, 2.0), call("a", 9.0, None, 1.0)))
    assert times(with_pauses(trace, 60.0)) == [("a", 0.0), ("a", 2.0)]


@pytest.mark.parametrize("odd", [call("a", 0.0, None, 1.0), call(None, 0.0, 1.0, 1.0)])
def test_a_trace_without_pauses_is_refused(odd: BlockCall) -> None:
    with pytest.raises(TraceError, match="no sessions with recorded pauses"):
        with_pauses(BlockTrace(64, (odd,)), 60.0)
