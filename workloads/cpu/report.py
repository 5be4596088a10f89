"""The figures of bench-cpu: medians, ours against each peer's, and the goals."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from workloads.cpu.cases import Case, Contender
from workloads.results import Figure, goal_text, number, table

# In process against OpenVINO: the case's stem begins with this; ratio of ours to the peer's.
OPENVINO_GOALS: Mapping[str, float] = {
    "cold_ttft": 0.85,
    "warm_ttft": 0.55,
    "decode_1_short": 2.0,
    "decode_1_2k": 1.6,
    "decode_8_short": 1.4,
    "decode_8_2k": 2.5,
}
FASTER_THAN_VLLM = 2.5  # each case over HTTP
LLAMA_CPP_GOAL = 2.5  # decoding the same 4 bits
BUSY_GOAL = 1.0  # any peer, with one core kept busy by another process
UNSHARED_GOAL = 1.01  # wall time with the cache on over off, where nothing is shared
MEMORY_GOAL = 1.0  # of vLLM's

MEMORY, START_UP, UNSHARED = "peak_memory", "start_up", "cache_on_over_off_nothing_shared"


@dataclass(slots=True)
class Measured:
    """What a run has measured: values by case's stem and contender, a round after the other.

    ``unshared_s``: wall times with nothing shared, by contender. ``memory_mib`` and ``start_up_s``:
    by contender. ``left_out``: why a contender is not, or not fully, in it. ``skipped``: why a case
    is not.
    """

    values: dict[str, dict[Contender, list[float]]] = field(default_factory=dict)
    walls: dict[str, dict[Contender, list[float]]] = field(default_factory=dict)
    memory_mib: dict[Contender, float] = field(default_factory=dict)
    start_up_s: dict[Contender, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ours against one peer in one measure.

    ``ratio`` is ours over the peer's: the median of the rounds' ratios, since both ran within
    seconds of each other in a round.
    """

    key: str
    measure: str
    unit: str
    ours: float
    peer: str
    theirs: float
    ratio: Figure

    @property
    def times_better(self) -> float:
        """How many times better ours is, whichever way is better."""
        return 1 / self.ratio.value if self.ratio.better == "lower" else self.ratio.value

    @property
    def goal_times_better(self) -> float | None:
        """The goal in the same terms."""
        goal = self.ratio.goal
        return 1 / goal if goal is not None and self.ratio.better == "lower" else goal


def figures(cases: Sequence[Case], measured: Measured) -> dict[str, Figure]:
    """All figures by name: medians, then ratios with their goals."""
    found: dict[str, Figure] = {}
    for case in cases:
        for contender, values in measured.values.get(case.stem, {}).items():
            if case.kind == "unshared" and not contender.cache:
                continue
            unit = "tokens/s" if case.unit == "tps" else "ms"
            found[case.key(contender)] = Figure(statistics.median(values), unit, case.better)
    unshared = _unshared_ratio(measured)
    if unshared is not None:
        found[UNSHARED] = Figure(unshared, "ratio", "lower", UNSHARED_GOAL)
    for contender in measured.memory_mib:
        if contender.cache:
            key = _key(MEMORY, contender, "_mib")
            found[key] = Figure(round(measured.memory_mib[contender], 1), "MiB", "lower")
    for contender in measured.start_up_s:
        if contender.cache:
            key = _key(START_UP, contender, "_s")
            found[key] = Figure(measured.start_up_s[contender], "s", "lower")
    return found | {each.key: each.ratio for each in comparisons(cases, measured)}


