"""How an engine is set up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from radix_engine.cache import RULES
from scheduler import ORDERS, Limits
from server.chat.answer_forms import AUTO, REASONING_FORMS, TOOL_CALL_FORMS

BLOCK_SIZE = 16
DTYPES = ("auto", "bf16", "fp16", "fp32")
QUANTIZATIONS = ("int8", "int4")
KV_DTYPES = ("auto", "bf16", "fp16", "fp32", "fp8", "int8")
KERNELS = ("auto", "amx", "avx512_bf16", "avx512", "avx2", "torch")
ATTENTIONS = ("auto", "flashinfer", "torch")
LEAST_GPU_SHARE = 0.1
LEAST_STEP_TIMEOUT_S, MOST_STEP_TIMEOUT_S = 1.0, 86_400.0
TENSOR_PARALLEL = (1, 2, 4, 8)
TRANSCRIPT_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """How prefixes are kept.

    ``enabled`` False computes every prompt whole. ``index``: ``tree``, or ``hash`` for a flat index
    of block hashes, to compare with (no partial blocks, no choice of eviction, no tree to look at).
    ``eviction``: lru, lfu, slru, fifo, priority or agent. ``partial_blocks``: reuse the part of a
    block that two prompts share, by a copy. ``ttl_s``: seconds after which what nobody used leaves
    (None: when its room is needed).
    """

    enabled: bool = True
    index: Literal["tree", "hash"] = "tree"
    eviction: str = "lru"
    partial_blocks: bool = True
    ttl_s: float | None = None

    def __post_init__(self) -> None:
        if self.eviction not in RULES:
            raise ValueError(f"eviction must be one of {', '.join(RULES)}, not {self.eviction!r}")
        if self.index == "hash" and self.eviction != "lru":
            raise ValueError("eviction can be chosen for the tree only; the hash index has lru")


@dataclass(frozen=True, slots=True)
class TextOptions:
    """How chats become tokens, and answers parts.

    ``tool_call_form`` and ``reasoning_form``: in which form the model writes these; ``auto``: as
    its chat template tells. ``transcript_bytes``: what the tokens of earlier turns may take at
    most; 0 keeps none.
    """

    tool_call_form: str = AUTO
    reasoning_form: str = AUTO
    transcript_bytes: int = TRANSCRIPT_BYTES

    def __post_init__(self) -> None:
        for name, value, known in (
            ("tool_call_form", self.tool_call_form, TOOL_CALL_FORMS),
            ("reasoning_form", self.reasoning_form, REASONING_FORMS),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, not {value!r}")
        if self.transcript_bytes < 0:
            raise ValueError(
                f"transcript_bytes must be at least 0, not {self.transcript_bytes}; 0 keeps none"
            )


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What to serve and with what.

    ``model``: a folder, a .gguf file or a hub id; None for the default model. ``dtype`` of the
    weights: ``auto`` (bf16 where the processor or the GPU computes it natively, else fp32),
    ``bf16``, ``fp32`` or, on a GPU, ``fp16``. ``quantization``: keep them in int8 or int4 in place
    of it. ``kv_dtype`` of K and V: ``auto`` (as ``dtype``), bf16, fp16, fp32, on a processor int8,
    and on a GPU with FlashInfer fp8. ``kernels`` of the processor: ``auto``, ``torch`` or a kind of
    compiled kernels; any but ``auto`` leaves a GPU aside. ``attention``:
    ``flashinfer`` (on a GPU, or not at all), ``torch`` (on a GPU if there is one) or ``auto``, the
    fastest there is. ``exact``: refuse to start where a cache hit could change bits.
    ``kv_memory``: a size such as ``2GiB``, a share such as ``25%`` (of the free memory, or of the
    room on a GPU), or None for the default. ``gpu_memory_utilization``: the share of a GPU's memory
    that all takes together, 0.1 to 1. ``threads``: of the model, at most; None for all processors
    this process may use. ``tensor_parallel``: processes that the model is divided among, 1, 2, 4 or
    8, each with a GPU of its own where there is any; ``kv_memory`` is then that of each GPU,
    and a step that takes longer than ``step_timeout_s`` counts as lost, and the engine with it.
    ``order``: which of the waiting requests starts first: lpm, dfs, hrrn, fcfs or priority.
    ``fair``: tenants take turns. ``text``: of chats and answers.
    """

    model: str | None = None
    dtype: str = "auto"
    quantization: str | None = None
    kv_dtype: str = "auto"
    kernels: str = "auto"
    attention: str = "auto"
    exact: bool = False
    kv_memory: str | None = None
    gpu_memory_utilization: float = 0.9
    threads: int | None = None
    tensor_parallel: int = 1
    step_timeout_s: float = 60.0
    cache: CacheOptions = field(default_factory=CacheOptions)
    limits: Limits = field(default_factory=Limits)
    order: str = "lpm"
    fair: bool = False
    text: TextOptions = field(default_factory=TextOptions)

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ValueError(f"order must be one of {', '.join(ORDERS)}, not {self.order!r}")
        for name, value, known in (
            ("dtype", self.dtype, DTYPES),
            ("quantization", self.quantization, (None, *QUANTIZATIONS)),
            ("kv_dtype", self.kv_dtype, KV_DTYPES),
            ("kernels", self.kernels, KERNELS),
            ("attention", self.attention, ATTENTIONS),
            ("tensor_parallel", self.tensor_parallel, TENSOR_PARALLEL),
        ):
            if value not in known:
                raise ValueError(
                    f"{name} must be one of {', '.join(map(str, known))}, not {value!r}"
                )
        if self.attention != "auto" and self.kernels not in ("auto", self.attention):
            raise ValueError(
                f"attention {self.attention} does not go with kernels {self.kernels}, which run "
                "on the processor and attend by themselves: leave one of the two out"
            )
        if not LEAST_GPU_SHARE <= self.gpu_memory_utilization <= 1:
            raise ValueError(
                f"gpu_memory_utilization must lie between {LEAST_GPU_SHARE} and 1, "
                f"not {self.gpu_memory_utilization}"
            )
        if not LEAST_STEP_TIMEOUT_S <= self.step_timeout_s <= MOST_STEP_TIMEOUT_S:
            raise ValueError(
                f"step_timeout_s must lie between {LEAST_STEP_TIMEOUT_S:g} and "
                f"{MOST_STEP_TIMEOUT_S:g}, not {self.step_timeout_s}"
            )
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads must be at least 1, not {self.threads}")
