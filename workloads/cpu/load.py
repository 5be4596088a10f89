"""What an engine is asked to do at once, and what its times say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workloads.cpu.line_protocol import Sessions, Times


class EngineFailed(Exception):
    """An engine that cannot be used any further; the message says why."""


class LoadFailed(Exception):
    """A load that an engine could not do; it can go on with the next."""


@dataclass(frozen=True, slots=True)
class Load:
    """Prompts as token ids, and how many tokens to generate for each.

    Sessions run at once, the calls of a session one after the other. Greedy, to ``max_tokens``,
    past the end of the text.
    """

    sessions: Sessions
    max_tokens: int

    @property
    def kv_tokens(self) -> int:
        """The most tokens whose K and V are needed at once."""
        return sum(max(map(len, calls)) + self.max_tokens for calls in self.sessions)


@dataclass(frozen=True, slots=True)
class Outcome:
    """When the tokens of each call came, in seconds from the load's start, and its wall time."""

    sessions: tuple[tuple[Times, ...], ...]
    wall_s: float

    @property
    def tokens(self) -> int:
        """Tokens generated."""
        return sum(tokens for calls in self.sessions for _, _, tokens in calls)

    def ttft_ms(self) -> float:
        """Time to the first token of a load of one call."""
        ((first, _, _),) = self.sessions[0]
        return first * 1000

    def decode_tps(self) -> float:
        """Tokens a second after the first ones: (tokens - streams) / (last - first token time)."""
        calls = [call for calls in self.sessions for call in calls]
        seconds = max(last for _, last, _ in calls) - min(first for first, _, _ in calls)
        if seconds <= 0:
            raise LoadFailed("all tokens came at once: no rate can be told")
        return (self.tokens - len(calls)) / seconds

    def load_tps(self) -> float:
        """Tokens generated a second over the whole load."""
        return self.tokens / self.wall_s


def checked_outcome(
    load: Load, sessions: Sequence[Sequence[Sequence[float]]], wall_s: float
) -> Outcome:
    """An outcome whose calls and tokens are those that were asked for; else LoadFailed."""
    calls = tuple(tuple((f, last, int(n)) for f, last, n in each) for each in sessions)
    if [len(each) for each in calls] != [len(each) for each in load.sessions]:
        raise LoadFailed("the answer does not have the calls that were asked for")
    wrong = {n for each in calls for _, _, n in each if n != load.max_tokens}
    if wrong:
        raise LoadFailed(f"asked for {load.max_tokens} tokens a call, got {sorted(wrong)}")
    return Outcome(calls, float(wall_s))
