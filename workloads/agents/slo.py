"""Limits on what a caller waits for, and the share of turns that keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workloads.agents.client import Answer
from workloads.agents.measures import decode_rate
from workloads.agents.replay import Replay


@dataclass(frozen=True, slots=True)
class Slo:
    """The most that a turn may take: to its first token, and on average from token to token (both
    in milliseconds; None: no limit). ``share`` of the turns have to keep both."""

    ttft_ms: float | None = None
    itl_ms: float | None = None
    share: float = 0.9

    def __bool__(self) -> bool:
        return self.ttft_ms is not None or self.itl_ms is not None

    def __str__(self) -> str:
        limits = (("TTFT", self.ttft_ms), ("time between tokens", self.itl_ms))
        return " and ".join(f"{what} <= {ms:g} ms" for what, ms in limits if ms is not None)

    def kept_by(self, answer: Answer) -> bool:
        """Whether a turn keeps both limits. One token has no time between tokens to keep."""
        rate = decode_rate(answer)
        slow = self.itl_ms is not None and rate is not None and 1000 / rate > self.itl_ms
        late = self.ttft_ms is not None and answer.ttft_s * 1000 > self.ttft_ms
        return not slow and not late


def kept_share(slo: Slo, replays: Sequence[Replay]) -> float | None:
    """The share of all turns that keep the limits; None without a limit or a turn.

    A turn that a server was too busy for keeps none; one whose prompt fits no context is no turn.
    """
    kept = sum(slo.kept_by(r.answer) for replay in replays for r in replay.records)
    turns = sum(len(replay.records) + replay.refused_turns for replay in replays)
    return kept / turns if slo and turns else None


def highest_rate(shares: Mapping[float, float | None], share: float) -> float | None:
    """The highest rate up to which each rate keeps at least ``share``; None where the lowest does
    not."""
    best = None
    for rate, kept in sorted(shares.items()):
        if kept is None or kept < share:
            break
        best = rate
    return best
