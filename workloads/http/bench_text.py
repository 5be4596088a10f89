"""bench-text: what prompts of 128k tokens do to others' streams and to /health."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from tqdm import tqdm

from radix_engine.model.errors import ModelError
from radix_engine.model.source import resolve_model
from server.text import TextCodec
from workloads.http.text_load import KINDS, PROMPTS, TOKENS, bodies, long_texts, path_of
from workloads.http.text_model import KV_BYTES_PER_TOKEN, write_model
from workloads.http.text_run import STREAMS, Round, Watch, measure_round
from workloads.http.wire import BadAnswer
from workloads.option_types import at_least
from workloads.own_server import ServerFailed, free_port, own_server, server_command
from workloads.results import Figure, figures_table, table, write_results

NAME = "bench-text"
GOAL_MS = 50.0
ROUNDS = 5
_FIRST_LOOK_S = 2.0  # before the first round, whose length nobody knows
_KV_BYTES = 2 * TOKENS * KV_BYTES_PER_TOKEN  # one prompt fits, and the streams

NOTES = (
    f"{STREAMS} streams run, as many as the server runs at a time, while {PROMPTS} prompts of "
    f"{TOKENS:,} tokens come at once: texts for completions, texts for chats, token ids; seen by a "
    "client on the same machine",
    "added: the longest gap of any stream while the prompts are made ready, less the longest one "
    "in as long a time before; the figure is the median of the rounds of the worst kind",
    "/health: the longest answer of a round, asked about every 10 ms; likewise",
)

Rounds = Mapping[str, Sequence[Round]]
"""By kind of prompt."""


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """The bench-text command with its options."""
    parser = commands.add_parser(
        NAME,
        help="what long prompts do to others' streams while they are tokenized",
        description=f"Starts a server with a small random model, {STREAMS} streams that run on and "
        f"on, and sends {PROMPTS} prompts of {TOKENS:,} tokens at once: texts, chats and token "
        f"ids. Prints the longest gaps (milliseconds) and writes {NAME}.json. Takes a minute, and "
        "2 GB of memory.",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="folder, .gguf file or hub id whose tokenizer is used (default: the server's default "
        "model)",
    )
    parser.add_argument(
        "--rounds",
        type=at_least(1, whole=True),
        default=ROUNDS,
        metavar="N",
        help="rounds with each kind of prompt, after one that does not count (default %(default)s)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="folder for results and the server's log (default %(default)s)",
    )
    return parser


def bench_text(output: Path, model: str | None = None, rounds: int = ROUNDS) -> int:
    """Measure, print and write; returns the exit status."""
    try:
        folder = resolve_model(model)
        encode = TextCodec(folder.path).encode
        texts = long_texts(encode, PROMPTS, TOKENS)
        sent = {kind: bodies(kind, texts, encode) for kind in KINDS}
        with tempfile.TemporaryDirectory() as name:
            served = write_model(folder, Path(name) / "model")
            options = ["--model", str(served), "--kv-memory", str(_KV_BYTES)]
            options += ["--max-running", str(STREAMS), "--log-level", "warning"]
            port = free_port()
            command = server_command(port, options)
            with own_server(command, port, output / f"{NAME}-server.log"):
                found = asyncio.run(measure(port, sent, rounds))
    except (ModelError, ServerFailed, BadAnswer, OSError, ValueError) as error:
        print(f"{NAME}: FAILED: {error}", file=sys.stderr)
        return 1
    figures = figures_of(found)
    data = {
        "notes": NOTES,
        "tokens": [len(encode(text)) for text in texts],
        "rounds": {kind: [_round_data(each) for each in found[kind]] for kind in found},
    }
    path = write_results(output, NAME, figures, data)
    print("\n".join(NOTES))
    print(f"\n{rounds_table(found)}\n\n{figures_table(figures)}\nwritten: {path}")
    return 0


async def measure(port: int, sent: Mapping[str, Sequence[bytes]], rounds: int) -> Rounds:
    """Send all bodies of a kind at once, so many times, and see what becomes of others."""
    watch = Watch(port)
    await watch.start()
    found: dict[str, list[Round]] = {}
    try:
        for kind in tqdm(sent, desc=NAME, unit="kind"):
            path, before_s = path_of(kind), _FIRST_LOOK_S
            for _ in range(1 + rounds):
                each = await measure_round(watch, port, path, sent[kind], before_s)
                before_s = each.seconds
                found.setdefault(kind, []).append(each)
            del found[kind][0]
    finally:
        watch.stop()
    return found


def figures_of(found: Rounds) -> dict[str, Figure]:
    """The medians of the worst kind, and each kind's."""
    added = {kind: statistics.median(each.gap_added for each in found[kind]) for kind in found}
    health = {
        kind: statistics.median(each.during.longest_health for each in found[kind])
        for kind in found
    }
    figures = {
        "stream_gap_added_ms": Figure(max(added.values()), "ms", "lower", GOAL_MS),
        "health_ms": Figure(max(health.values()), "ms", "lower", GOAL_MS),
    }
    for kind in found:
        key = kind.replace(" ", "_")
        figures[f"{key}_gap_added_ms"] = Figure(added[kind], "ms", "lower")
        figures[f"{key}_health_ms"] = Figure(health[kind], "ms", "lower")
        seconds = statistics.median(each.seconds for each in found[kind])
        figures[f"{key}_ready_s"] = Figure(seconds, "s", "lower")
    return figures


def rounds_table(found: Rounds) -> str:
    """A line for each round."""
    head = ("kind", "ready s", "gap before ms", "gap ms", "added ms", "/health ms")
    lines = [
        (
            kind,
            f"{each.seconds:.2f}",
            f"{each.before.longest_gap:.1f}",
            f"{each.during.longest_gap:.1f}",
            f"{each.gap_added:.1f}",
            f"{each.during.longest_health:.1f}",
        )
        for kind in found
        for each in found[kind]
    ]
    return table(head, lines)


def _round_data(each: Round) -> dict[str, object]:
    return {
        "seconds": each.seconds,
        "gap_added_ms": each.gap_added,
        "before": _window_data(asdict(each.before)),
        "during": _window_data(asdict(each.during)),
    }


def _window_data(window: Mapping[str, Sequence[float]]) -> dict[str, object]:
    return {
        name: {"count": len(values), "median": statistics.median(values), "longest": max(values)}
        for name, values in window.items()
    }
