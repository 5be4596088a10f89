"""What is replayed: the sessions that options ask for, with their times, and that in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from workloads.agents.generated import agent_sessions
from workloads.agents.journal import Leg, sessions_digest
from workloads.agents.options import Load
from workloads.agents.targets import Target, in_turn
from workloads.traces.arrival import Arrival, with_times
from workloads.traces.reading import Selection, select_sessions
from workloads.traces.session import Session


@dataclass(frozen=True, slots=True)
class Plan:
    """The sessions to replay and, in words, where they come from. ``sessions`` have their times,
    except those of a sweep over rates, which `timed` gives them."""

    load: Load
    sessions: tuple[Session, ...]
    title: str
    notes: tuple[str, ...]

    def timed(self, rate: float | None) -> tuple[Session, ...]:
        """The sessions as they arrive at a rate (sessions a second, Poisson, the same random
        numbers for every rate); None: as the load says."""
        if rate is None:
            return self.sessions
        how = Arrival("poisson", rate)
        return with_times(self.sessions, how, self.load.think_time_s, self.load.seed)


def make_plan(load: Load) -> Plan:
    """The sessions of a load, with their times. Raises TraceError."""
    recorded = load.arrival.kind == "recorded" and not load.rates
    thinking = "as recorded" if recorded else f"{load.think_time_s:g} s"
    how = (
        f"arrival {_arrival(load)}, {load.concurrency or 'all'} in flight, think time "
        f"{thinking}, up to {load.max_tokens} tokens a reply, greedy, "
        f"seed {load.seed}"
    )
    if load.trace is None:
        sessions = agent_sessions(load.agents, load.turns, load.seed)
        title = f"{load.agents} agents x {load.turns} turns"
        notes = ["history: text; the first target's own replies, and the same ones for all others"]
    else:
        selection = select_sessions(load.trace, load.sessions, load.max_turns)
        sessions = selection.sessions
        calls = sum(len(session.calls) for session in sessions)
        # Traces are often called trace.jsonl, in a folder that says which.
        name = "/".join(load.trace.parts[-2:])
        title = f"{name}: {len(sessions)} sessions, {calls} calls"
        notes = ["history: text; the recorded replies, and the first target's where none is there"]
        notes += _selection_notes(selection)
    timed = with_times(sessions, load.arrival, load.think_time_s, load.seed)
    return Plan(
        replace(load, concurrency=load.concurrency or len(timed)), timed, title, (how, *notes)
    )


def all_legs(targets: Sequence[Target], load: Load) -> list[Leg]:
    """Every replay that is to be made, in order: rate by rate, round by round, each time another
    target first."""
    return [
        Leg(target.name, number, rate)
        for rate in load.rates or (None,)
        for number in range(load.rounds)
        for target in in_turn(targets, number)
    ]


def fingerprint(
    plan: Plan, targets: Sequence[Target], more: Mapping[str, object]
) -> dict[str, object]:
    """What a figure depends on, for a journal: the load, its sessions, and who is measured."""
    load = plan.load
    return dict(more) | {
        "targets": [f"{each.name}={each.url or 'started here'}" for each in targets],
        "model name": [each.model for each in targets],
        "sessions and their texts": sessions_digest(plan.sessions),
        "max tokens": load.max_tokens,
        "think time": load.think_time_s,
        "arrival": _arrival(load),
        "concurrency": load.concurrency,
        "seed": load.seed,
        "rounds": load.rounds,
    }


def _arrival(load: Load) -> str:
    if not load.rates:
        return str(load.arrival)
    return "poisson, " + ", ".join(f"{rate:g}" for rate in load.rates) + " sessions a second"


def _selection_notes(selection: Selection) -> list[str]:
    notes = []
    if selection.left_out_calls:
        notes.append(
            f"left out: {selection.left_out_sessions:,} whole sessions, "
            f"{selection.left_out_calls:,} calls in all (--sessions, --max-turns)"
        )
    if selection.mapped_roles:
        counts = ", ".join(f"{n:,} {role}" for role, n in sorted(selection.mapped_roles.items()))
        notes.append(f"messages sent as user under a heading: {counts}")
    if selection.ignored_fields:
        notes.append("fields of the trace not used: " + ", ".join(sorted(selection.ignored_fields)))
    return notes
