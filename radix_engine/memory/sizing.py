"""How much memory K and V may take: what the machine has to give, and what was asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

DEFAULT_SHARE = 0.25
"""Share of the available memory that K and V take when nothing was asked for."""

DEFAULT_LIMIT = 4 * 2**30
"""Bytes that K and V take at most when nothing was asked for."""

LARGEST_DEFAULT_SHARE = 0.5
"""Up to this share, the default grows until one whole context fits."""

_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", start=1):
    _UNITS[_letter] = _UNITS[f"{_letter}IB"] = 1024**_power
    _UNITS[f"{_letter}B"] = 1000**_power

_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*|%)\s*")


def available_memory_bytes(root: Path = Path("/")) -> int:
    """Bytes that this process can still take without swapping or breaking a limit.

    The least of what the kernel reports as available (MemAvailable) and, for every control group
    (v1 or v2) that this process is in, its memory limit minus its usage, where file cache that can
    be dropped does not count as usage. ``root`` is the folder that holds proc and sys. Raises
    OSError where there is no /proc/meminfo.
    """
    meminfo = (root / "proc/meminfo").read_text(encoding="ascii")
    found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.MULTILINE)
    if found is None:
        raise OSError(f"{root / 'proc/meminfo'} does not report MemAvailable")
    rooms = [_room(folder, *files) for folder, files in _cgroup_folders(root)]
    return max(0, min([int(found[1]) * 1024, *(room for room in rooms if room is not None)]))


def parse_size(text: str, available: int) -> int:
    """Bytes in a size such as ``2GiB``, ``512MiB``, ``1.5G``, ``800MB`` or ``40%``.

    K, M, G, T and KiB ... TiB are powers of 1024, KB ... TB powers of 1000, a bare number is
    bytes, and a percentage is one of ``available``. Raises ValueError for anything else.
    """
    match = _SIZE.fullmatch(text)
    unit = match[2].upper() if match is not None else ""
    if match is None or (unit != "%" and unit not in _UNITS):
        raise ValueError(f"{text!r} is not a size: write it like 2GiB, 512MiB, 1.5G or 40%")
    number = float(match[1])
    if unit == "%":
        if number > 100:
            raise ValueError(f"{text!r} is more than 100% of the available memory")
        return int(available * number / 100)
    return int(number * _UNITS[unit])


def kv_memory_bytes(
    setting: str | None, available: int, kv_bytes_per_token: int, context_length: int
) -> int:
    """Bytes to allocate for K and V.

    A ``setting`` (see ``parse_size``) is taken as it is; ValueError when it is no size, less than
    one token (``kv_bytes_per_token``) or more than ``available``. Without one: 25% of ``available``
    but at most 4 GiB; if one context of ``context_length`` tokens does not fit in that, as much as
    it needs up to half of ``available``.
    """
    if setting is None:
        share = min(int(available * DEFAULT_SHARE), DEFAULT_LIMIT)
        context = kv_bytes_per_token * context_length
        size = max(share, min(context, int(available * LARGEST_DEFAULT_SHARE)))
        asked = "the default KV memory"
    else:
        size = parse_size(setting, available)
        asked = f"a KV memory of {setting}"
    if size > available:
        raise ValueError(
            f"{asked} ({format_size(size)}) is more than the memory available, "
            f"{format_size(available)} (free memory and control group limits taken together); "
            f"ask for less, or for a share such as 40%"
        )
    if size < kv_bytes_per_token:
        raise ValueError(
            f"{asked} ({format_size(size)}) does not hold one token "
            f"of {kv_bytes_per_token} bytes; ask for more"
        )
    return size


def whole_blocks(num_bytes: int, bytes_per_block: int) -> int:
    """Whole blocks that fit into ``num_bytes``; ValueError when not even one does."""
    blocks = num_bytes // bytes_per_block
    if blocks < 1:
        raise ValueError(
            f"a KV memory of {format_size(num_bytes)} does not hold one block "
            f"of {bytes_per_block} bytes; ask for more"
        )
    return blocks


def format_size(num_bytes: int) -> str:
    """A size for people, in powers of 1024: ``1.5 GiB``."""
    size, unit = float(num_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"


_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _cgroup_folders(root: Path) -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """The folders of this process's memory control groups and of all above them.

    Inside a container the path that the kernel names may not exist; the top of the mounted tree is
    the container's own group then.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, files = root / "sys/fs/cgroup", _V2
        elif "memory" in controllers.split(","):
            top, files = root / "sys/fs/cgroup/memory", _V1
        else:
            continue
        folder = top / path.lstrip("/")
        while folder != top and top in folder.parents:
            yield folder, files
            folder = folder.parent
        yield top, files


def _room(folder: Path, limit_file: str, usage_file: str, cache_key: str) -> int | None:
    """Limit minus usage of one control group, None without a limit."""
    limit = _read_number(folder / limit_file)
    usage = _read_number(folder / usage_file)
    if limit is None or usage is None:
        return None
    return limit - max(0, usage - _read_stat(folder / "memory.stat", cache_key))


def _read_number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _read_stat(path: Path, key: str) -> int:
    try:
        found = re.search(rf"^{key} (\d+)$", path.read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found is not None else 0
