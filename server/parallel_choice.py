"""A model divided among several processes: what goes with that, and how it is loaded and run."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch

from radix_engine.gpu.fit import load_flashinfer
from radix_engine.gpu.sampling_trial import flashinfer_drawer
from radix_engine.gpu.served import STEP_TOKENS
from radix_engine.gpu.warm import (
    warm_flashinfer_fp8_runner,
    warm_flashinfer_runner,
    warm_torch_runner,
)
from radix_engine.model.batch import Span
from radix_engine.model.errors import ModelError
from radix_engine.model.load import LoadProgress
from radix_engine.model.served import Blocks, Runner, ServedModel, dtype_name
from radix_engine.model.source import ModelFolder
from radix_engine.parallel.errors import ParallelError
from radix_engine.parallel.group import Group
from radix_engine.parallel.member import Backend
from radix_engine.parallel.messages import RunnerMaker
from radix_engine.parallel.runner import load_parallel
from server.gpu_choice import GpuWay
from server.options import EngineOptions

logger = logging.getLogger(__name__)

_TRACEBACK = "Traceback (most recent call last):"


def refuse_for_several(options: EngineOptions) -> None:
    """Raise ValueError for options that only one process can honour, naming them."""
    size = options.tensor_parallel
    if size == 1:
        return
    for given, name, instead in (
        (options.quantization is not None, f"--quantization {options.quantization}", ""),
        (options.kv_dtype == "int8", "--kv-dtype int8", "take --kv-dtype fp8 on GPUs, "),
        (options.kernels not in ("auto", "torch"), f"--kernels {options.kernels}", ""),
        (options.exact, "--exact", ""),
    ):
        if given:
            raise ValueError(
                f"{name} needs the compiled kernels, which compute in one process; {instead}leave "
                f"it out, or --tensor-parallel {size}"
            )


def check_gpus(size: int) -> None:
    """Raise ValueError where there is no GPU for each of several processes."""
    count = torch.cuda.device_count() if size > 1 else 1
    if count < size:
        raise ValueError(
            f"--tensor-parallel {size} needs {size} GPUs, and this process sees {count}; start "
            "with as many as there are, or look at nvidia-smi and CUDA_VISIBLE_DEVICES"
        )


def load_divided(
    folder: ModelFolder,
    dtype: torch.dtype,
    size: int,
    way: GpuWay | None,
    progress: LoadProgress | None = None,
    *,
    step_timeout_s: float = 60.0,
) -> ServedModel:
    """Load a Llama-family model in ``size`` processes, this one included: each has its part.

    ``way``: on as many GPUs; None: on the processor, whose threads they share, so this process has
    fewer from then on. A step that takes longer than ``step_timeout_s`` counts as lost, and the
    processes with it. Starts the processes, which takes seconds. The model's ``processes`` end
    them, as does what goes wrong in here or in making its runner. Raises ModelError, with a message
    for the user, and what `load_model` raises.
    """
    threads = max(1, torch.get_num_threads() // size)
    with _for_the_user():
        backend: Backend = "gloo" if way is None else "nccl"
        group = Group(size, backend, threads=threads, step_timeout_s=step_timeout_s)
    with _closed_on_error(group), _for_the_user():
        if way is None:
            torch.set_num_threads(threads)
            model = load_parallel(group, folder, dtype, progress)
        else:
            make, kernels = _on_gpus(way)
            model = load_parallel(group, folder, dtype, progress, make_runner=make, kernels=kernels)
            kv_dtype = dtype_name(way.kv_dtype)
            model = replace(model, step_tokens=STEP_TOKENS, kv_dtype=kv_dtype)
            if way.flashinfer:
                device = group.member.device
                drawer = partial(flashinfer_drawer, load_flashinfer(), device, model.vocab_size)
                model = replace(model, make_drawer=drawer)

    def make_runner(num_blocks: int, block_size: int) -> Runner:
        with _closed_on_error(group), _for_the_user():
            return GroupRunner(group, model.make_runner(num_blocks, block_size))

    return replace(model, make_runner=make_runner, processes=GroupProcesses(group))


class GroupProcesses:
    """The processes of a group, as an engine sees them."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self._told = False

    def is_alive(self) -> bool:
        """Whether none of them was lost. Never blocks. The first False is logged, with its cause:
        where nothing runs, nobody else would tell."""
        try:
            self.group.check()
        except ParallelError as error:
            if not self._told:
                self._told = True
                logger.critical("the engine has failed: %s", error)
            return False
        return True

    def close(self) -> None:
        """End them. See `Group.close`."""
        self.group.close()


class GroupRunner:
    """The runner of a divided model: whatever ends its group is a ParallelError, in one line.

    An error of this process in the middle of a step, such as memory that runs out, ends the group
    like the loss of another: the ranks are out of step, so nothing can be tried again.
    """

    def __init__(self, group: Group, runner: Runner) -> None:
        self._group = group
        self._runner = runner

    @property
    def memory(self) -> Blocks:
        """The blocks of all processes."""
        return self._runner.memory

    def forward(self, spans: Sequence[Span]) -> torch.Tensor:
        """See `ParallelRunner.forward`."""
        with self._final():
            return self._runner.forward(spans)

    def copy_rows(self, copies: Sequence[tuple[int, int, int]]) -> None:
        """See `ParallelRunner.copy_rows`."""
        with self._final():
            self._runner.copy_rows(copies)

    @contextmanager
    def _final(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            try:
                self._group.check()
            except ParallelError as cause:
                raise ParallelError(in_one_line(cause)) from error
            raise


def in_one_line(error: ParallelError) -> str:
    """Its message, with the error itself in place of another process's traceback."""
    head, found, trace = str(error).partition(_TRACEBACK)
    if not found:
        return " ".join(head.split())
    errors = [line for line in trace.splitlines() if re.match(r"[A-Za-z_][\w.]*(: |$)", line)]
    return " ".join(" ".join([head, *errors[-1:]]).split())


def _on_gpus(way: GpuWay) -> tuple[RunnerMaker, str]:
    """What makes each process's runner, and the name of what it computes with."""
    if way.flashinfer:
        return (warm_flashinfer_fp8_runner if way.fp8 else warm_flashinfer_runner), "flashinfer"
    return warm_torch_runner, "torch-cuda"


@contextmanager
def _for_the_user() -> Iterator[None]:
    """A ParallelError as a ModelError in one line; the whole of it is in the log."""
    try:
        yield
    except ParallelError as error:
        line = in_one_line(error)
        if line != str(error):
            logger.error("%s", error)
        raise ModelError(line) from error


@contextmanager
def _closed_on_error(group: Group) -> Iterator[None]:
    try:
        yield
    except BaseException:
        group.close()
        raise
