"""Matrix products whose weights are spread over all ranks of the process group.

Every rank must call them in the same order, with as many rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist

from radix_engine.model.linear import Linear


@dataclass(frozen=True, slots=True)
class SummedLinear(Linear):
    """x -> x W^T + b where each rank has some of the columns of W, and of x.

    One rank has the bias. Every rank gets the whole result. The parts are added in the weight's
    dtype.
    """

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, this rank's inputs] -> [rows, outputs], the same on every rank."""
        product = Linear.__call__(self, x)
        dist.all_reduce(product)
        return product


@dataclass(frozen=True, slots=True)
class GatheredLinear(Linear):
    """x -> x W^T where each rank has some of the rows of W, and all of x.

    ``outputs``: of all ranks together, without the padding of the last.
    """

    outputs: int

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, inputs] -> [rows, outputs] on rank 0; elsewhere only this rank's part, which
        nobody needs."""
        product = Linear.__call__(self, x)
        if dist.get_rank() != 0:
            dist.gather(product)
            return product
        parts = product.new_empty(dist.get_world_size(), *product.shape)
        dist.gather(product, list(parts.unbind()))
        return parts.transpose(0, 1).reshape(len(x), -1)[:, : self.outputs].contiguous()
