"""bench-agent: the same agents with the prefix cache on and off, side by side."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from workloads.agents import report
from workloads.agents.client import CallFailed
from workloads.agents.generated import agent_sessions
from workloads.agents.measures import equal_replies, prompts_differ
from workloads.agents.options import AgentOptions
from workloads.agents.replay import own_replies
from workloads.agents.run import Run, measured_run
from workloads.own_server import (
    RunningServer,
    ServerFailed,
    free_port,
    log_tail,
    own_server,
    server_command,
)
from workloads.results import write_results
from workloads.traces.arrival import with_times
from workloads.traces.delta_chat import Selection, select_sessions
from workloads.traces.lines import TraceError
from workloads.traces.session import Session, with_replies

NAME = "bench-agent"
OpenServer = Callable[[bool], AbstractContextManager[RunningServer]]


@dataclass(frozen=True, slots=True)
class Plan:
    """The sessions to replay and, in words, where they come from."""

    sessions: tuple[Session, ...]
    title: str
    notes: tuple[str, ...]


def bench_agent(options: AgentOptions, open_server: OpenServer | None = None) -> int:
    """Run the benchmark; returns the exit status: 0, or 1 where something was wrong.

    ``open_server`` starts a server for one run, given whether its prefix cache is on; by default
    one of our own, or the one at ``options.url``.
    """
    try:
        plan = make_plan(options)
    except TraceError as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 1
    print("\n".join((f"{NAME}: {plan.title}", *(f"  {note}" for note in plan.notes))), flush=True)
    runs, problems = _all_runs(options, plan, open_server or _opener(options))
    if runs:
        _print_tables(runs)
        problems += _cross_checks(runs)
        _write(options, plan, runs, problems)
    for problem in problems:
        print(f"{NAME}: FAILED: {problem}", file=sys.stderr)
    return 1 if problems else 0


def make_plan(options: AgentOptions) -> Plan:
    """The sessions that the options ask for, with their times. Raises TraceError."""
    how = (
        f"arrival {options.arrival}, {options.concurrency} in flight, think time "
        f"{options.think_time_s:g} s, up to {options.max_tokens} tokens a reply, greedy, "
        f"seed {options.seed}"
    )
    if options.trace is None:
        sessions = agent_sessions(options.agents, options.turns, options.seed)
        title = f"{options.agents} agents x {options.turns} turns"
        notes = ["history: text; the engine's own replies, and the same ones again in a second run"]
    else:
        selection = select_sessions(options.trace, options.sessions, options.max_turns)
        sessions = selection.sessions
        calls = sum(len(session.calls) for session in sessions)
        title = f"{options.trace}: {len(sessions)} sessions, {calls} calls"
        notes = ["history: text; the recorded replies, and the engine's own where none is recorded"]
        notes += _selection_notes(selection)
    timed = with_times(sessions, options.arrival, options.think_time_s, options.seed)
    return Plan(timed, title, (how, *notes))


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


def _opener(options: AgentOptions) -> OpenServer:
    if options.url is not None:
        running = RunningServer(options.url)
        return lambda cache: nullcontext(running)

    def start(cache: bool) -> AbstractContextManager[RunningServer]:
        port, label = free_port(), "on" if cache else "off"
        command = server_command(port, ["--prefix-cache", label, *options.server_options])
        log = options.output / f"{NAME}-server-{label}.log"
        print(f"starting a server, cache {label} (log: {log})", file=sys.stderr, flush=True)
        return own_server(command, port, log)

    return start


def _all_runs(
    options: AgentOptions, plan: Plan, open_server: OpenServer
) -> tuple[list[Run], list[str]]:
    """The runs that gave a measurement, and what went wrong. Stops at the first failure."""
    runs: list[Run] = []
    problems: list[str] = []
    sessions = plan.sessions
    for cache in options.caches if options.url is None else (True,):
        try:
            with open_server(cache) as server:
                run = asyncio.run(
                    measured_run(
                        server,
                        sessions,
                        max_tokens=options.max_tokens,
                        concurrency=options.concurrency,
                        warm_up=options.url is None,
                        flush=options.url is None or options.flush,
                    )
                )
                log = server.log
        except (ServerFailed, CallFailed) as error:
            problems.append(str(error))
            break
        if run.replay.records:
            runs.append(run)
        problem = _run_problem(run, cache, options)
        if problem:
            tail = f"\nthe end of {log}:\n{log_tail(log)}" if log and run.replay.failure else ""
            problems.append(problem + tail)
            break
        sessions = with_replies(sessions, own_replies(run.replay.records))
    return runs, problems


def _run_problem(run: Run, cache: bool, options: AgentOptions) -> str | None:
    if run.replay.failure:
        return f"cache {run.label}: the replay ended early: {run.replay.failure}"
    if not run.replay.records:
        return f"cache {run.label}: no call was answered, every prompt was too long"
    if options.url is None and run.prefix_cache != cache:
        return (
            f"the server was started with its cache {'on' if cache else 'off'} and says otherwise"
        )
    return None


def _print_tables(runs: Sequence[Run]) -> None:
    print(f"\n{report.comparison_table(runs)}\n\n{report.turns_table(runs)}\n")
    for run in runs:
        if run.differences is None:
            print(f"counters, cache {run.label}: not compared, the run is not complete")
        elif not run.differences:
            print(f"counters, cache {run.label}: the server's and the client's sums agree")
        if run.replay.too_long:
            print(
                f"cache {run.label}: {len(run.replay.too_long)} sessions ended early, a prompt did "
                f"not fit: {', '.join(run.replay.too_long[:8])}"
            )
        if not run.flushed:
            print(f"cache {run.label}: not emptied before (--flush), first turns may have hit")


def _cross_checks(runs: Sequence[Run]) -> list[str]:
    """What contradicts: counters against sums, and the prompts of one run against the other's."""
    problems = [
        f"counters, cache {run.label}: server and client differ: {'; '.join(run.differences)}"
        for run in runs
        if run.differences
    ]
    if len(runs) == 2 and all(run.replay.failure is None for run in runs):
        first, second = (run.replay.records for run in runs)
        differing = prompts_differ(first, second)
        if differing:
            problems.append(f"the runs did not send the same prompts: {', '.join(differing[:8])}")
        same, pairs = equal_replies(first, second)
        print(f"both runs answered {pairs} calls; {same} replies are equal")
        if same < pairs:
            print(
                "replies may differ where two tokens are about equally likely: rounding depends on "
                "what is computed together, in bf16 more than in fp32"
            )
    return problems


def _write(options: AgentOptions, plan: Plan, runs: Sequence[Run], problems: Sequence[str]) -> None:
    # Imported here: it takes a second and only a finished run needs it.
    from workloads.agents.plot import draw

    data = {
        "workload": plan.title,
        "notes": plan.notes,
        "problems": list(problems),
        "runs": {run.label: report.run_data(run) for run in runs},
    }
    path = write_results(options.output, NAME, report.figures(runs), data)
    model = str(runs[0].server.get("model"))
    plot = options.output / f"{NAME}.png"
    draw(runs, f"{plan.title}, {model}", plot)
    print(f"written: {path}, {plot}", flush=True)
