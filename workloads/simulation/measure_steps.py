"""measure-steps: how long steps of the real model take, for the simulator's cost model."""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from tqdm import tqdm

from workloads.option_types import at_least
from workloads.simulation.cost import attended_pairs, fit
from workloads.simulation.step_file import MeasuredStep, write_steps

if TYPE_CHECKING:
    from radix_engine.model.served import ServedModel

NAME = "measure-steps"
STEPS = 60
FEWEST_STEPS = 12
REPEATS = 2
MOST_SEQUENCES = 64
MOST_PROMPT_TOKENS = 256
SHORTEST_CONTEXT, LONGEST_CONTEXT = 64, 2048
BLOCK_SIZE = 16


class Part(NamedTuple):
    """One sequence's part in a step: ``tokens`` of them behind ``start`` that are in memory."""

    start: int
    tokens: int


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The measure-steps command with its options."""
    parser = commands.add_parser(
        NAME,
        help="time random steps of the model, for simulate --fit",
        description=f"Loads a model and times random steps (up to {MOST_SEQUENCES} sequences, up "
        f"to {MOST_PROMPT_TOKENS} prompt tokens, contexts up to {LONGEST_CONTEXT:,} tokens), each "
        f"{REPEATS} times, of which the shorter counts. Writes a JSON line for each and prints the "
        "costs that explain them. Takes half a minute with the default model, and 1.5 GiB.",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="folder, .gguf file or hub id (default: the server's default model)",
    )
    parser.add_argument(
        "--steps",
        type=at_least(FEWEST_STEPS, whole=True),
        default=STEPS,
        metavar="N",
        help=f"steps to time, {FEWEST_STEPS} or more (default %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="decides the steps (default %(default)s)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("results/steps.jsonl"),
        metavar="FILE",
        help="where the steps go (default %(default)s)",
    )


def measure_steps(model: str | None, count: int, seed: int, output: Path) -> int:
    """Measure, write and print the fitted costs; returns the exit status."""
    # Imported here: torch takes seconds, and no other command of this program needs it.
    from radix_engine.model.errors import ModelError
    from server.loading import load_parts
    from server.options import EngineOptions

    try:
        loaded = load_parts(EngineOptions(model=model)).model
        longest = min(LONGEST_CONTEXT, loaded.context_length - MOST_PROMPT_TOKENS)
        steps = random_steps(count, seed, longest)
    except (ModelError, ValueError) as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 1
    measured = _timed(loaded, steps, seed)
    write_steps(output, measured)
    print(f"written: {output}")
    cost, off_by = fit(measured)
    print(f"costs, in seconds: {cost}; off by {off_by:.1%} (median)")
    return 0


def random_steps(count: int, seed: int, longest_context: int) -> list[list[Part]]:
    """Steps in turn of replies only, of one prompt's chunk only, and of both; sizes and contexts
    vary evenly on a log scale.

    Raises ValueError for a context that is too short to tell steps apart.
    """
    if longest_context < 2 * SHORTEST_CONTEXT:
        raise ValueError(
            f"contexts of at most {longest_context} tokens are too short, {2 * SHORTEST_CONTEXT} "
            "are needed besides the prompt's: measure a model with a longer context"
        )
    rng = Random(f"steps {seed}")

    def size(least: int, most: int) -> int:
        return round(math.exp(rng.uniform(math.log(least), math.log(most))))

    def replies() -> list[Part]:
        longest = size(SHORTEST_CONTEXT, longest_context)
        sequences = size(1, MOST_SEQUENCES)
        return [Part(rng.randint(longest // 2, longest), 1) for _ in range(sequences)]

    def prompt() -> list[Part]:
        return [Part(size(SHORTEST_CONTEXT, longest_context), size(16, MOST_PROMPT_TOKENS))]

    kinds = (replies, prompt, lambda: replies() + prompt())
    return [kinds[index % len(kinds)]() for index in range(count)]


def shape_of(parts: list[Part], seconds: float) -> MeasuredStep:
    """A step as the cost model sees it."""
    return MeasuredStep(
        computed=sum(part.tokens for part in parts),
        pairs=sum(attended_pairs(part.start, part.tokens) for part in parts),
        sequences=len(parts),
        seconds=seconds,
    )


def _timed(loaded: ServedModel, steps: list[list[Part]], seed: int) -> list[MeasuredStep]:
    from radix_engine.model.batch import Span

    most = max(sum(_blocks(part) for part in parts) for parts in steps)
    runner = loaded.make_runner(most, BLOCK_SIZE)
    rng = Random(f"tokens {seed}")
    # Memory that was never written is read faster.
    first = [rng.randrange(loaded.vocab_size) for _ in range(BLOCK_SIZE)]
    runner.forward([Span(first, 0, [0], 0)])
    runner.copy_rows([(0, block, BLOCK_SIZE) for block in range(1, most)])

    def spans(parts: list[Part]) -> list[Span]:
        # Blocks in random order, as a pool in use hands them out.
        free = rng.sample(range(most), most)
        made = []
        for part in parts:
            table = [free.pop() for _ in range(_blocks(part))]
            ids = [rng.randrange(loaded.vocab_size) for _ in range(part.tokens)]
            made.append(Span(ids, part.start, table, 1))
        return made

    runner.forward(spans(max(steps, key=lambda parts: sum(part.tokens for part in parts))))
    measured = []
    for parts in tqdm(steps, desc="steps", unit="step"):
        batch, times = spans(parts), []
        for _ in range(REPEATS):
            begun = time.perf_counter()
            runner.forward(batch)
            times.append(time.perf_counter() - begun)
        measured.append(shape_of(parts, min(times)))
    return measured


def _blocks(part: Part) -> int:
    return -(-(part.start + part.tokens) // BLOCK_SIZE)
