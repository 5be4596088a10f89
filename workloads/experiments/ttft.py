"""ttft-vs-hit-rate: the time to the first token, by how much of the prompt is cached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from statistics import linear_regression, median

from workloads.experiments.experiment import Experiment, Outcome, Settings
from workloads.experiments.panel import Line, Panel
from workloads.experiments.probe import Asked, Probe, engine_probe
from workloads.generators.draws import Draws
from workloads.generators.words import made_up_text
from workloads.results import Figure, table

PROMPT_TOKENS = 1024
SHARES = (0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 0.97)
ROUNDS = 7

OpenProbe = Callable[[str | None], AbstractContextManager[Probe]]


def run(
    settings: Settings,
    open_probe: OpenProbe = engine_probe,
    length: int = PROMPT_TOKENS,
    rounds: int = ROUNDS,
) -> Outcome:
    """Ask for prompts of one length, of which another share is stored each time, in an order by
    seed; every one is new behind that share."""
    with open_probe(settings.model) as probe:
        model = probe.model
        measured = _measure(probe, settings.seed, length, rounds)
    rates = [asked.cached_tokens / length for _, asked in measured]
    times = [asked.ttft_s * 1000 for _, asked in measured]
    # Medians, since whatever else the machine does now and then falls on single requests.
    middles = {
        share: median(
            ms for (wanted, _), ms in zip(measured, times, strict=True) if wanted == share
        )
        for share in SHARES
    }
    slope, cold = linear_regression(list(middles), list(middles.values()))
    figures = {
        "cold_ttft_ms": Figure(cold, "ms", "lower"),
        "fixed_ttft_ms": Figure(cold + slope, "ms", "lower"),
        "ms_per_computed_token": Figure(-slope / length, "ms", "lower"),
        "fit_r2": Figure(_r_squared(middles, cold, slope), "share", "higher"),
    } | {f"ttft_ms.{share:g}": Figure(ms, "ms", "lower") for share, ms in middles.items()}
    rows = [[f"{share:.1%}", f"{ms:,.0f}"] for share, ms in middles.items()]
    fit = f"{cold:,.0f} ms with nothing cached, {cold + slope:,.0f} ms with all"
    return Outcome(
        figures,
        {
            "model": model,
            "prompt_tokens": length,
            "measured": [[rate, ms] for rate, ms in zip(rates, times, strict=True)],
            "medians": {f"{share:g}": ms for share, ms in middles.items()},
        },
        table(["prompt cached", "TTFT, median (ms)"], rows) + f"\nstraight line: {fit}",
        f"{model}, prompts of {length:,} tokens, one at a time",
        [
            Panel(
                "time to first token",
                "share of the prompt that is cached",
                "milliseconds",
                [
                    Line("one request", rates, times, "points"),
                    Line(
                        f"line through the medians: {fit}",
                        [0.0, 1.0],
                        [cold, cold + slope],
                        "ceiling",
                    ),
                ],
                percent_x=True,
            )
        ],
    )


def _measure(probe: Probe, seed: int, length: int, rounds: int) -> list[tuple[float, Asked]]:
    """For each request, the share of its prompt that was stored before, and what was found."""
    stored = _tokens(probe, seed, "stored", length)
    probe.flush()
    for text in ("warm up", "warm up again"):  # the first steps of a process are slow
        probe.ask(_tokens(probe, seed, text, length))
    probe.ask(stored)
    order = Draws(seed, "ttft order").shuffled([share for share in SHARES for _ in range(rounds)])
    measured = []
    for number, share in enumerate(order):
        cut = round(length * share)
        new = _tokens(probe, seed, f"new {number}", length - cut)
        measured.append((share, probe.ask([*stored[:cut], *new])))
    return measured


def _tokens(probe: Probe, seed: int, name: str, count: int) -> list[int]:
    """So many tokens of made-up text."""
    tokens = list(probe.encode(made_up_text(seed, name, 2 * count + 8)))
    return tokens[:count]


def _r_squared(middles: Mapping[float, float], at_0: float, slope: float) -> float:
    """The share of the variance that a line explains."""
    mean = sum(middles.values()) / len(middles)
    left = sum((y - at_0 - slope * x) ** 2 for x, y in middles.items())
    whole = sum((y - mean) ** 2 for y in middles.values())
    return 1 - left / whole if whole else 1.0


EXPERIMENT = Experiment(
    "how does the time to the first token fall with the share of the prompt that is cached?",
    run,
    frozenset({"model"}),
)
