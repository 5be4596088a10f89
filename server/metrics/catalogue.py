"""Every metric that is exported: its name, kind, unit and meaning. `docs/operations.md` lists them.

Names end in the unit, in base units (seconds, bytes, tokens, blocks); counters have ``_total``
after it. What `/server_info` counts under a name is exported under that name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PREFIX = "radix_"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. ``name``: without the prefix, and without what its kind appends (``_total``,
    ``_bucket``, ``_info``). ``unit``: empty for plain counts."""

    name: str
    kind: Literal["counter", "gauge", "histogram", "info"]
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """The name of the family."""
        return PREFIX + self.name

    @property
    def shown_name(self) -> str:
        """The name that one asks Prometheus for; of a histogram, what its three series begin
        with."""
        suffix = {"counter": "_total", "info": "_info"}.get(self.kind, "")
        return self.full_name + suffix


def _counter(name: str, unit: str, meaning: str, *labels: str) -> Metric:
    return Metric(name, "counter", unit, meaning, labels)


def _gauge(name: str, unit: str, meaning: str, *labels: str) -> Metric:
    return Metric(name, "gauge", unit, meaning, labels)


def _histogram(name: str, unit: str, meaning: str, *labels: str) -> Metric:
    return Metric(name, "histogram", unit, meaning, labels)


# By their names among the engine's counters.
COUNTED = {
    "steps": _counter("steps", "", "Steps computed."),
    "prompt_tokens": _counter(
        "prompt_tokens", "tokens", "Prompt tokens of requests, counted once, when a request starts."
    ),
    "cached_tokens": _counter(
        "cached_tokens",
        "tokens",
        "Of these, those served from the cache at that moment.",
    ),
    "cached_late_tokens": _counter(
        "cached_late_tokens",
        "tokens",
        "Prompt tokens found in the cache after a preemption, and not computed before it.",
    ),
    "computed_tokens": _counter(
        "computed_tokens", "tokens", "Prompt tokens run through the model for the first time."
    ),
    "recomputed_tokens": _counter(
        "recomputed_tokens", "tokens", "Tokens run through the model again after a preemption."
    ),
    "generated_tokens": _counter("generated_tokens", "tokens", "Tokens sampled for answers."),
    "requests_finished": _counter(
        "requests_finished",
        "",
        "Requests of the scheduler that got their answer: each answer, each beam is one.",
    ),
    "requests_aborted": _counter(
        "requests_aborted",
        "",
        "Requests of the scheduler that ended without: hung up, late, out of memory.",
    ),
    "preemptions": _counter(
        "preemptions", "", "Times that a request gave its blocks back to go on later."
    ),
    "evicted_blocks": _counter(
        "evicted_blocks", "blocks", "Cached blocks taken back because their room was needed."
    ),
    "expired_blocks": _counter(
        "expired_blocks", "blocks", "Cached blocks taken back because of --cache-ttl."
    ),
    "duplicate_blocks": _counter(
        "duplicate_blocks",
        "blocks",
        "Blocks computed that another request had stored meanwhile; freed at once.",
    ),
    "withdrawn_blocks": _counter(
        "withdrawn_blocks", "blocks", "Blocks promised to other requests and then not computed."
    ),
    "repeated_releases": _counter(
        "repeated_releases", "", "Leases given back twice: harmless, but a fault of the server."
    ),
    "flushes": _counter("flushes", "", "Times that the cache was emptied."),
    "transcript_prompts": _counter(
        "transcript_prompts",
        "",
        "Chats of which tokens were known from earlier turns, and were not made from the text.",
    ),
    "transcript_reused_tokens": _counter(
        "transcript_reused_tokens", "tokens", "Their tokens that were known."
    ),
}

MATCH_ENDS = _counter(
    "match_ends", "", "Requests started, by why no more of their prompt was cached.", "reason"
)
MISSED_TOKENS = _counter(
    "missed_tokens", "tokens", "Prompt tokens that were not cached at the start, by why.", "reason"
)
STEP_SECONDS = _counter(
    "step_seconds", "seconds", "Time of the engine's thread in steps, by part.", "part"
)

