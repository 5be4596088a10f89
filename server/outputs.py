"""What goes into the engine with a request and what comes out of it, piece by piece."""

from __future__ import annotations

from dataclasses import dataclass

from radix_engine.cache import DEFAULT, CacheMode, MatchEnd, Namespace
from radix_engine.model.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class GenerationParams:
    """How to answer a prompt.

    ``max_tokens`` is a limit on generated tokens; it is lowered to what fits in the context and in
    the KV memory, and the answer then ends with ``length``. ``sampling`` None is the model's own
    way (``EngineInfo.sampling``). ``stop`` strings end the answer and are not part of its text.
    ``namespace``: whose cached prefixes may be shared; ``cache_mode``: whether they are read, and
    whether this prompt's and answer's are stored. Raises ValueError naming the field.
    """

    max_tokens: int = 128
    sampling: SamplingParams | None = None
    stop: tuple[str, ...] = ()
    namespace: Namespace = DEFAULT
    cache_mode: CacheMode = CacheMode.DEFAULT

    def __post_init__(self) -> None:
        if not isinstance(self.max_tokens, int) or self.max_tokens < 1:
            raise ValueError(f"max_tokens must be a whole number from 1, not {self.max_tokens!r}")
        if not isinstance(self.stop, tuple) or not all(
            isinstance(text, str) and text for text in self.stop
        ):
            raise ValueError(f"stop must be a tuple of strings, none empty, not {self.stop!r}")


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request. ``cached_tokens`` (of the prompt) is fixed at its first
    admission, and so is ``match_end``: why no more were cached (None before it).
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    match_end: MatchEnd | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """One piece of a request's answer: what is new since the piece before.

    ``finish_reason`` is None while the request runs, then ``stop``, ``length``, ``abort`` or
    ``error``.
    """

    request_id: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None
    usage: Usage
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    usage: Usage
    error: str | None = None


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine serves and with which memory. Sizes in tokens, blocks and bytes as named.

    ``sampling`` is how the model's makers recommend to choose its tokens.
    """

    model: str
    context_length: int
    block_size: int
    num_blocks: int
    kv_bytes_per_token: int
    dtype: str
    prefix_cache: bool
    sampling: SamplingParams = SamplingParams()

    @property
    def kv_tokens(self) -> int:
        """Tokens that the KV memory holds."""
        return self.num_blocks * self.block_size

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt that can be answered with at least one token."""
        return min(self.context_length - 1, self.kv_tokens)
