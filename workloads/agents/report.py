"""An agent benchmark's tables: what every target took, side by side, as rows of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workloads.agents.compared import Of, Result, against, pair_ratio
from workloads.agents.figures import WARM_TTFT_RATIO_GOAL, highest_rates, peak_mib
from workloads.agents.measures import Tokens, Turn
from workloads.agents.run import Run
from workloads.agents.slo import Slo
from workloads.results import Figure, goal_text, number

NOT_TOLD = "not told"
_WARM_TTFT = "TTFT p50, warm turns (ms)"


@dataclass(frozen=True, slots=True)
class Table:
    """A table's cells as text; the first column names the rows."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


_TIMES: tuple[tuple[str, Of], ...] = (
    (_WARM_TTFT, lambda run: run.summary.warm.p50_ms),
    ("TTFT p99, warm turns (ms)", lambda run: run.summary.warm.p99_ms),
    ("TTFT p50, first turns (ms)", lambda run: run.summary.cold.p50_ms),
    ("TTFT p99, first turns (ms)", lambda run: run.summary.cold.p99_ms),
    ("TTFT p50, all (ms)", lambda run: run.summary.all.p50_ms),
    ("TTFT p99, all (ms)", lambda run: run.summary.all.p99_ms),
)
_TOKENS: tuple[tuple[str, Of], ...] = (
    ("hit rate (cached / prompt)", lambda run: run.summary.tokens.hit_rate),
    ("prompt tokens", lambda run: run.summary.tokens.prompt),
    ("cached tokens", lambda run: run.summary.tokens.cached),
    ("computed tokens", lambda run: run.summary.tokens.computed),
    ("generated tokens", lambda run: run.summary.tokens.generated),
)
# What a server that leaves out zeros tells only a bound of, and which.
_BOUNDS = {"hit rate (cached / prompt)": "≥ ", "cached tokens": "≥ ", "computed tokens": "≤ "}
_REST: tuple[tuple[str, Of], ...] = (
    ("decode speed (tokens/s a stream)", lambda run: run.summary.decode_tps),
    ("time between tokens (ms)", lambda run: run.summary.inter_token_ms),
    ("whole call p50 (ms)", lambda run: run.summary.call_ms),
    ("wall time (s)", lambda run: run.replay.wall_s),
)
_SERVER: tuple[tuple[str, Of], ...] = (
    ("peak memory of the server (MiB)", peak_mib),
    ("start of the server (s)", lambda run: run.start_s),
)
# What only the server can tell.
_ASKED = {_SERVER[0][0], *dict(_TOKENS)}


def comparison_table(found: Sequence[Result], slo: Slo) -> Table:
    """One row a quantity, one column a target, then the ratios; with the cache on and off also the
    goal that a ratio has."""
    pairs = against(found)
    own = [(above.target, below.target) for above, below in pairs] == [("on", "off")]
    header = ["", *(result.title for result in found)]
    header += [f"{above.target} / {below.target}" for above, below in pairs]
    rows = []
    for name, of in (*_TIMES, *_TOKENS, *_REST, *_SERVER):
        ratios = [pair_ratio(of, *pair) for pair in pairs]
        row = [name, *(_cell(result, name, of) for result in found)]
        row += [number(ratio, 3) for ratio in ratios]
        if own:
            goal = WARM_TTFT_RATIO_GOAL if name == _WARM_TTFT and ratios[0] is not None else None
            row.append(goal_text(Figure(ratios[0] or 0.0, "ratio", "lower", goal)))
        rows.append(row)
    if slo:
        shares = [number(result.share(slo), 3) for result in found]
        rows.append([f"share of turns with {slo}", *shares])
    rows.append(["cache emptied before", *(_emptied(result) for result in found)])
    width = len(header) + own
    return Table(
        (*header, "goal") if own else tuple(header),
        tuple((*row, *[""] * (width - len(row))) for row in rows),
    )


def _cell(result: Result, name: str, of: Of) -> str:
    value = result.value(of)
    if value is None:
        return NOT_TOLD if name in _ASKED else "-"
    partly = any(run.summary.tokens.untold for run in result.runs)
    return (_BOUNDS.get(name, "") if partly else "") + number(value)


def _emptied(result: Result) -> str:
    words = {True: "yes", False: "no", None: "not possible"}
    return ", ".join(dict.fromkeys(words[run.emptied] for run in result.runs))


def turns_table(found: Sequence[Result]) -> Table:
    """One row a turn: calls, prompt tokens, and per target the hit rate and TTFT."""
    header = ["turn", "calls", "prompt tokens"]
    for result in found:
        name = result.title.removeprefix("cache ")
        header += [f"hit rate {name}", f"TTFT p50 {name} (ms)", f"p99 {name} (ms)"]
    turns = [{turn.turn: turn for turn in result.turns()} for result in found]
    rows = []
    for n in sorted(set().union(*turns)):
        present = next(by_number[n] for by_number in turns if n in by_number)
        row = [str(n), str(present.ttft.calls), number(present.tokens.prompt)]
        for by_number in turns:
            row += _turn_cells(by_number.get(n))
        rows.append(tuple(row))
    return Table(tuple(header), tuple(rows))