RUNNING = _gauge("running_requests", "requests", "Requests of the scheduler that hold blocks.")
WAITING = _gauge("waiting_requests", "requests", "Requests of the scheduler in the queue.")
KV_BLOCKS = _gauge(
    "kv_blocks",
    "blocks",
    "Blocks by who owns them: free, private, in_flight, cached, quarantined. Their sum is all.",
    "state",
)
EVICTABLE_BLOCKS = _gauge("evictable_blocks", "blocks", "Cached blocks that no request uses.")
RETAINED_BLOCKS = _gauge("retained_blocks", "blocks", "Cached blocks that retentions cover.")
KV_CAPACITY_TOKENS = _gauge("kv_capacity_tokens", "tokens", "Tokens that the KV memory holds.")
KV_CAPACITY_BYTES = _gauge("kv_capacity_bytes", "bytes", "The size of the KV memory.")
KV_USED_TOKENS = _gauge("kv_used_tokens", "tokens", "Room for tokens in blocks that are not free.")
TRANSCRIPT_BYTES = _gauge(
    "transcript_bytes", "bytes", "Memory for tokens of earlier turns, see --transcript-memory."
)
SESSIONS = _gauge("sessions", "", "Sessions that are known, by the names that clients gave them.")
LRU_HIT_RATIO = _gauge(
    "lru_hit_ratio",
    "ratio",
    "Share of prompt tokens that an LRU cache of so many times this memory would have served.",
    "memory",
)
STALLED_SECONDS = _gauge(
    "stalled_seconds",
    "seconds",
    "Time since the engine last ended a step while it has work; 0 when it has none.",
)
LONGEST_STEP_SECONDS = _gauge("longest_step_seconds", "seconds", "The longest step so far.")
READY = _gauge("ready", "", "1 when /ready says 200, else 0.")
OPEN_REQUESTS = _gauge("open_requests", "requests", "HTTP requests for answers being dealt with.")

REQUESTS = _counter(
    "requests",
    "",
    "HTTP requests for answers that have ended. outcome: completed, refused, failed, aborted (by "
    "the server's end), hung_up. tenant: empty without keys.",
    "endpoint",
    "outcome",
    "tenant",
)
REFUSALS = _counter(
    "refusals",
    "",
    "Requests for answers that were refused, and any that had no right to what they asked for, by "
    "the error's code.",
    "code",
)

HEAD_NOISE = _counter(
    "stripped_head_noise", "", "Pieces of noise taken off the head of system prompts."
)

NEAR_MISSES = _counter(
    "near_misses",
    "",
    "Requests that left a cached prefix at a place where such requests keep doing so, by what they "
    "differ in there.",
    "kind",
)
NEAR_MISS_TOKENS = _counter(
    "near_miss_tokens",
    "tokens",
    "Prompt tokens of these that were computed again although they are as in the cache.",
    "kind",
)

FIRST_TOKEN_SECONDS = _histogram(
    "time_to_first_token_seconds",
    "seconds",
    "From the request's arrival to its first token, each prompt once. cache: hit where any of the "
    "prompt was cached, else miss.",
    "cache",
)
INTER_TOKEN_SECONDS = _histogram(
    "inter_token_seconds", "seconds", "From one token of an answer to its next."
)
QUEUE_SECONDS = _histogram(
    "queue_seconds", "seconds", "From submission to the engine until a request starts."
)
REQUEST_SECONDS = _histogram(
    "request_seconds", "seconds", "From arrival to the end of the answer, of completed requests."
)
REQUEST_PROMPT_TOKENS = _histogram(
    "request_prompt_tokens", "tokens", "Prompt tokens of a completed request."
)
REQUEST_COMPLETION_TOKENS = _histogram(
    "request_completion_tokens", "tokens", "Completion tokens of a completed request."
)

BUILD = Metric(
    "build",
    "info",
    "",
    "What is served, and by which version of the server.",
    ("version", "model", "weights", "kv_dtype", "kernels"),
)

ALL = (
    *COUNTED.values(),
    MATCH_ENDS,
    MISSED_TOKENS,
    STEP_SECONDS,
    RUNNING,
    WAITING,
    KV_BLOCKS,
    EVICTABLE_BLOCKS,
    RETAINED_BLOCKS,
    KV_CAPACITY_TOKENS,
    KV_CAPACITY_BYTES,
    KV_USED_TOKENS,
    TRANSCRIPT_BYTES,
    SESSIONS,
    LRU_HIT_RATIO,
    STALLED_SECONDS,
    LONGEST_STEP_SECONDS,
    READY,
    OPEN_REQUESTS,
    REQUESTS,
    REFUSALS,
    HEAD_NOISE,
    NEAR_MISSES,
    NEAR_MISS_TOKENS,
    FIRST_TOKEN_SECONDS,
    INTER_TOKEN_SECONDS,
    QUEUE_SECONDS,
    REQUEST_SECONDS,
    REQUEST_PROMPT_TOKENS,
    REQUEST_COMPLETION_TOKENS,
    BUILD,
)
