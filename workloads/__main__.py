"""Benchmarks and replays against the server: python -m workloads COMMAND."""

from __future__ import annotations

import argparse
import sys

from workloads import agent_options, bench_startup, bench_tree
from workloads.bench_agent import bench_agent
from workloads.own_server import ending_on_signals


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit status (130 after Ctrl-C)."""
    parser = argparse.ArgumentParser(
        prog="python -m workloads",
        description="Workloads for the server: benchmarks that replay sessions over HTTP, and one "
        "of the prefix tree by itself.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    agent = agent_options.add_parser(commands)
    bench_startup.add_parser(commands)
    bench_tree.add_parser(commands)
    args = parser.parse_args(arguments)
    try:
        with ending_on_signals():
            if args.command == "bench-agent":
                return bench_agent(agent_options.resolve(args, agent))
            if args.command == bench_tree.NAME:
                return bench_tree.bench_tree(args.output, args.leaves, args.seconds)
            command = bench_startup.startup_command(args.model)
            return bench_startup.bench_startup(args.output, command)
    except KeyboardInterrupt:
        print("\nstopped; nothing was written", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
