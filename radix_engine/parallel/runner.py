"""A model divided among the processes of a group, as an engine sees it: one model, one runner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from radix_engine.memory.kv_memory import check_copies
from radix_engine.model.batch import Span
from radix_engine.model.config import read_config
from radix_engine.model.linear import Linear
from radix_engine.model.load import LoadProgress
from radix_engine.model.runner import ModelRunner, check_spans
from radix_engine.model.served import Blocks, Runner, ServedModel, dtype_name
from radix_engine.model.source import ModelFolder
from radix_engine.model.weights import LoadedModel
from radix_engine.parallel.errors import ParallelError
from radix_engine.parallel.group import Group
from radix_engine.parallel.messages import (
    LoadRequest,
    RunnerMaker,
    encode_copies,
    encode_load,
    encode_start,
    encode_step,
)
from radix_engine.parallel.packing import load_part
from radix_engine.parallel.shard import check_divides

_LOAD_S = 600.0  # for the other ranks to have loaded their parts when this one has
_START_S = 600.0  # likewise, to have made their runners, which may compile kernels


@dataclass(slots=True)
class GroupBlocks:
    """The memory of K and V of all ranks together. Each has its own heads of every block."""

    num_blocks: int
    block_size: int
    bytes_per_block: int


class ParallelRunner:
    """Rank 0's runner of a model that is divided among the ranks of ``group``.

    ``local`` is its own part's runner; the other ranks' were started beside it. Closing it closes
    the group. A step returns when all ranks have done their part.
    """

    def __init__(self, group: Group, model: LoadedModel[Linear], local: Runner) -> None:
        self._group = group
        self._turn = group.turn
        self._config = model.config
        self._device = model.device
        self._local = local
        blocks = local.memory
        self._memory = GroupBlocks(
            blocks.num_blocks, blocks.block_size, blocks.bytes_per_block * group.member.size
        )

    @property
    def memory(self) -> Blocks:
        """The blocks of all ranks."""
        return self._memory

    def forward(self, spans: Sequence[Span]) -> torch.Tensor:
        """Run one step on all ranks: float32 logits [sum of num_logits, vocab_size].

        Raises ValueError, before anything is sent, for spans that cannot be run; the group goes on
        then. Raises ParallelError when another rank is lost, fails or takes too long, now or
        before. Any error of this rank's own ends the group, too.
        """
        if not spans:
            return self._local.forward(spans)
        check_spans(spans, self._config.context_length)
        memory = self._memory
        message = encode_step(spans, memory.block_size, memory.num_blocks, self._config.vocab_size)
        self._check_turn()
        with self._group.step(message):
            logits = self._local.forward(spans)
            if self._device.type == "cuda":
                # A lost rank shows on the device; nobody may go on with what it left behind.
                torch.cuda.current_stream(self._device).synchronize()
        return logits

    def copy_rows(self, copies: Sequence[tuple[int, int, int]]) -> None:
        """Before a step: copy K and V between blocks on all ranks, as (source, target, rows).

        Raises ValueError as `KVMemory.copy_rows`, and ParallelError as `forward`.
        """
        if not copies:
            return
        check_copies(copies, self._memory.num_blocks, self._memory.block_size)
        self._check_turn()
        with self._group.step(encode_copies(copies)):
            self._local.copy_rows(copies)

    def close(self) -> None:
        """End the other ranks' processes. See `Group.close`."""
        self._group.close()

    def _check_turn(self) -> None:
        if self._turn != self._group.turn:
            raise ParallelError("the group has loaded something else since this runner was made")


def load_parallel(
    group: Group,
    folder: ModelFolder,
    dtype: torch.dtype,
    progress: LoadProgress | None = None,
    *,
    make_runner: RunnerMaker = ModelRunner,
    kernels: str = "torch",
) -> ServedModel:
    """Load a Llama-family model onto all ranks of ``group``, each its part.

    ``make_runner``, a function of a module, makes each rank's runner of its part, and ``kernels``
    names what that computes with. A group has one model and one runner at a time; the runner's
    ``close`` closes it. Raises ModelError as `load_model`, and where the model cannot be divided,
    or ParallelError.
    """
    member = group.member
    check_divides(read_config(folder.path), member.size)

    def load() -> LoadedModel[Linear]:
        return load_part(folder, dtype, member.device, member.rank, member.size, progress)

    request = LoadRequest(folder, dtype, make_runner)
    model = group.ask(encode_load(request), load, _LOAD_S)

    def start(num_blocks: int, block_size: int) -> ParallelRunner:
        local = group.ask(
            encode_start(num_blocks, block_size),
            lambda: make_runner(model, num_blocks, block_size),
            _START_S,
        )
        return ParallelRunner(group, model, local)

    return ServedModel(
        name=model.name,
        vocab_size=model.config.vocab_size,
        context_length=model.config.context_length,
        weights=dtype_name(model.dtype),
        kv_dtype=dtype_name(model.dtype),
        kernels=kernels,
        exact=False,
        eos_token_ids=model.eos_token_ids,
        sampling=model.sampling,
        load_seconds=model.load_seconds,
        make_runner=start,
    )
