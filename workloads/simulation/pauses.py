"""Longer or shorter pauses in a trace of block ids: its calls' times made anew from what was
recorded of each.

A call comes a pause after the reply before it in its session was done. A session that began the
moment a reply of its group was done, as a sub-agent does, begins then again.
"""

from __future__ import annotations

from dataclasses import replace

from workloads.traces.block_trace import BlockCall, BlockTrace
from workloads.traces.lines import TraceError

_UNKNOWN_REPLY_S, _LONGEST_REPLY_S = 5.0, 300.0
_SAME_MOMENT_S = 0.01


def with_pauses(trace: BlockTrace, longest_s: float) -> BlockTrace:
    """The trace with its recorded pauses, each of at most ``longest_s`` seconds, in the new order
    of its calls; none where a call lacks it. Raises TraceError where no pauses were recorded."""
    if all(call.pause_s is None for call in trace.calls) or any(
        call.session is None for call in trace.calls
    ):
        raise TraceError("the trace has no sessions with recorded pauses between their calls")
    last: dict[str, BlockCall] = {}  # by session, in the new times
    moved: dict[str, list[tuple[float, float]]] = {}  # by group, a reply's end before and now
    calls = []
    for call in trace.calls:
        session = call.session or ""
        group = session.split("/")[0]
        before = last.get(session)
        if before is not None:
            arrival = before.arrival_s + _reply_s(before) + min(call.pause_s or 0.0, longest_s)
        else:
            arrival = _start(call, moved.get(group, []))
        timed = replace(call, arrival_s=arrival)
        last[session] = timed
        ends = (call.arrival_s + _reply_s(call), arrival + _reply_s(call))
        moved.setdefault(group, []).append(ends)
        calls.append(timed)
    calls.sort(key=lambda call: call.arrival_s)
    return replace(trace, calls=tuple(calls))


def _start(call: BlockCall, moved: list[tuple[float, float]]) -> float:
    for before, now in reversed(moved):
        if abs(call.arrival_s - before) < _SAME_MOMENT_S:
            return now
    return call.arrival_s


def _reply_s(call: BlockCall) -> float:
    return _UNKNOWN_REPLY_S if call.reply_s is None else min(call.reply_s, _LONGEST_REPLY_S)
