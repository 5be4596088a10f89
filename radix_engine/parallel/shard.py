"""Which part of a model each of several processes has. Numbers only.

::

    rank          0                 1
    qkv, gate_up  its heads' rows   its heads' rows      each rank computes some of the outputs
    output, down  its columns       its columns          each has a part of every output's sum
    head          first half        second half          each has the logits of some of the tokens
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from radix_engine.model.config import ModelConfig
from radix_engine.model.errors import ModelError


@dataclass(frozen=True, slots=True)
class Shard:
    """One rank's part of a model.

    ``query_heads`` and ``kv_heads`` of each layer, with all query heads of a KV head on one rank;
    ``inner``: of the MLP's intermediate size; ``vocabulary``: rows of the head. All ranks have
    equally many of each, so where the vocabulary does not divide, the last ranges reach past its
    end: those rows are padding.
    """

    rank: int
    size: int
    query_heads: range
    kv_heads: range
    inner: range
    vocabulary: range


def shard_of(config: ModelConfig, rank: int, size: int) -> Shard:
    """The part of ``rank`` among ``size`` processes.

    Raises ModelError where heads or the intermediate size do not divide among them, naming these
    and the sizes that would work, and ValueError for a rank that does not exist.
    """
    if not 0 <= rank < size:
        raise ValueError(f"a rank must lie between 0 and {size - 1}, not {rank}")
    check_divides(config, size)
    return Shard(
        rank,
        size,
        _part(config.num_heads, rank, size),
        _part(config.num_kv_heads, rank, size),
        _part(config.intermediate_size, rank, size),
        _part(-(-config.vocab_size // size) * size, rank, size),
    )


def local_config(config: ModelConfig, size: int) -> ModelConfig:
    """The configuration of one rank's part: fewer heads, a narrower MLP, all else as it is.

    The vocabulary stays whole: any rank can be given any token. Raises ModelError as `shard_of`.
    """
    check_divides(config, size)
    return replace(
        config,
        num_heads=config.num_heads // size,
        num_kv_heads=config.num_kv_heads // size,
        intermediate_size=config.intermediate_size // size,
    )


def check_divides(config: ModelConfig, size: int) -> None:
    """Raise ModelError where a model cannot be divided among ``size`` processes."""
    if size < 1:
        raise ModelError(f"a model needs at least 1 process, not {size}")
    uneven = [f"{name} {count}" for name, count in _divided(config).items() if count % size]
    if uneven:
        sizes = ", ".join(map(str, working_sizes(config)))
        raise ModelError(
            f"{' and '.join(uneven)} cannot be divided evenly among {size} processes; "
            f"numbers of processes that work for this model: {sizes}"
        )


def working_sizes(config: ModelConfig) -> list[int]:
    """All numbers of processes that a model can be divided among, smallest first."""
    most = math.gcd(*_divided(config).values())
    return [size for size in range(1, most + 1) if most % size == 0]


def _divided(config: ModelConfig) -> dict[str, int]:
    """What has to divide, by its name in config.json."""
    return {
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "intermediate_size": config.intermediate_size,
    }


def _part(count: int, rank: int, size: int) -> range:
    each = count // size
    return range(rank * each, (rank + 1) * each)
