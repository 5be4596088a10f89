"""What FlashInfer's plans and launches say, and whether a step made those that it should."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["append", "attention", "merge of splits", "merge of levels", "other"]

# What the names of FlashInfer's kernels contain, and what each is for.
_KINDS: tuple[tuple[str, Kind], ...] = (
    ("AppendPagedKVCache", "append"),
    ("WithPagedKVCacheKernel", "attention"),
    ("VariableLengthMergeStates", "merge of splits"),
    ("MergeStateInPlace", "merge of levels"),
)
# Of a card of capability 9.0.
_MOST_THREADS = 1024
_MOST_SHARED_BYTES = 227 * 1024
_MOST_BLOCKS = (2**31 - 1, 65_535, 65_535)


class Launch(NamedTuple):
    """A recorded launch: the kernel's name as it is in the program, thread blocks and threads."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int

    @property
    def kind(self) -> Kind:
        """What it computes."""
        return next((kind for part, kind in _KINDS if part in self.kernel), "other")

    @property
    def fits(self) -> bool:
        """Whether the card would take it."""
        x, y, z = self.block
        return (
            all(1 <= n <= most for n, most in zip(self.grid, _MOST_BLOCKS, strict=True))
            and min(self.block) >= 1
            and x * y * z <= _MOST_THREADS
            and self.shared_bytes <= _MOST_SHARED_BYTES
        )


@dataclass(frozen=True, slots=True)
class PlanInfo:
    """What a wrapper keeps of a plan. ``rows`` are partial results, if the contexts are ``split``;
    the sums that belong to them begin at ``sums_at`` bytes of the workspace."""

    split: bool
    rows: int
    sums_at: int

    @classmethod
    def read(cls, info: Sequence[int]) -> PlanInfo:
        """Of the integers that FlashInfer 0.6.18 plans: 15 for tensor cores, 10 without.

        Raises ValueError for any other number of them.
        """
        if len(info) == 15:
            return cls(bool(info[14]), info[0] * info[3], info[11])
        if len(info) == 10:
            return cls(bool(info[9]), info[0], info[2])
        raise ValueError(f"a plan of 10 or 15 integers was expected, not {list(info)}")

    def workspace_bytes(self, num_heads: int) -> int:
        """Of the floating-point workspace, what the plan uses: 4 bytes behind the last sum."""
        return self.sums_at + num_heads * self.rows * 4 if self.split else 0


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share a plan, and the plan of each level (two in a cascade)."""

    layers: int
    levels: tuple[PlanInfo, ...]


def expected(groups: Sequence[Group]) -> Counter[Kind]:
    """The launches of a step by kind: in each layer K and V are appended once and attended to once
    a level; what was split, and the levels, is merged."""
    return +Counter[Kind](
        {
            "append": sum(group.layers for group in groups),
            "attention": sum(group.layers * len(group.levels) for group in groups),
            "merge of splits": sum(
                group.layers * sum(level.split for level in group.levels) for group in groups
            ),
            "merge of levels": sum(group.layers * (len(group.levels) - 1) for group in groups),
        }
    )


def step_problems(
    launches: Sequence[Launch], groups: Sequence[Group], copies: int, windows: int
) -> list[str]:
    """What is wrong with a step that has ``windows`` different windows; nothing: all is well.

    ``copies``: how often planning has copied its integers to the device.
    """
    problems = []
    if len(groups) != windows:
        problems.append(f"{len(groups)} plans for {windows} windows")
    levels = sum(len(group.levels) for group in groups)
    if copies != levels:
        problems.append(f"{copies} copies of plans, not {levels}")
    made, wanted = Counter(launch.kind for launch in launches), expected(groups)
    for kind in sorted(made | wanted):
        if made[kind] != wanted[kind]:
            problems.append(f"{made[kind]} launches of {kind}, not {wanted[kind]}")
    problems += [f"the card would refuse {launch}" for launch in launches if not launch.fits]
    return problems
