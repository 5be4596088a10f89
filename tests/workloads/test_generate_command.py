"""python -m workloads generate: files that the other commands take."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import zstandard

from workloads.__main__ import main
from workloads.generators.catalogue import GENERATORS, planned
from workloads.generators.text import text_sessions
from workloads.traces.reading import select_sessions


@pytest.mark.parametrize("name", GENERATORS)
def test_a_written_file_reads_as_the_sessions_that_were_made(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "made" / "t.jsonl"
    options = ["--seed", "2", "--sessions", "3", "--scale", "0.02", "--rate", "2"]
    assert main(["generate", name, *options, "--out", str(path)]) == 0
    assert "a cache without limit would serve" in capsys.readouterr().out
    read = select_sessions(path, 99)
    made = list(text_sessions(planned(name, 2, 3, rate=2.0, scale=0.02), 2))
    for one, other in zip(read.sessions, made, strict=True):
        assert one.id == other.id
        assert one.timed
        assert one.arrival_s == pytest.approx(other.arrival_s - made[0].arrival_s)
        for call, wanted in zip(one.calls, other.calls, strict=True):
            assert call.think_s == pytest.approx(wanted.think_s, abs=1e-6)
            assert (call.messages, call.reply, call.reset) == (
                wanted.messages,
                wanted.reply,
                wanted.reset,
            )
    assert not read.ignored_fields


def test_packed_files_hold_the_same_and_equal_options_write_equal_bytes(tmp_path: Path) -> None:
    files = [tmp_path / f"{at}{end}" for at in range(2) for end in (".jsonl", ".gz", ".zst")]
    for file in files:
        main(["generate", "agents", "--sessions", "2", "--scale", "0.1", "--out", str(file)])
    plain, packed, zst, *again = [file.read_bytes() for file in files]
    assert again == [plain, packed, zst]
    assert gzip.decompress(packed) == plain
    assert zstandard.ZstdDecompressor().decompressobj().decompress(zst) == plain


def test_a_simulation_takes_a_written_file(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    main(["generate", "agents", "--sessions", "2", "--scale", "0.1", "--out", str(path)])
    arguments = ["simulate", "trace", "--trace", str(path), "--orders", "fcfs"]
    assert main([*arguments, "--output", str(tmp_path)]) == 0


def test_a_file_that_cannot_be_written_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", "loop", "--sessions", "1", "--out", str(tmp_path)]) == 1
    assert f"--out {tmp_path}" in capsys.readouterr().err
