"""Makes every leg of a comparison in turn, and says what went wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from workloads.agents.client import CallFailed
from workloads.agents.journal import Journal
from workloads.agents.measures import equal_replies, prompts_differ
from workloads.agents.plan import Plan, all_legs
from workloads.agents.replay import own_replies
from workloads.agents.run import How, Run, measured_run, run_of
from workloads.agents.targets import Target
from workloads.own_server import RunningServer, ServerFailed, log_tail
from workloads.traces.session import with_replies

OpenServer = Callable[[Target], AbstractContextManager[RunningServer]]
Check = Callable[[Target, Run], str | None]


@dataclass(slots=True)
class Measured:
    """The runs that gave a measurement, in the order in which they were made, and what went
    wrong."""

    runs: list[Run] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def measure(
    plan: Plan,
    targets: Sequence[Target],
    how: How,
    open_server: OpenServer,
    journal: Journal,
    check: Check = lambda target, run: None,
) -> Measured:
    """Replay the plan's sessions in all legs; those that the journal has to their end are taken
    from there.

    The replies of the first leg are forced in all others, so all get the same prompts. ``check``
    may say what is wrong with a run. Stops at the first failure.
    """
    measured = Measured()
    by_name = {target.name: target for target in targets}
    replies: dict[tuple[str, int], str] = {}
    for leg in all_legs(targets, plan.load):
        kept, target = journal.kept(leg), by_name[leg.target]
        log = None
        if kept.finished is not None:
            run = run_of(leg, kept)
        else:
            sessions = with_replies(plan.timed(leg.rate), replies)
            try:
                with open_server(target) as server:
                    run = asyncio.run(measured_run(server, target, leg, sessions, how, journal))
                    log = server.log
            except (ServerFailed, CallFailed) as error:
                measured.problems.append(str(error))
                break
        if run.replay.records or run.replay.refused_turns:
            measured.runs.append(run)
        problem = _problem(run) or check(target, run)
        if problem:
            tail = f"\nthe end of {log}:\n{log_tail(log)}" if log and run.replay.failure else ""
            measured.problems.append(problem + tail)
            break
        replies = replies or own_replies(run.replay.records)
    return measured


def _problem(run: Run) -> str | None:
    if run.replay.failure:
        return f"{run.label}: the replay ended early: {run.replay.failure}"
    if not run.replay.records and not run.replay.refused_turns:
        return f"{run.label}: no call was answered, every prompt was too long"
    return None


def contradictions(runs: Sequence[Run]) -> list[str]:
    """Counters against sums, and the prompts of the first run against every other's."""
    problems = [
        f"counters, {run.label}: server and client differ: {'; '.join(run.differences)}"
        for run in runs
        if run.differences
    ]
    whole = [run for run in runs if run.replay.failure is None]
    for run in whole[1:]:
        differing = prompts_differ(whole[0].replay.records, run.replay.records)
        # A session may be refused at one rate and not at another.
        if differing and run.leg.rate is None:
            problems.append(
                f"{whole[0].label} and {run.label} did not answer the same prompts, so their "
                f"figures do not compare (fewer turns may fit both): {', '.join(differing[:8])}"
            )
    return problems


def replies_line(first: Run, second: Run) -> str:
    """How many replies of two runs are equal."""
    same, pairs = equal_replies(first.replay.records, second.replay.records)
    line = f"{first.label} and {second.label} both answered {pairs} calls; {same} replies are equal"
    if same < pairs:
        line += (
            "; they may differ where two tokens are about equally likely: rounding depends on what "
            "is computed together, in bf16 more than in fp32"
        )
    return line
