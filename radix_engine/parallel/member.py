"""One process's place in a process group of torch.distributed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import torch
import torch.distributed as dist

Backend = Literal["gloo", "nccl"]
"""gloo joins processes on a CPU, nccl processes with a GPU each."""

_SETTINGS: dict[Backend, tuple[str, str]] = {
    # All processes are on this machine: nothing is to listen on its network.
    "gloo": ("GLOO_SOCKET_IFNAME", "lo"),
    # Who watches over the group ends it; nccl itself would take the whole process down.
    "nccl": ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"),
}


@dataclass(frozen=True, slots=True)
class Member:
    """A process's rank among ``size``, and how the processes find each other.

    ``store``: the path of a file that all can write. ``threads``: of torch, in every process but
    rank 0's. No wait for another rank takes longer than ``timeout_s``.
    """

    rank: int
    size: int
    backend: Backend
    store: str
    threads: int
    timeout_s: float

    @property
    def device(self) -> torch.device:
        """Where this rank computes."""
        return torch.device("cpu" if self.backend == "gloo" else f"cuda:{self.rank}")


def join(member: Member) -> None:
    """Join the process group. Returns when all have joined; raises RuntimeError where some do not.

    A process can be in one group at a time.
    """
    device = member.device
    if device.type == "cuda":
        torch.cuda.set_device(device)
    with _setting(*_SETTINGS[member.backend]):
        dist.init_process_group(
            member.backend,
            init_method=f"file://{member.store}",
            rank=member.rank,
            world_size=member.size,
            timeout=timedelta(seconds=member.timeout_s),
            device_id=device if device.type == "cuda" else None,
        )


def leave() -> None:
    """Leave the process group, if this process is in one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def abort_waiting(backend: Backend) -> None:
    """Have what this process's GPU waits for from other ranks end, with wrong numbers.

    With gloo a lost connection ends the wait, so nothing is done. From any thread.
    """
    if backend == "nccl" and dist.is_initialized():
        dist.distributed_c10d._abort_process_group()


@contextmanager
def _setting(name: str, value: str) -> Iterator[None]:
    """Have a variable of the environment, unless it is set, while a group is made; and keep the
    hook for uncaught exceptions, which torch replaces by one that writes the rank on each line."""
    hook, before = sys.excepthook, os.environ.get(name)
    os.environ.setdefault(name, value)
    try:
        yield
    finally:
        sys.excepthook = hook
        if before is None:
            del os.environ[name]
