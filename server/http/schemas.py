"""The shapes of the answers, for the OpenAPI description."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

FinishReason = Literal["stop", "length", "abort"]


class _Exact(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PromptTokensDetails(_Exact):
    """Where the prompt's tokens came from."""

    cached_tokens: int = Field(
        ge=0, description="Prompt tokens taken from the prefix cache, at most prompt_tokens - 1."
    )


class UsageBody(_Exact):
    """Token counts, summed over the prompts of the request, each once, and over all answers."""

    prompt_tokens: int = Field(ge=0, description="Tokens of the prompt.")
    completion_tokens: int = Field(ge=0, description="Tokens of the answers.")
    total_tokens: int = Field(ge=0, description="Both together.")
    prompt_tokens_details: PromptTokensDetails


class TextLogprobsBody(_Exact):
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


class TopLogprob(_Exact):
    """A token that could have come."""

    token: str = Field(description="Its text; bytes:... where it is no whole character.")
    logprob: float = Field(description="At least -9999.")
    bytes: list[int]


class ContentLogprob(TopLogprob):
    """A token of the answer, with the likeliest in its place."""

    top_logprobs: list[TopLogprob]


class ChatLogprobsBody(_Exact):
    """The tokens of a message, or of a piece of it, with their log-probabilities in the model's own
    distribution."""

    content: list[ContentLogprob]
    refusal: None = None


class TextChoice(_Exact):
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


class TextCompletion(_Exact):
    """A whole answer, or one event of a stream."""

    id: str
    object: Literal["text_completion"]
    created: int = Field(description="Seconds since 1970.")
    model: str
    choices: list[TextChoice]
    usage: UsageBody | None = None


class AnswerMessage(_Exact):
    """The assistant's message."""

    role: Literal["assistant"]
    content: str
    refusal: None = None


class ChatChoice(_Exact):
    """One answer to the conversation."""

    index: int = Field(ge=0, description="The number of the answer, from 0.")
    message: AnswerMessage
    logprobs: ChatLogprobsBody | None = None
    finish_reason: FinishReason


class ChatCompletion(_Exact):
    """A whole answer."""

    id: str
    object: Literal["chat.completion"]
    created: int = Field(description="Seconds since 1970.")
    model: str
    choices: list[ChatChoice]
    usage: UsageBody


class Delta(_Exact):
    """What a chunk adds to the message."""

    role: Literal["assistant"] | None = None
    content: str | None = None


class ChunkChoice(_Exact):
    """A piece of the answer."""

    index: int = Field(ge=0)
    delta: Delta
    logprobs: ChatLogprobsBody | None = None
    finish_reason: FinishReason | None


class ChatCompletionChunk(_Exact):
    """One event of a streamed answer; the stream ends with ``data: [DONE]``."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int = Field(description="Seconds since 1970.")
    model: str
    choices: list[ChunkChoice]
    usage: UsageBody | None = None


class ErrorDetail(_Exact):
    """What went wrong and what to do."""

    message: str
    type: str
    param: str | None = Field(description="The field it is about.")
    code: str | None = Field(description="A stable word for programs.")


class ErrorBody(_Exact):
    """Every answer other than 200."""

    error: ErrorDetail


class ModelCard(_Exact):
    """The served model."""

    id: str
    object: Literal["model"]
    created: int = Field(description="When the server started, seconds since 1970.")
    owned_by: str
    max_model_len: int = Field(description="The context's length in tokens, prompt and answer.")


class ModelList(_Exact):
    """The one served model."""

    object: Literal["list"]
    data: list[ModelCard]


class Health(_Exact):
    """Whether requests are taken."""

    status: Literal["ok", "shutting_down", "engine_stopped"]


class Freed(_Exact):
    """What a flush has freed."""

    freed_blocks: int = Field(ge=0, description="Blocks given back; those in use are not.")


class KVInfo(_Exact):
    """The KV memory."""

    blocks: int
    block_size: int = Field(description="Tokens per block.")
    tokens: int = Field(description="Tokens that fit.")
    bytes_per_token: int
    dtype: str = Field(description="How K and V are stored: bf16, fp32 or int8.")


class SchedulingInfo(_Exact):
    """How requests are scheduled."""

    order: str = Field(description="Which waiting request is next, such as lpm.")
    fair: bool = Field(description="Whether tenants take turns.")
    max_step_tokens: int = Field(description="Tokens computed in one step.")
    max_running: int = Field(description="Requests that run at a time.")
    max_passed_by: int = Field(description="Later arrivals that may start before a waiting one.")
    max_waiting: int | None = Field(description="Requests that may wait; null: any number.")


class MemoryInfo(_Exact):
    """The server process."""

    peak_rss_bytes: int = Field(description="The most memory it ever had resident.")


class ServerInfo(_Exact):
    """What is served, with what, and what it has done so far."""

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
    scheduling: SchedulingInfo
    counters: dict[str, int] = Field(description="Sums since the start, in tokens and requests.")
    state: dict[str, int] = Field(description="Requests and blocks in each state now.")
    memory: MemoryInfo


Tree = dict[str, Any]
