"""One call of a trace, as every format's reader gives it; or why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.traces.session import Call


@dataclass(frozen=True, slots=True)
class Row:
    """``mapped_roles`` and ``ignored`` say what reading it changed or left out.

    ``time_s``: when the call was made, in seconds of any clock, and ``reply_s`` how long its reply
    took; None where the trace does not say. ``earlier_reply``: the history in this call shows what
    its session's call before was answered, which that call's own row did not have.
    """

    session_id: str
    call: Call
    mapped_roles: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    time_s: float | None = None
    reply_s: float | None = None
    earlier_reply: str | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An object of a trace that has no call to replay; ``why`` is counted."""

    why: str
