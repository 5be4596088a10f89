"""bench-agent: the same agents against several servers, or with the prefix cache on and off."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from workloads.agents.arguments import NAME
from workloads.agents.journal import JournalError, open_journal
from workloads.agents.legs import OpenServer, contradictions, measure, replies_line
from workloads.agents.options import AgentOptions
from workloads.agents.output import print_tables, write_all
from workloads.agents.plan import fingerprint, make_plan
from workloads.agents.run import How, Run
from workloads.agents.targets import Target, parse_target
from workloads.own_server import RunningServer, free_port, own_server, server_command
from workloads.traces.lines import TraceError


def bench_agent(options: AgentOptions, open_server: OpenServer | None = None) -> int:
    """Run the benchmark; returns the exit status: 0, or 1 where something was wrong.

    ``open_server`` gives the server of a target for one replay; by default one of our own, or the
    one at the target's URL.
    """
    try:
        plan = make_plan(options.load)
        asked = fingerprint(plan, options.targets, _more(options))
        journal = open_journal(options.output / f"{NAME}.journal.jsonl", asked, options.resume)
    except (TraceError, JournalError) as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 1
    print("\n".join((f"{NAME}: {plan.title}", *(f"  {note}" for note in plan.notes))), flush=True)
    own = any(target.url is None for target in options.targets)
    how = How(
        max_tokens=plan.load.max_tokens,
        concurrency=plan.load.concurrency or len(plan.sessions),
        warm_up=own,
        empty=own or options.flush,
        refusals=bool(plan.load.rates),
    )
    try:
        opener = open_server or _opener(options)
        measured = measure(plan, options.targets, how, opener, journal, _as_started)
    finally:
        journal.close()
    runs, problems = _named(measured.runs, options.targets), measured.problems
    if runs:
        print_tables(runs, options.slo)
        problems += contradictions(runs)
        if len(runs) == 2 and not problems:
            print(replies_line(*runs))
        write_all(NAME, options.output, plan, runs, problems, options.slo, asked)
    for problem in problems:
        print(f"{NAME}: FAILED: {problem}", file=sys.stderr)
    if problems and runs:
        print(f"{NAME}: --resume goes on from what was answered", file=sys.stderr)
    return 1 if problems else 0


def _more(options: AgentOptions) -> dict[str, object]:
    return {
        "options of our servers": " ".join(options.server_options) or None,
        "flush": options.flush,
    }


def _opener(options: AgentOptions) -> OpenServer:
    def start(target: Target) -> AbstractContextManager[RunningServer]:
        if target.url is not None:
            return nullcontext(RunningServer(target.url))
        port = free_port()
        label = "on" if target.cache else "off"
        command = server_command(port, ["--prefix-cache", label, *options.server_options])
        log = options.output / f"{NAME}-server-{label}.log"
        print(f"starting a server, cache {label} (log: {log})", file=sys.stderr, flush=True)
        return own_server(command, port, log)

    return start


def _as_started(target: Target, run: Run) -> str | None:
    if target.url is None and run.prefix_cache != target.cache:
        label = "on" if target.cache else "off"
        return f"the server was started with its cache {label} and says otherwise"
    return None


def _named(runs: Sequence[Run], targets: Sequence[Target]) -> list[Run]:
    """The runs as they are shown: a single server that was given no name is called after its
    prefix cache, on or off, as one of our own is; where it does not tell, after its address."""
    url = targets[0].url
    told = {run.prefix_cache for run in runs} - {None}
    if len(targets) > 1 or url is None or parse_target(url).name != targets[0].name or not told:
        return list(runs)
    name = "on" if told == {True} else "off"
    return [replace(run, leg=replace(run.leg, target=name)) for run in runs]