def _turn_cells(turn: Turn | None) -> list[str]:
    if turn is None:
        return ["-", "-", "-"]
    return [rate_text(turn.tokens), number(turn.ttft.p50_ms), number(turn.ttft.p99_ms)]


def rate_text(tokens: Tokens) -> str:
    """A hit rate for people, with what is not known of it."""
    if tokens.hit_rate is None:
        return NOT_TOLD
    return ("≥ " if tokens.untold else "") + number(tokens.hit_rate, 3)


def sweep_table(swept: dict[float, list[Result]], slo: Slo) -> Table:
    """One row a rate of arrivals: per target the share of turns within the limits, and times."""
    columns: list[tuple[str, Callable[[Result], str]]] = [
        ("TTFT p50 (ms)", lambda result: number(result.value(lambda run: run.summary.all.p50_ms))),
        ("p99 (ms)", lambda result: number(result.value(lambda run: run.summary.all.p99_ms))),
        (
            "between tokens (ms)",
            lambda result: number(result.value(lambda run: run.summary.inter_token_ms)),
        ),
        ("refused turns", lambda result: str(sum(run.replay.refused_turns for run in result.runs))),
    ]
    if slo:
        columns.insert(0, ("within limits", lambda result: number(result.share(slo), 3)))
    targets = [result.target for result in next(iter(swept.values()))]
    header = ["sessions/s"]
    for name in targets:
        header += [f"{name}: {what}" for what, _ in columns]
    rows = []
    for rate, found in swept.items():
        by_name = {result.target: result for result in found}
        row = [f"{rate:g}" + ("*" if any(result.resumed for result in found) else "")]
        for name in targets:
            result = by_name.get(name)
            row += ["-" if result is None else cell(result) for _, cell in columns]
        rows.append(tuple(row))
    return Table(tuple(header), tuple(rows))


def rate_lines(swept: dict[float, list[Result]], slo: Slo) -> list[str]:
    """For each target, the highest rate that keeps the limits, as a sentence."""
    if not (swept and slo):
        return []
    return [
        f"{name}: {slo.share:.0%} of the turns keep {slo} "
        + ("at none of these rates" if best is None else f"up to {best:g} sessions a second")
        for name, best in highest_rates(swept, slo).items()
    ]


def remarks(runs: Sequence[Run]) -> list[str]:
    """What a reader has to know of the runs beside their figures; what is said of several of them
    is said once."""
    said: dict[str, list[str]] = {}
    for run in runs:
        for text in _remarks(run):
            said.setdefault(text, []).append(_named(run))
    every = max(len(runs), 2)
    return [
        f"{'all' if len(names) == every else ', '.join(names)}: {text}"
        for text, names in said.items()
    ]


def _remarks(run: Run) -> list[str]:
    lines = []
    if run.resumed_after:
        times = ", ".join(f"{calls:,}" for calls in run.resumed_after)
        lines.append(
            f"* resumed after {times} of {len(run.replay.records):,} calls. A server that was "
            "started again had an empty cache then, one that kept running whatever it still held: "
            "the first call of each session after that may compute its history again, and the time "
            "in between is left out"
        )
    if too_long := run.replay.too_long:
        names = ", ".join(too_long[:8])
        ended = "1 session" if len(too_long) == 1 else f"{len(too_long)} sessions"
        lines.append(f"{ended} ended early, a prompt did not fit: {names}")
    if refused := run.replay.refused_turns:
        lines.append(f"too busy for {refused} turns (HTTP 429 or 503); they keep no limit")
    tokens = run.summary.tokens
    if tokens.cached is None:
        lines.append("cached tokens: not told")
    elif tokens.untold:
        lines.append(
            f"cached tokens: not told for {tokens.untold} calls, counted as none there (some "
            "servers leave a zero out)"
        )
    if run.emptied is None:
        lines.append("the cache could not be emptied before: no path for it, or not allowed")
    elif not run.emptied:
        lines.append("not emptied before (--flush), first turns may have hit")
    return [*lines, _counters(run)]


def _counters(run: Run) -> str:
    if run.differences:
        return "counters: the server's and the client's sums differ"
    if run.differences is not None:
        return "counters: the server's and the client's sums agree"
    if run.replay.failure is not None:
        return "counters: not compared, the run is not complete"
    return "counters: not told"


def _named(run: Run) -> str:
    name = f"cache {run.label}" if run.label in ("on", "off") else run.label
    at_rate = "" if run.leg.rate is None else f" at {run.leg.rate:g}/s"
    return name + at_rate + (f" (round {run.leg.round + 1})" if run.leg.round else "")
