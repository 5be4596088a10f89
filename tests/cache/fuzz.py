"""``make fuzz``: random use of the prefix cache beside a plain model of it, for as long as wanted.

After every operation the full audit runs and the whole tree is compared. A failure prints the
shortest sequence of operations that shows it.
"""

from __future__ import annotations

import argparse
import logging
import secrets
import sys

import hypothesis
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from tqdm import tqdm

from radix_engine.cache import RULES
from tests.cache.machine import CacheMachine

# Stories of one round; each round has a seed of its own, derived from the one that is printed.
_STORIES = 400


def main(arguments: list[str] | None = None) -> int:
    """Play until enough operations have been played; 1 after a failure."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument(
        "--operations",
        type=int,
        default=1_000_000,
        metavar="N",
        help="operations on the cache to play in all; a million take about 20 minutes "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=None, help="of the first round (default: drawn, and printed)"
    )
    parser.add_argument(
        "--eviction",
        choices=list(RULES),
        default=None,
        help="play with this eviction rule only (default: with all)",
    )
    values = parser.parse_args(arguments)
    CacheMachine.only = values.eviction
    seed = secrets.randbits(32) if values.seed is None else values.seed
    logging.getLogger("radix_engine").setLevel(logging.ERROR)  # a second release is part of it
    print(f"seed {seed}")
    CacheMachine.operations = 0
    with tqdm(total=values.operations, unit="op", file=sys.stderr) as progress:
        rounds = 0
        while CacheMachine.operations < values.operations:
            try:
                play(seed + rounds)
            except BaseException:
                print(
                    f"failed after {CacheMachine.operations:,} operations; --seed {seed + rounds}"
                )
                raise
            rounds += 1
            progress.update(min(CacheMachine.operations, values.operations) - progress.n)
    print(f"{CacheMachine.operations:,} operations in {rounds} rounds from seed {seed}: no failure")
    return 0


def play(seed: int, stories: int = _STORIES) -> None:
    """One round: so many stories of up to 60 operations."""

    class Round(CacheMachine):
        pass

    hypothesis.seed(seed)(Round)
    run_state_machine_as_test(
        Round,
        settings=settings(
            max_examples=stories,
            stateful_step_count=60,
            deadline=None,
            database=None,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
