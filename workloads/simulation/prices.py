"""What prefill costs by the user's own figures: seconds of a GPU, and dollars."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from workloads.option_types import at_least


@dataclass(frozen=True, slots=True)
class Prices:
    """``prefill_tokens_per_s``: prompt tokens that the user's GPU computes in a second.
    ``gpu_hour_dollars``: what an hour of it costs. None: not told, and nothing is assumed."""

    prefill_tokens_per_s: float | None = None
    gpu_hour_dollars: float | None = None

    def gpu_s(self, computed_tokens: float) -> float | None:
        """Seconds to compute so many tokens of prompts; None where the user told no rate."""
        rate = self.prefill_tokens_per_s
        return None if rate is None else computed_tokens / rate

    def dollars(self, gpu_s: float | None) -> float | None:
        """What so many seconds cost; None where the user told no price, or there are none."""
        if gpu_s is None or self.gpu_hour_dollars is None:
            return None
        return gpu_s * self.gpu_hour_dollars / 3600


def add_prices(group: argparse._ArgumentGroup) -> None:
    """The options."""
    group.add_argument(
        "--prefill-tokens-per-s",
        type=at_least(1e-9),
        metavar="N",
        help="prompt tokens that your GPU computes in a second: adds the seconds of prefill that "
        "each combination takes (default: with --gpu-hour-dollars those of the cost model's steps)",
    )
    group.add_argument(
        "--gpu-hour-dollars",
        type=at_least(0),
        metavar="DOLLARS",
        help="what an hour of your GPU costs you: adds what each combination costs (with --serial "
        "it needs --prefill-tokens-per-s)",
    )


def prices_of(args: argparse.Namespace) -> Prices:
    """What the user told."""
    return Prices(args.prefill_tokens_per_s, args.gpu_hour_dollars)
