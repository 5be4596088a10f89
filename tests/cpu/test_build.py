"""Kernels are compiled once; what stands in the way is said."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

import radix_engine.cpu.build as building
from radix_engine.cpu.build import BuildError, build
from radix_engine.cpu.processor import KINDS

AVX2 = KINDS[-1]
SCRIPT = """#!/bin/sh
[ "$1" = --version ] && {{ echo compiler {version}; exit 0; }}
echo run >> {log}
{action}
"""
MAKE_OUTPUT = 'while [ $# -gt 1 ]; do shift; done; echo library > "$1"'


def compiler(path: Path, action: str = MAKE_OUTPUT, version: str = "1") -> str:
    """A script in place of a compiler: it notes each run beside itself."""
    path.write_text(SCRIPT.format(version=version, log=f"{path}.log", action=action))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def runs(path: Path) -> int:
    log = Path(f"{path}.log")
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_the_second_build_compiles_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    name = compiler(tmp_path / "cc")
    first = build(AVX2, tmp_path / "cache", said.append, name)
    assert first.read_text() == "library\n"
    compiled = runs(tmp_path / "cc")
    assert compiled == len(list(building.SOURCES.glob("*.cpp"))) + 1  # and the linking
    assert build(AVX2, tmp_path / "cache", said.append, name) == first
    assert runs(tmp_path / "cc") == compiled
    assert said == ["Compiling the kernels for this processor (avx2, once)"]
    assert [path.name for path in first.parent.iterdir()] == [first.name]


def test_other_sources_options_or_compilers_are_other_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    built = {build(AVX2, cache, compiler=compiler(tmp_path / "one"))}
    built.add(build(AVX2, cache, compiler=compiler(tmp_path / "two", version="2")))
    built.add(build(KINDS[-2], cache, compiler=compiler(tmp_path / "one")))
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "other.cpp").write_text("int x;")
    monkeypatch.setattr(building, "SOURCES", sources)
    built.add(build(AVX2, cache, compiler=compiler(tmp_path / "one")))
    assert len(built) == 4


def test_what_the_compiler_complains_of_is_passed_on(tmp_path: Path) -> None:
    name = compiler(tmp_path / "cc", "echo 'simd.h:1: error: no such thing'; exit 3")
    with pytest.raises(BuildError, match=r"status 3.*simd\.h:1: error: no such thing"):
        build(AVX2, tmp_path / "cache", compiler=name)
    assert not list((tmp_path / "cache" / "kernels").glob("*.so"))


def test_without_a_compiler_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=r"no C\+\+ compiler .*install one, such as .*g\+\+"):
        build(AVX2, tmp_path)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(BuildError, match="cannot be kept in"):
        build(AVX2, tmp_path / "cache", compiler=compiler(tmp_path / "cc"))
