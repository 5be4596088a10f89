"""The shapes of the answers, for the OpenAPI description."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

FinishReason = Literal["stop", "length", "abort"]
StopReason = str | int | None
STOP_REASON: StopReason = Field(
    None, description="The stop string, or the token of stop_token_ids, that ended the answer."
)


class Exact(BaseModel):
    """No other fields than these."""

    model_config = ConfigDict(extra="forbid")


class MatchEndBody(Exact):
    """Why no more of a prompt came from the prefix cache."""

    reason: str = Field(
        description="full: all that can be; cold: nothing goes on from here; diverged: the prompt "
        "leaves what is stored; evicted: it was stored once; in_flight: another request computes "
        "it right now; namespace: another of the tenant's namespaces stores it; short: less than "
        "a block; bypassed: the request did not read the cache; unknown: the hash index."
    )
    position: int = Field(ge=0, description="The token of the prompt where it ended.")
    cause: str | None = Field(
        description="With evicted, what took it: capacity, ttl, flush or fault."
    )
    lost_tokens: int = Field(ge=0, description="With evicted, tokens that were stored once.")
    branch_tokens: int = Field(
        ge=0, description="With diverged, the length of the stored branch that the prompt left."
    )


class PromptTokensDetails(Exact):
    """Where the prompt's tokens came from."""

    cached_tokens: int = Field(
        ge=0, description="Prompt tokens taken from the prefix cache, at most prompt_tokens - 1."
    )
    match_end: MatchEndBody | None = Field(
        description="Why no more of them; null: the request never started."
    )
    match_ends: list[MatchEndBody | None] | None = Field(
        None, description="With several prompts, of each; match_end is the first's."
    )


class CacheRetention(Exact):
    """What came of the wish to keep the prompt, or marked prefixes of it, in the cache."""

    retained_tokens: int = Field(ge=0, description="First tokens that are kept, whole blocks.")
    refused: str | None = Field(
        description="Why not all: limit, short (less than a block), not_stored, cache_mode (it "
        "stores nothing) or unavailable; null: all are."
    )
    id: str | None = Field(
        description="Of the longest kept prefix, for DELETE /v1/cache/retained/{id}; with several "
        "prompts the first one's."
    )


class UsageBody(Exact):
    """Token counts, summed over the prompts of the request, each once, and over all answers."""

    prompt_tokens: int = Field(ge=0, description="Tokens of the prompt.")
    completion_tokens: int = Field(ge=0, description="Tokens of the answers.")
    total_tokens: int = Field(ge=0, description="Both together.")
    prompt_tokens_details: PromptTokensDetails
    cache_retention: CacheRetention | None = Field(
        None, description="Where retention was asked for."
    )


class TextLogprobsBody(Exact):
    """The tokens of a choice, or of a piece of it, with their log-probabilities in the model's own
    distribution. With echo the prompt's come first."""

    tokens: list[str] = Field(description="As text; bytes:... where it is no whole character.")
    token_logprobs: list[float | None] = Field(
        description="At least -9999; null for the prompt's first token."
    )
    top_logprobs: list[dict[str, float] | None] = Field(
        description="The likeliest tokens in each one's place, and itself."
    )
    text_offset: list[int] = Field(description="Where each begins in the choice's text.")


class TextChoice(Exact):
    """One answer to one prompt, or a piece of it."""

    index: int = Field(
        ge=0, description="Answer j to prompt i of a request with n answers has i * n + j."
    )
    text: str
    logprobs: TextLogprobsBody | None = None
    finish_reason: FinishReason | None = Field(
        description="stop: end of text or a stop string; length: a limit; abort: the server ended; "
        "null: more follows."
    )
    stop_reason: StopReason = STOP_REASON


class TextCompletion(Exact):
    """A whole answer, or one event of a stream."""

    id: str
    object: Literal["text_completion"]
    created: int = Field(description="Seconds since 1970.")
    model: str
    choices: list[TextChoice]
    usage: UsageBody | None = None


class ErrorDetail(Exact):
    """What went wrong and what to do."""

    message: str
    type: str
    param: str | None = Field(description="The field it is about.")
    code: str | None = Field(description="A stable word for programs.")


class ErrorBody(Exact):
    """Every answer other than 200."""

    error: ErrorDetail


class ModelCard(Exact):
    """The served model."""

    id: str
    object: Literal["model"]
    created: int = Field(description="When the server started, seconds since 1970.")
    owned_by: str
    max_model_len: int = Field(description="The context's length in tokens, prompt and answer.")
    min_cacheable_tokens: int | None = Field(
        description="The fewest first tokens that a prompt can share with a stored one and be "
        "served from the cache; null: nothing is stored."
    )


