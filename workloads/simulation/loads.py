"""The load that simulate's options ask for, and what it is in words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workloads.simulation.block_load import block_load
from workloads.simulation.load import Load
from workloads.simulation.options import SimOptions
from workloads.simulation.shared_heads import Sizes, fewshot_load, zipf_load
from workloads.simulation.trace import trace_load
from workloads.traces.block_trace import read_block_trace


@dataclass(frozen=True, slots=True)
class Described:
    """A load, in words."""

    load: Load
    words: str


def make_load(options: SimOptions) -> Described:
    """The load. Raises TraceError."""
    if options.traces:
        return _block_load(options) if options.of_blocks else _text_load(options)
    sizes = Sizes(options.head_tokens, options.own_tokens, options.reply_tokens)
    words = f"{sizes.head:,} + {sizes.own:,} tokens, {sizes.reply:,} replied"
    if options.kind == "zipf":
        load = zipf_load(options.requests, options.heads, options.zipf_s, sizes, options.seed)
        heads = f"{options.heads:,} heads by Zipf({options.zipf_s:g})"
        about = f"{options.requests:,} requests, {heads}, {words}, load {options.load:g}"
        return Described(load, about)
    load = fewshot_load(options.heads, options.questions, sizes, options.seed)
    heads = f"{options.heads:,} heads x {options.questions:,} questions"
    return Described(load, f"{heads}, shuffled, all at the start, {words}")


def traces_named(paths: tuple[Path, ...]) -> str:
    """Files by folder and name: which trace, of whom."""
    names = (path.name.split(".")[0] for path in paths)
    return ", ".join(
        path.parent.name if name == "trace" else f"{path.parent.name}/{name}"
        for path, name in zip(paths, names, strict=True)
    )


def _text_load(options: SimOptions) -> Described:
    load, left_out = trace_load(
        options.traces,
        sessions=options.sessions,
        max_turns=options.max_turns,
        concurrency=options.concurrency,
        think_time_s=options.think_time_s,
        reply_tokens=options.reply_tokens,
        seed=options.seed,
    )
    return _described(load, left_out, options, f"{options.concurrency:,} in flight")


def _block_load(options: SimOptions) -> Described:
    made = block_load(
        read_block_trace(options.traces[0]),
        sessions=options.sessions or None,
        max_turns=options.max_turns or None,
        concurrency=options.concurrency or None,
        reply_tokens=options.reply_tokens,
    )
    pace = f"{options.concurrency:,} in flight" if options.concurrency else "at their times"
    return _described(made.load, made.left_out_calls, options, pace)


def _described(load: Load, left_out: int, options: SimOptions, pace: str) -> Described:
    calls = f"{left_out:,} calls left out" if left_out else "all"
    return Described(
        load,
        f"{traces_named(options.traces)}: {load.num_requests:,} calls of "
        f"{len(load.sessions):,} sessions ({calls}), {pace}",
    )
