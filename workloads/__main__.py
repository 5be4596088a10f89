"""Benchmarks, replays and the simulator: python -m workloads COMMAND."""

from __future__ import annotations

import argparse
import sys

from server.one_line_parser import OneLineParser
from workloads import bench_startup
from workloads.agents import arguments as agent_arguments
from workloads.agents import options as agent_options
from workloads.agents.bench import bench_agent
from workloads.clients import check as client_check
from workloads.cpu import options as cpu_options
from workloads.cpu.bench import bench_cpu
from workloads.debug import bench as bench_debug
from workloads.experiments import command as experimenter
from workloads.generators import command as generator
from workloads.gpu import check, offline
from workloads.http import bench_text
from workloads.http import path_bench as bench_http
from workloads.own_server import Stopped, ending_on_signals
from workloads.peers import options as peer_options
from workloads.peers.bench import bench_peers
from workloads.results import folder_problem
from workloads.scheduling import bench as bench_scheduler
from workloads.simulation import arguments as sim_arguments
from workloads.simulation import kv_size, measure_steps
from workloads.simulation import options as sim_options
from workloads.simulation.orders import simulate_orders
from workloads.simulation.serial_command import simulate_serial
from workloads.simulation.serial_options import resolve_serial
from workloads.soak import options as soak_options
from workloads.soak.command import soak
from workloads.tree import bench as bench_tree


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit status (130 after Ctrl-C,
    143 after SIGTERM)."""
    parser: argparse.ArgumentParser = OneLineParser(
        prog="python -m workloads",
        description="Workloads for the server: benchmarks that replay sessions over HTTP, of the "
        "prefix tree and the scheduler by themselves, and a simulator of both.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    agent = agent_arguments.add_parser(commands)
    bench_startup.add_parser(commands)
    peers = peer_options.add_parser(commands)
    cpu = cpu_options.add_parser(commands)
    bench_tree.add_parser(commands)
    bench_scheduler.add_parser(commands)
    bench_http.add_parser(commands)
    soak_parser = soak_options.add_parser(commands)
    bench_text.add_parser(commands)
    bench_debug.add_parser(commands)
    simulation = sim_arguments.add_parser(commands)
    measure_steps.add_parser(commands)
    kv_size.add_parser(commands)
    check.add_parser(commands)
    offline.add_parser(commands)
    client_check.add_parser(commands)
    generator.add_parser(commands)
    experiment_parser = experimenter.add_parser(commands)
    args = parser.parse_args(arguments)
    if args.command == kv_size.NAME:
        return kv_size.kv_size(args.config, args.dtype, args.tokens, args.memory, args.block_size)
    is_file = args.command in (measure_steps.NAME, generator.NAME)
    folder = args.output.parent if is_file else args.output
    if problem := folder_problem(folder):
        parser.error(f"--output: {problem}")
    try:
        with ending_on_signals():
            if args.command == agent_arguments.NAME:
                return bench_agent(agent_options.resolve(args, agent))
            if args.command == peer_options.NAME:
                return bench_peers(peer_options.resolve(args, peers))
            if args.command == cpu_options.NAME:
                return bench_cpu(cpu_options.resolve(args, cpu))
            if args.command == bench_tree.NAME:
                return bench_tree.bench_tree(
                    args.output, args.leaves, args.seconds, eviction=args.eviction
                )
            if args.command == bench_scheduler.NAME:
                return bench_scheduler.bench_scheduler(args.output, args.waiting)
            if args.command == soak_options.NAME:
                return soak(soak_options.resolve(args, soak_parser))
            if args.command == bench_http.NAME:
                return bench_http.bench_http(args.output, args.rounds, args.seconds)
            if args.command == bench_text.NAME:
                return bench_text.bench_text(args.output, args.model, args.rounds)
            if args.command == bench_debug.NAME:
                return bench_debug.bench_debug(args)
            if args.command == sim_arguments.NAME and args.serial:
                return simulate_serial(resolve_serial(args, simulation))
            if args.command == sim_arguments.NAME:
                return simulate_orders(sim_options.resolve(args, simulation))
            if args.command == measure_steps.NAME:
                return measure_steps.measure_steps(args.model, args.steps, args.seed, args.output)
            if args.command == check.NAME:
                return check.check_gpu(args)
            if args.command == offline.NAME:
                return offline.check_gpu_offline(args.output, args.jobs)
            if args.command == client_check.NAME:
                return client_check.check_clients(args)
            if args.command == generator.NAME:
                return generator.generate(args)
            if args.command == experimenter.NAME:
                return experimenter.experiment(args, experiment_parser)
            command = bench_startup.startup_command(args.model)
            return bench_startup.bench_startup(args.output, command)
    except (KeyboardInterrupt, Stopped) as stop:
        kept = getattr(args, "resume", None) is not None
        told = "--resume goes on from what was answered" if kept else "nothing was written"
        print(f"\nstopped; {told}", file=sys.stderr)
        return int(stop.code or 0) if isinstance(stop, Stopped) else 130


if __name__ == "__main__":
    sys.exit(main())
