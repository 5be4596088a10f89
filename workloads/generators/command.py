"""generate: a made-up workload, written as a trace file."""

from __future__ import annotations

import argparse
import gzip
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

import zstandard

from workloads.generators.catalogue import GENERATORS, planned
from workloads.generators.plan import size_of
from workloads.generators.text import delta_chat_lines, text_sessions
from workloads.option_types import at_least

NAME = "generate"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The generate command with its options."""
    names = "\n".join(
        f"  {name:<26}{generator.about} (default {generator.sessions} sessions)"
        for name, generator in GENERATORS.items()
    )
    parser = commands.add_parser(
        NAME,
        help="made-up workloads by seed, as trace files",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Writes a made-up workload as a trace in the delta-chat format, which "
        "bench-agent and simulate take.\nEqual options write equal bytes.\n\n" + names,
    )
    parser.add_argument("name", choices=tuple(GENERATORS), metavar="NAME", help="which workload")
    parser.add_argument(
        "--out",
        "--output",
        dest="output",
        type=Path,
        required=True,
        metavar="FILE",
        help="the file to write: .jsonl, or packed as .jsonl.gz or .jsonl.zst",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="decides everything (default %(default)s)"
    )
    parser.add_argument(
        "--sessions",
        type=at_least(1, whole=True),
        metavar="N",
        help="how many sessions (default: see above)",
    )
    parser.add_argument(
        "--rate",
        type=at_least(1e-6),
        default=1.0,
        metavar="X",
        help="sessions that arrive in a second, in the mean (default %(default)g)",
    )
    parser.add_argument(
        "--scale",
        type=at_least(1e-3),
        default=1.0,
        metavar="X",
        help="multiply all lengths, for a smaller or larger model (default %(default)g)",
    )


def generate(args: argparse.Namespace) -> int:
    """Write the file and say what is in it; returns the exit status."""
    # Planned anew for each purpose, so that none of it has to be held.
    plan = partial(planned, args.name, args.seed, args.sessions, rate=args.rate, scale=args.scale)
    calls = 0
    try:
        with _writer(args.output) as file:
            for line in delta_chat_lines(text_sessions(plan(), args.seed)):
                file.write(line)
                calls += 1
    except OSError as error:
        print(f"{NAME}: --out {args.output}: {error}", file=sys.stderr)
        return 1
    size = size_of(plan())
    print(
        f"{args.output}: {calls:,} calls of {sum(1 for _ in plan()):,} sessions, about "
        f"{size.prompt_tokens:,} prompt tokens, of which a cache without limit would serve "
        f"{size.share:.1%}"
    )
    return 0


@contextmanager
def _writer(path: Path) -> Iterator[IO[str]]:
    """A text file to write, packed by its ending; equal text gives equal bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        if path.suffix == ".gz":
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed:
                yield from _as_text(packed)
        elif path.suffix == ".zst":
            with zstandard.ZstdCompressor().stream_writer(file, closefd=False) as stream:
                yield from _as_text(stream)
        else:
            yield from _as_text(file)


def _as_text(
    file: IO[bytes] | gzip.GzipFile | zstandard.ZstdCompressionWriter,
) -> Iterator[IO[str]]:
    with io.TextIOWrapper(file, encoding="utf-8", newline="\n") as text:
        yield text
