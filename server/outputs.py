"""What comes out of the engine for a request, piece by piece, and what the engine is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from radix_engine.cache import MatchEnd
from radix_engine.model.sampling_params import SamplingParams
from radix_engine.model.token_logprob import TokenLogprob
from scheduler import Limits
from server.options import CacheOptions

PromptLogprobs = Sequence[TokenLogprob | None]


@dataclass(frozen=True, slots=True)
class Retained:
    """What came of ``GenerationParams.retain``: how many of the prompt's tokens are retained now,
    and a word for why not all that was asked for (None: all is): ``limit``, ``short`` (less than a
    block), ``not_stored``, ``cache_mode`` (it stores nothing) or ``unavailable`` (nor does the
    engine, or it cannot retain). ``id``: of the longest that is retained, to let it go by."""

    tokens: int
    refused: str | None = None
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one answer and its prompt. ``cached_tokens`` (of the prompt) is fixed at its
    first admission, and so is ``match_end``: why no more were cached (None before it). Several
    answers to a prompt share its tokens: ``prompt_tokens`` and ``cached_tokens`` count once.
    ``retained``: once the prompt is computed, if it was asked for. ``match_ends``: where these are
    the counts of several prompts, of each; ``match_end`` is then the first's.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    match_end: MatchEnd | None = None
    retained: Retained | None = None
    match_ends: tuple[MatchEnd | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """One piece of a request's answer number ``index``: what is new since the piece before.

    ``finish_reason`` is None while the answer goes on, then ``stop``, ``length`` (also: its time is
    over), ``abort`` or ``error``. ``score``: of an answer that a beam search found. ``logprobs``:
    one for each of ``token_ids``, if asked for. ``prompt_logprobs``: one for each token of the
    prompt (None for the first), on the first piece only. ``admitted_s``: when the request left the
    queue for the first time, on the clock of ``time.monotonic``; None before it. ``stop_reason``:
    the stop string or the token of ``stop_token_ids`` that ended the answer; None for all else.
    """

    request_id: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None
    usage: Usage
    error: str | None = None
    index: int = 0
    score: float | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    prompt_logprobs: PromptLogprobs | None = None
    admitted_s: float | None = field(default=None, compare=False)
    stop_reason: str | int | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer: number ``index`` to its prompt. ``score``: where a beam search found it.
    ``logprobs`` and ``prompt_logprobs``: see `Output`; None where they were not asked for.
    ``stop_reason``: see `Output`."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    usage: Usage
    error: str | None = None
    index: int = 0
    score: float | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None
    stop_reason: str | int | None = None


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine serves and with which memory. Sizes in tokens, blocks and bytes as named.

    ``weights``, ``kv_dtype``, ``kernels`` and ``exact``: see `ServedModel`. ``sampling`` is how the
    model's makers recommend to choose its tokens. ``limits`` (with the step's tokens settled),
    ``order`` and ``fair``: how requests are scheduled. ``cache``: how it was asked to be kept.
    """

    model: str
    context_length: int
    block_size: int
    num_blocks: int
    kv_bytes_per_token: int
    weights: str
    kv_dtype: str
    kernels: str
    exact: bool
    prefix_cache: bool
    sampling: SamplingParams = SamplingParams()
    cache: CacheOptions = field(default_factory=CacheOptions)
    limits: Limits = field(default_factory=Limits)
    order: str = "lpm"
    fair: bool = False

    @property
    def partial_blocks(self) -> bool:
        """Whether a cache hit ends at the exact token."""
        return self.cache.partial_blocks and self.cache.index == "tree"

    @property
    def retains(self) -> bool:
        """Whether prefixes can be retained, and made public."""
        return self.prefix_cache and self.cache.index == "tree"

    @property
    def min_cacheable_tokens(self) -> int | None:
        """The fewest first tokens that a request can have in common with a stored one and be served
        them; None where nothing is stored. What is stored are whole blocks in any case."""
        if not self.prefix_cache:
            return None
        return 1 if self.partial_blocks else self.block_size

    @property
    def kv_tokens(self) -> int:
        """Tokens that the KV memory holds."""
        return self.num_blocks * self.block_size

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt that can be answered with at least one token."""
        return min(self.context_length - 1, self.kv_tokens)
