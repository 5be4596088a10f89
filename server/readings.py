"""An engine's counts and times at a moment, for whoever shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from radix_engine.cache import PrefixCache
from radix_engine.cache.flat import FlatCache
from scheduler import Scheduler
from server.cache_choice import blocks_of, curve_of
from server.chat.transcripts import Transcripts
from server.step_times import PARTS, StepTimes


@dataclass(frozen=True, slots=True)
class Readings:
    """What an engine has counted since its start, and its state now.

    ``counters``: tokens, blocks, requests and steps, see `scheduler.Counters` and `CacheCounters`,
    and what `Transcripts` counts.
    ``state``: requests and blocks in each state now. ``match_ends``: requests by why no more of
    their prompt was cached, ``missed_tokens``: what was not cached of these prompts.
    ``hit_rate_curve``: the share of prompt tokens that LRU would have served, by multiples of the
    memory; empty where the cache cannot tell. ``step_seconds``: by part, over ``timed_steps``;
    ``longest_step_s``: the longest of these. ``stalled_s``: how long ago a step last ended, while
    there is work; else 0.
    """

    counters: Mapping[str, int]
    state: Mapping[str, int]
    match_ends: Mapping[str, int] = field(default_factory=dict)
    missed_tokens: Mapping[str, int] = field(default_factory=dict)
    hit_rate_curve: Mapping[float, float] = field(default_factory=dict)
    step_seconds: Mapping[str, float] = field(default_factory=dict)
    timed_steps: int = 0
    longest_step_s: float = 0.0
    stalled_s: float = 0.0


def read(
    scheduler: Scheduler,
    cache: PrefixCache | FlatCache,
    times: StepTimes,
    *,
    unqueued: int,
    sessions: int,
    transcripts: Transcripts,
) -> Readings:
    """Look at everything. ``unqueued``: requests on their way to the queue. Any thread; never waits
    for the engine; some microseconds."""
    ends = scheduler.match_ends
    return Readings(
        counters={
            **asdict(scheduler.counters),
            **asdict(cache.counters),
            "transcript_prompts": transcripts.reused_prompts,
            "transcript_reused_tokens": transcripts.reused_tokens,
        },
        state={
            "running": scheduler.num_running,
            "waiting": scheduler.num_waiting + unqueued,
            "sessions": sessions,
            "transcript_bytes": transcripts.size_bytes,
            **blocks_of(cache),
        },
        match_ends={reason.value: count for reason, count in ends.requests.items()},
        missed_tokens={reason.value: count for reason, count in ends.missed_tokens.items()},
        hit_rate_curve=curve_of(cache),
        step_seconds=dict(zip(PARTS, times.seconds, strict=True)),
        timed_steps=times.steps,
        longest_step_s=times.longest_s,
        stalled_s=times.stalled_s(),
    )