def comparisons(cases: Sequence[Case], measured: Measured) -> list[Comparison]:
    """Ours against every peer that was measured in the same way."""
    found = []
    for case in cases:
        values = measured.values.get(case.stem, {})
        for theirs in values:
            ours = _rival(theirs, values)
            if ours is None:
                continue
            ratios = [a / b for a, b in zip(values[ours], values[theirs], strict=False)]
            goal = case_goal(case, theirs)
            figure = Figure(statistics.median(ratios), "ratio", case.better, goal)
            unit = "tokens/s" if case.unit == "tps" else "ms"
            pair = (statistics.median(values[ours]), statistics.median(values[theirs]))
            found.append(_comparison(case.stem, unit, ours, theirs, pair, figure))
    for stem, unit, single in (
        (MEMORY, "MiB", measured.memory_mib),
        (START_UP, "s", measured.start_up_s),
    ):
        for theirs in single:
            ours = _rival(theirs, single)
            if ours is None or not theirs.cache:
                continue
            wanted = MEMORY_GOAL if stem == MEMORY and theirs.engine == "vllm" else None
            figure = Figure(single[ours] / single[theirs], "ratio", "lower", wanted)
            found.append(
                _comparison(stem, unit, ours, theirs, (single[ours], single[theirs]), figure)
            )
    return found


def case_goal(case: Case, peer: Contender) -> float | None:
    """The ratio of ours to a peer's that is the goal in a case; None without one."""
    if case.busy:
        return BUSY_GOAL
    if peer.engine == "vllm":
        return 1 / FASTER_THAN_VLLM if case.better == "lower" else FASTER_THAN_VLLM
    if peer.engine == "llama.cpp":
        return LLAMA_CPP_GOAL if case.kind == "decode" else None
    for start, goal in OPENVINO_GOALS.items():
        if case.stem.startswith(start):
            return goal
    return None


def title_of(stem: str) -> str:
    """A measure's name for people."""
    words = stem.split("_")
    if words[0] == "decode":
        streams = f"{words[1]} stream" + ("" if words[1] == "1" else "s")
        return ", ".join(
            ["decode", streams, words[2], *([" ".join(words[3:])] if words[3:] else [])]
        )
    if words[1:2] == ["ttft"]:
        counts = " of ".join(f"{int(word):,}" for word in words[2:] if word.isdigit())
        return f"{words[0]} TTFT, {counts} tokens"
    return " ".join(words)


def comparison_table(found: Sequence[Comparison]) -> str:
    """Ours and each peer's side by side, with the ratio and its goal."""
    rows = [
        (
            f"{each.measure} ({each.unit})",
            number(each.ours),
            each.peer,
            number(each.theirs),
            number(each.ratio.value, 3),
            goal_text(each.ratio),
        )
        for each in found
    ]
    return table(("measure", "ours", "peer", "peer's", "ratio", "goal"), rows)


def _rival(theirs: Contender, among: Mapping[Contender, object]) -> Contender | None:
    """Ours that a peer is compared with: by the same door, with the same bits."""
    if theirs.engine == "ours":
        return None
    for each in among:
        same = (each.door, each.bits) == (theirs.door, theirs.bits)
        if each.engine == "ours" and each.cache and same:
            return each
    return None


def _comparison(
    stem: str,
    unit: str,
    ours: Contender,
    theirs: Contender,
    pair: tuple[float, float],
    figure: Figure,
) -> Comparison:
    key = _key(stem, theirs, "_ratio")
    how = (" 4-bit" if theirs.bits == 4 else "") + (" over HTTP" if theirs.door == "http" else "")
    measure = title_of(stem) + how
    return Comparison(key, measure, unit, pair[0], theirs.engine, pair[1], figure)


def _key(stem: str, contender: Contender, unit: str) -> str:
    bits = "_q4" if contender.bits == 4 else ""
    return f"{stem}{bits}{unit}{contender.suffix}"


def _unshared_ratio(measured: Measured) -> float | None:
    """Wall time with the cache on over off, the median of the rounds' ratios."""
    for walls in measured.walls.values():
        on = next((v for c, v in walls.items() if c.cache), None)
        off = next((v for c, v in walls.items() if not c.cache), None)
        if on and off:
            return statistics.median(a / b for a, b in zip(on, off, strict=False))
    return None
