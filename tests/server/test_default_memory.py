"""How much memory a server takes for K and V when nobody says how much."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from radix_engine.gpu.fit import GpuFacts
from radix_engine.memory.sizing import available_memory_bytes
from radix_engine.model.source import ModelFolder
from server.model_choice import choose
from server.options import EngineOptions

GIB = 2**30


def machine(root: Path, limit: int, used: int) -> Path:
    """A host of hundreds of GB, and a container with a limit on it."""
    group = root / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text("MemTotal: 805306368 kB\nMemAvailable: 734003200 kB\n")
    (root / "proc/self/cgroup").write_text("0::/\n")
    (group / "memory.max").write_text(f"{limit}\n")
    (group / "memory.current").write_text(f"{used}\n")
    return root


@pytest.mark.parametrize(
    ("limit", "used", "expected"),
    [
        (4 * GIB, 0, GIB),  # a quarter of what is left
        (4 * GIB, GIB, 3 * GIB // 4),
        (64 * GIB, 0, 4 * GIB),  # and at most so much
        (4 * GIB, 4 * GIB - 2**20, 2**19),  # one context of 512 KiB, up to a half
    ],
)
@pytest.mark.parametrize("kernels", ["torch", "auto"])
def test_a_default_start_keeps_to_the_containers_limit_whatever_the_host_has(
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kernels: str,
    limit: int,
    used: int,
    expected: int,
) -> None:
    root = machine(tmp_path, limit, used)
    monkeypatch.setattr(
        "server.model_choice.available_memory_bytes", partial(available_memory_bytes, root)
    )
    options = EngineOptions(model=str(tiny_folder), kernels=kernels, dtype="fp32")
    choice = choose(ModelFolder(tiny_folder, "tiny"), options, 2, GpuFacts())
    assert choice.kv_memory(False) == choice.kv_memory(True) == expected


def test_more_than_the_container_has_is_refused_before_anything_is_loaded(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = machine(tmp_path, 4 * GIB, 0)
    monkeypatch.setattr(
        "server.model_choice.available_memory_bytes", partial(available_memory_bytes, root)
    )
    options = EngineOptions(model=str(tiny_folder), kv_memory="100GiB", dtype="fp32")
    choice = choose(ModelFolder(tiny_folder, "tiny"), options, 2, GpuFacts())
    with pytest.raises(ValueError, match=r"100GiB .*more than the memory available, 4\.0 GiB"):
        choice.kv_memory(False)
