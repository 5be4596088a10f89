"""From options to the parts of an engine: find the model, load it, size the KV memory."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from radix_engine.gpu.fit import GpuFacts, read_gpu
from radix_engine.memory.sizing import whole_blocks
from radix_engine.model.load import LoadProgress
from radix_engine.model.served import ServedModel
from radix_engine.model.source import resolve_model
from server.gpu_choice import may_use_gpu, refuse_early
from server.model_choice import choose
from server.options import EngineOptions
from server.parallel_choice import refuse_for_several
from server.text import TextCodec

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineParts:
    """What an engine is made of."""

    model: ServedModel
    text: TextCodec
    num_blocks: int


def load_parts(options: EngineOptions, progress: LoadProgress | None = None) -> EngineParts:
    """Fetch (the first time), load and size. ``progress`` gets (layers loaded, layers of the
    model).

    Sets the process's number of torch threads. Raises ModelError or ValueError with a message for
    the user.
    """
    threads = options.threads or usable_processors()
    torch.set_num_threads(threads)
    refuse_for_several(options)
    gpu = read_gpu() if may_use_gpu(options) else GpuFacts()
    refuse_early(options, gpu)
    folder = resolve_model(options.model, progress=logger.info)
    choice = choose(folder, options, threads, gpu)
    choice.kv_memory(False)  # what cannot be is refused before the weights are loaded
    with ThreadPoolExecutor(1) as pool:
        text = pool.submit(
            TextCodec,
            folder.path,
            choice.context_length,
            tool_calls=options.text.tool_call_form,
            reasoning=options.text.reasoning_form,
            transcript_bytes=options.text.transcript_bytes,
        )
        model = choice.load(progress)
        with closed_on_error(model):
            codec = text.result()
            kv_memory = choice.kv_memory(True)
    if model.kernels not in ("torch", "transformers"):
        # What is left for torch on the processor is small, and its threads would be in the way.
        torch.set_num_threads(1)
    return EngineParts(model, codec, whole_blocks(kv_memory, choice.kv_bytes_per_block))


@contextmanager
def closed_on_error(model: ServedModel) -> Iterator[None]:
    """End a model's other processes, if it has any, where something goes wrong in here."""
    try:
        yield
    except BaseException:
        if model.processes is not None:
            model.processes.close()
        raise


def usable_processors(root: Path = Path("/")) -> int:
    """Processors that this process may use: its affinity, and the quota of its control group.

    A quota of one and a half processors counts as two. ``root`` is the folder that holds sys.
    """
    allowed = len(os.sched_getaffinity(0))
    group = root / "sys/fs/cgroup"
    try:
        quota, period = (group / "cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        try:
            quota = (group / "cpu/cpu.cfs_quota_us").read_text(encoding="ascii").strip()
            period = (group / "cpu/cpu.cfs_period_us").read_text(encoding="ascii").strip()
        except OSError:
            return allowed
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return allowed  # "max" or -1: no quota
    return max(1, min(allowed, -(-int(quota) // int(period))))