class ModelList(Exact):
    """The one served model."""

    object: Literal["list"]
    data: list[ModelCard]


class Health(Exact):
    """Whether the process lives."""

    status: Literal["ok", "engine_stopped"]


class Ready(Exact):
    """Whether requests are taken."""

    status: Literal["ready", "loading", "shutting_down", "engine_stopped", "engine_wedged"]
    reason: str | None = Field(description="Why not, for people.")


class Freed(Exact):
    """What a flush has freed."""

    freed_blocks: int = Field(ge=0, description="Blocks given back; those in use are not.")


class KVInfo(Exact):
    """The KV memory."""

    blocks: int
    block_size: int = Field(description="Tokens per block.")
    tokens: int = Field(description="Tokens that fit.")
    bytes_per_token: int
    dtype: str = Field(description="How K and V are stored: bf16, fp32 or int8.")


class SchedulingInfo(Exact):
    """How requests are scheduled."""

    order: str = Field(description="Which waiting request is next, such as lpm.")
    fair: bool = Field(description="Whether tenants take turns.")
    max_step_tokens: int = Field(description="Tokens computed in one step.")
    max_running: int = Field(description="Requests that run at a time.")
    max_passed_by: int = Field(description="Later arrivals that may start before a waiting one.")
    max_waiting: int | None = Field(description="Requests that may wait; null: any number.")
    max_sessions: int | Literal["auto"] | None = Field(
        description="Conversations under way at a time; auto: as many as the memory holds; null: "
        "any number."
    )


class MemoryInfo(Exact):
    """The server process."""

    rss_bytes: int | None = Field(description="Memory that is resident now; null: not known.")
    peak_rss_bytes: int = Field(description="The most memory it ever had resident.")


class CacheInfo(Exact):
    """How prefixes are kept."""

    index: str = Field(description="tree or hash.")
    eviction: str = Field(description="Which prefix leaves when memory is needed, such as lru.")
    partial_blocks: bool = Field(description="Whether a hit ends at the exact token.")
    ttl_s: float | None = Field(description="Seconds after which what is idle leaves; null: never.")
    min_cacheable_tokens: int | None = Field(
        description="The fewest first tokens in common that can be served; null: nothing is cached."
    )


class HeadNoiseInfo(Exact):
    """What is taken out of the head of system prompts."""

    pattern: str = Field(description="A regular expression.")
    stripped: int = Field(ge=0, description="How often it was found so far.")


class HttpInfo(Exact):
    """Limits of the HTTP side."""

    max_body_bytes: int
    request_timeout_s: float | None = Field(description="The most a request may take; null: any.")
    wedged_after_s: float = Field(description="Seconds without a step after which /ready is 503.")


class StepsInfo(Exact):
    """Where the time of the engine's thread goes."""

    count: int = Field(description="Steps since the start.")
    mean_us: dict[str, float] = Field(
        description="Microseconds of a step, by part: commands, plan, copy, compute, sample, "
        "commit, hand_out, garbage."
    )
    longest_ms: float = Field(description="The longest step, in milliseconds.")
    stalled_s: float = Field(description="Seconds since a step ended; 0 while there is no work.")


class ServerInfo(Exact):
    """What is served, with what, and what it has done so far."""

    version: str
    uptime_s: float
    model: str
    kv: KVInfo
    context_length: int = Field(description="Tokens, prompt and answer together.")
    weights: str = Field(description="How they are stored: bf16, fp32, int8 or int4.")
    kernels: str = Field(
        description="What computes: a kind of compiled kernels (amx, avx512_bf16, avx512, avx2), "
        "flashinfer or torch-cuda on a GPU, torch, or transformers."
    )
    exact: bool = Field(description="Whether a cache hit never changes a bit of the logits.")
    prefix_cache: bool
    cache: CacheInfo
    head_noise: list[HeadNoiseInfo]
    scheduling: SchedulingInfo
    http: HttpInfo
    counters: dict[str, int] = Field(description="Sums since the start, in tokens and requests.")
    match_ends: dict[str, int] = Field(
        description="Requests that started, by why no more of their prompt was cached."
    )
    missed_tokens: dict[str, int] = Field(description="Their prompts' tokens not cached, by why.")
    hit_rate_curve: dict[str, float] = Field(
        description="The share of prompt tokens that LRU would have served, by multiples of this "
        "memory."
    )
    state: dict[str, int] = Field(description="Requests and blocks in each state now.")
    steps: StepsInfo
    memory: MemoryInfo


class Audit(Exact):
    """Whether every block of the KV memory has exactly one owner."""

    problems: list[str] = Field(description="What is wrong, one line each; empty: nothing.")
