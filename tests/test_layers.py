"""Imports point downwards only: workloads, server, scheduler, radix_engine."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("radix_engine", "scheduler", "server", "workloads")  # lowest first
FILES = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(path: Path) -> list[str]:
    return list(path.relative_to(ROOT).parent.parts)


def imports_of(path: Path) -> Iterator[str]:
    """The full name of each module, or name in a module, that a file imports anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = package_of(path)
            above = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{source}.{alias.name}" for alias in node.names)


def is_within(name: str, packages: tuple[str, ...] | list[str]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def files_of(package: str) -> list[Path]:
    return [path for path in FILES if is_within(module_of(path), [package])]


def violations(files: list[Path], forbidden: tuple[str, ...]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files
        for name in imports_of(path)
        if is_within(name, forbidden)
    ]


def strangers(package: str, allowed: tuple[str, ...]) -> list[str]:
    """What the files of a package import besides the standard library and ``allowed``."""
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files_of(package)
        for name in imports_of(path)
        if name.split(".")[0] not in sys.stdlib_module_names and not is_within(name, allowed)
    ]


def test_every_layer_is_looked_at() -> None:
    for package in (*LAYERS, "radix_engine.cache"):
        assert files_of(package)
    assert "radix_engine.cache.PrefixIndex" in imports_of(ROOT / "scheduler" / "scheduler.py")


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_nothing_from_above_it(layer: str) -> None:
    above = LAYERS[LAYERS.index(layer) + 1 :]
    assert violations(files_of(layer), above) == []


@pytest.mark.parametrize("package", ["server.chat", "server.debug", "server.near_miss"])
def test_what_the_http_side_is_built_on_knows_nothing_of_http(package: str) -> None:
    assert files_of(package)
    assert violations(files_of(package), ("server.http",)) == []


def test_no_layer_imports_the_tests() -> None:
    assert violations(FILES, ("tests",)) == []


def test_the_cache_needs_only_numpy_sortedcontainers_and_xxhash() -> None:
    allowed = ("radix_engine.cache", "numpy", "sortedcontainers", "xxhash")
    assert strangers("radix_engine.cache", allowed) == []


def test_the_scheduler_needs_only_the_cache_and_sortedcontainers() -> None:
    allowed = ("scheduler", "radix_engine.cache", "sortedcontainers")
    assert strangers("scheduler", allowed) == []


def test_outside_the_cache_only_what_it_exports_is_used() -> None:
    inner = {path.stem for path in files_of("radix_engine.cache")} - {"__init__"}
    modules = tuple(f"radix_engine.cache.{name}" for name in sorted(inner))
    exported = exports_of(ROOT / "radix_engine" / "cache" / "__init__.py")
    outside = [path for path in FILES if not is_within(module_of(path), ["radix_engine.cache"])]
    used = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in outside
        for name in imports_of(path)
        if is_within(name, modules) and name not in exported
    ]
    assert used == []


def exports_of(init: Path) -> set[str]:
    """The names in a package's ``__all__``, with the package's name before them."""
    for node in ast.parse(init.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return {f"{module_of(init)}.{name}" for name in names}
    raise AssertionError(f"{init} has no __all__")


def test_cache_and_scheduler_run_without_torch() -> None:
    code = "import sys, radix_engine.cache, scheduler; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
