"""One rank's part of a model's matrices: what is read of the files, and what is made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from radix_engine.model.config import ModelConfig, read_config
from radix_engine.model.linear import Linear, TorchPacking
from radix_engine.model.load import LoadProgress, load_model
from radix_engine.model.source import ModelFolder
from radix_engine.model.weights import LoadedModel, MatrixSource, Role
from radix_engine.parallel.cut import cut_columns, cut_rows
from radix_engine.parallel.linear import GatheredLinear, SummedLinear
from radix_engine.parallel.shard import Shard, local_config, shard_of


@dataclass(frozen=True, slots=True)
class ShardPacking:
    """The matrices of ``shard`` as products that bring all ranks' parts together where needed.

    ``config`` is the whole model's, ``packing`` says in which dtype and where the weights are kept.
    """

    config: ModelConfig
    shard: Shard
    packing: TorchPacking

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights and of the embedding's rows."""
        return self.packing.dtype

    def pack(self, role: Role, parts: Sequence[MatrixSource], bias: torch.Tensor | None) -> Linear:
        """This rank's part of a matrix. See `Packing`. A head has no bias."""
        columns = self._columns(role)
        if columns is not None:
            mine = [cut_columns(part, columns) for part in parts]
            local = self.packing.pack(role, mine, bias if self.shard.rank == 0 else None)
            return SummedLinear(local.weight, local.bias, local.packed)
        rows = self._rows(role)
        mine = [cut_rows(part, wanted) for part, wanted in zip(parts, rows, strict=True)]
        if role == "head":
            local = self.packing.pack(role, mine, None)
            return GatheredLinear(local.weight, None, local.packed, parts[0].shape[0])
        if bias is not None:
            whole = torch.split(bias, [part.shape[0] for part in parts])
            bias = torch.cat([b[r.start : r.stop] for b, r in zip(whole, rows, strict=True)])
        return self.packing.pack(role, mine, bias)

    def _columns(self, role: Role) -> range | None:
        """Which columns are this rank's; None: all, and some of the rows."""
        if role == "output":
            return _times(self.shard.query_heads, self.config.head_dim)
        return self.shard.inner if role == "down" else None

    def _rows(self, role: Role) -> list[range]:
        """Which rows of each part are this rank's."""
        if role == "qkv":
            queries = _times(self.shard.query_heads, self.config.head_dim)
            keys = _times(self.shard.kv_heads, self.config.head_dim)
            return [queries, keys, keys]
        return [self.shard.vocabulary] if role == "head" else [self.shard.inner, self.shard.inner]


def load_part(
    folder: ModelFolder,
    dtype: torch.dtype,
    device: torch.device,
    rank: int,
    size: int,
    progress: LoadProgress | None = None,
) -> LoadedModel[Linear]:
    """Load one rank's part of a Llama-family model, for a runner of whole models.

    Its configuration is that of the part, so a runner knows of the rank's own heads only. Norms and
    the embedding are there whole on every rank. Products need the process group to be joined.
    Raises ModelError as `load_model` and `shard_of`.
    """
    config = read_config(folder.path)
    packing = ShardPacking(config, shard_of(config, rank, size), TorchPacking(dtype, device))
    model = load_model(folder, packing, device, progress)
    return replace(model, config=local_config(config, size))


def _times(heads: range, head_dim: int) -> range:
    return range(heads.start * head_dim, heads.stop * head_dim)
