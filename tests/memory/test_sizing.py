"""How much memory K and V take."""

from __future__ import annotations

from pathlib import Path

import pytest

from radix_engine.memory.sizing import (
    available_memory_bytes,
    format_size,
    kv_memory_bytes,
    parse_size,
    whole_blocks,
)

GIB = 2**30


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with 8 GiB available and no control groups."""
    write(tmp_path, "proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable:    8388608 kB\n")
    return tmp_path


def test_without_control_groups_the_kernels_figure_counts(machine: Path) -> None:
    assert available_memory_bytes(machine) == 8 * GIB


def test_a_v2_limit_minus_usage_counts_when_it_is_less(machine: Path) -> None:
    write(machine, "proc/self/cgroup", "0::/app/worker\n")
    group = "sys/fs/cgroup/app/worker"
    write(machine, f"{group}/memory.max", f"{4 * GIB}\n")
    write(machine, f"{group}/memory.current", f"{3 * GIB}\n")
    assert available_memory_bytes(machine) == 1 * GIB
    write(machine, f"{group}/memory.stat", f"anon 5\ninactive_file {GIB // 2}\nactive_file 7\n")
    assert available_memory_bytes(machine) == GIB + GIB // 2


def test_the_limit_of_a_group_above_counts_too(machine: Path) -> None:
    write(machine, "proc/self/cgroup", "0::/app/worker\n")
    write(machine, "sys/fs/cgroup/app/worker/memory.max", "max\n")
    write(machine, "sys/fs/cgroup/app/worker/memory.current", "0\n")
    write(machine, "sys/fs/cgroup/app/memory.max", f"{2 * GIB}\n")
    write(machine, "sys/fs/cgroup/app/memory.current", "0\n")
    assert available_memory_bytes(machine) == 2 * GIB


def test_a_container_that_sees_only_its_own_group_finds_the_limit(machine: Path) -> None:
    write(machine, "proc/self/cgroup", "0::/somewhere/on/the/host\n")
    write(machine, "sys/fs/cgroup/memory.max", f"{2 * GIB}\n")
    write(machine, "sys/fs/cgroup/memory.current", f"{GIB}\n")
    assert available_memory_bytes(machine) == GIB


def test_a_v1_limit_counts(machine: Path) -> None:
    write(machine, "proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x\n0::/\n")
    write(machine, "sys/fs/cgroup/memory/x/memory.limit_in_bytes", f"{6 * GIB}\n")
    write(machine, "sys/fs/cgroup/memory/x/memory.usage_in_bytes", f"{4 * GIB}\n")
    write(machine, "sys/fs/cgroup/memory/x/memory.stat", f"total_inactive_file {GIB}\n")
    assert available_memory_bytes(machine) == 3 * GIB


def test_a_group_over_its_limit_leaves_nothing(machine: Path) -> None:
    write(machine, "proc/self/cgroup", "0::/\n")
    write(machine, "sys/fs/cgroup/memory.max", "1000\n")
    write(machine, "sys/fs/cgroup/memory.current", "2000\n")
    assert available_memory_bytes(machine) == 0


def test_this_machine_has_memory() -> None:
    assert available_memory_bytes() > 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2GiB", 2 * GIB),
        ("512MiB", GIB // 2),
        ("1.5G", 3 * GIB // 2),
        ("1.5 gib", 3 * GIB // 2),
        ("800MB", 800_000_000),
        ("3k", 3072),
        ("1TB", 10**12),
        ("12345", 12345),
        ("100B", 100),
        ("40%", 400),
        ("100%", 1000),
        ("12.5 %", 125),
    ],
)
def test_a_size_is_read(text: str, expected: int) -> None:
    assert parse_size(text, available=1000) == expected


@pytest.mark.parametrize("text", ["", "GiB", "2 GiBs", "two", "-1G", "1e3", "nan", "1..5G", "5%%"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text, available=1000)


def test_more_than_all_of_the_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 100%"):
        parse_size("101%", available=1000)


def test_the_default_is_a_quarter_of_what_is_available() -> None:
    assert kv_memory_bytes(None, 8 * GIB, 1000, 8192) == 2 * GIB


def test_the_default_is_at_most_4_gib() -> None:
    assert kv_memory_bytes(None, 900 * GIB, 1000, 8192) == 4 * GIB


def test_the_default_grows_for_one_context_up_to_half_of_the_memory() -> None:
    assert kv_memory_bytes(None, 8 * GIB, 3 * GIB // 1000, 1000) == 3 * GIB // 1000 * 1000
    assert kv_memory_bytes(None, 8 * GIB, 100 * GIB // 1000, 1000) == 4 * GIB


def test_what_was_asked_for_is_taken_as_it_is() -> None:
    assert kv_memory_bytes("3GiB", 4 * GIB, 1000, 8192) == 3 * GIB
    assert kv_memory_bytes("50%", 4 * GIB, 1000, 8192) == 2 * GIB


def test_more_than_is_available_is_refused_naming_both() -> None:
    with pytest.raises(ValueError, match=r"64GiB .*more than the memory available, 4\.0 GiB"):
        kv_memory_bytes("64GiB", 4 * GIB, 1000, 8192)


def test_less_than_one_token_is_refused() -> None:
    with pytest.raises(ValueError, match="does not hold one token of 1000 bytes"):
        kv_memory_bytes("999", 4 * GIB, 1000, 8192)


def test_blocks_are_rounded_down() -> None:
    assert whole_blocks(1000, 300) == 3
    with pytest.raises(ValueError, match="does not hold one block of 1001 bytes"):
        whole_blocks(1000, 1001)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (4 * GIB, "4.0 GiB")]
)
def test_sizes_are_written_for_people(size: int, text: str) -> None:
    assert format_size(size) == text
