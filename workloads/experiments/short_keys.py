"""hash16: what does a cache serve that finds blocks by a short hash?"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

from radix_engine.cache import TOKEN_BYTES, PrefixCache
from radix_engine.cache.flat import FlatCache
from workloads.experiments.experiment import Experiment, Outcome, Settings
from workloads.experiments.made import requests_of
from workloads.experiments.panel import Line, Panel
from workloads.experiments.serving import Index, serve
from workloads.generators.shared_heads import multi_prefix_zipf
from workloads.results import Figure, table
from workloads.simulation.load import LoadRequest

BLOCK = 16
BLOCKS = 4096
_STEPS = 20  # values of a line in the picture


class ShortKeys(FlatCache):
    """The flat cache with keys of so many bits, the first of its SHA-256."""

    def __init__(self, num_blocks: int, block_size: int, bits: int) -> None:
        super().__init__(num_blocks, block_size)

        def short(data: bytes) -> bytes:
            return (int.from_bytes(sha256(data).digest(), "big") >> (256 - bits)).to_bytes(
                32, "big"
            )

        self._digest = short


CACHES: dict[str, Callable[[int], Index]] = {
    "16 bits": lambda blocks: ShortKeys(blocks, BLOCK, 16),
    "20 bits": lambda blocks: ShortKeys(blocks, BLOCK, 20),
    "24 bits": lambda blocks: ShortKeys(blocks, BLOCK, 24),
    "256 bits": lambda blocks: FlatCache(blocks, BLOCK),
    "tree": lambda blocks: PrefixCache(blocks, BLOCK, partial_blocks=False),
}


@dataclass(slots=True)
class Truth:
    """Knows what was computed into every block: the tokens up to its end. Counts blocks that a
    request reads though its own tokens are others, and requests that read such a block."""

    block_size: int = BLOCK
    wrong_blocks: int = 0
    wrong_requests: int = 0
    _tokens: dict[int, bytes] = field(default_factory=dict)  # by block, a digest of them

    def seen(self, run: bytes, table: array[int], own: array[int]) -> None:
        """A request of this prompt reads the blocks of its table; it computed its ``own``."""
        step, computed = self.block_size * TOKEN_BYTES, set(own)
        wrong = 0
        digest = sha256()
        for at, block in enumerate(table):
            digest.update(run[at * step : (at + 1) * step])
            name = digest.digest()
            if block in computed:
                # A short key can put one block into two places of a table; the first computed it.
                computed.discard(block)
                self._tokens[block] = name
            wrong += self._tokens[block] != name
        self.wrong_blocks += wrong
        self.wrong_requests += wrong > 0


def count_wrong(cache: Index, requests: list[LoadRequest]) -> tuple[Truth, list[int]]:
    """Serve the requests in turn; what went wrong, and after each request how many were wrong."""
    truth, sums = Truth(cache.block_size), []
    for request in requests:
        serve(cache, request.prompt, truth.seen)
        sums.append(truth.wrong_requests)
    return truth, sums


def run(settings: Settings, sessions: int = 2000) -> Outcome:
    """Serve the same requests by keys of several lengths, and by the tree."""
    requests = requests_of(multi_prefix_zipf(settings.seed, sessions), settings.seed)
    every = max(1, sessions // _STEPS)
    marks = [*range(every, sessions + 1, every)]
    found = {name: count_wrong(make(BLOCKS), requests) for name, make in CACHES.items()}
    figures, lines, rows = {}, [], []
    for name, (truth, sums) in found.items():
        key = name.replace(" ", "_")
        figures[f"wrong_requests.{key}"] = Figure(truth.wrong_requests, "requests", "lower", None)
        figures[f"wrong_blocks.{key}"] = Figure(truth.wrong_blocks, "blocks", "lower", None)
        rows.append([name, f"{truth.wrong_requests:,}", f"{truth.wrong_blocks:,}"])
        label = f"{name}: {truth.wrong_requests:,}"
        lines.append(Line(label, marks, [sums[mark - 1] for mark in marks]))
    data = {
        "sessions": sessions,
        "blocks": BLOCKS,
        "block_tokens": BLOCK,
        "wrong_requests": {name: sums for name, (_, sums) in found.items()},
    }
    return Outcome(
        figures,
        data,
        table(["keys", "requests served wrongly", "blocks of other tokens"], rows),
        f"{sessions:,} requests, 8 system prompts by Zipf, {BLOCKS:,} blocks of {BLOCK} tokens",
        [
            Panel(
                "requests that read K and V of other tokens than theirs",
                "requests served",
                "served wrongly so far",
                lines,
            )
        ],
    )


EXPERIMENT = Experiment("what does a cache serve that finds blocks by a short hash?", run)
