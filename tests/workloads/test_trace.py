from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from workloads.traces.lines import TraceError
from workloads.traces.reading import read_rows, select_sessions
from workloads.traces.session import Message


def row(session_id: str = "s", turn: int = 0, **fields: object) -> dict[str, object]:
    messages = [{"role": "user", "content": f"question {turn}"}]
    return {
        "session_id": session_id,
        "turn": turn,
        "messages": messages,
        "output": f"reply {turn}",
        **fields,
    }


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return path


def as_gzip(data: bytes) -> bytes:
    return gzip.compress(data)


def as_long_window_zstd(data: bytes) -> bytes:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=27, enable_ldm=True)
    # Streaming, so that the frame's window is the one asked for and not the content's size.
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return compressor.compress(data) + compressor.flush()


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [(".jsonl", bytes), (".jsonl.gz", as_gzip), (".jsonl.zst", as_long_window_zstd)],
)
def test_a_trace_reads_the_same_plain_and_compressed(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    lines = [json.dumps(row(turn=turn, output="naïve ✓"), ensure_ascii=False) for turn in range(3)]
    path = tmp_path / f"trace{suffix}"
    path.write_bytes(pack("\n".join(lines).encode()))
    read = list(read_rows(path))
    assert [r.call.messages for r in read] == [
        (Message("user", f"question {turn}"),) for turn in range(3)
    ]
    assert {r.call.reply for r in read} == {"naïve ✓"}


def test_two_zstd_frames_in_one_file_are_both_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.zst"
    frames = [as_long_window_zstd(json.dumps(row(turn=n)).encode() + b"\n") for n in range(2)]
    path.write_bytes(b"".join(frames))
    assert len(list(read_rows(path))) == 2


def test_reset_raw_and_a_null_output_reach_the_call(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", row(reset=True, raw=True, output=None), row(turn=1))
    first, second = (r.call for r in read_rows(path))
    assert (first.reset, first.raw, first.reply) == (True, True, None)
    assert (second.reset, second.raw, second.reply) == (False, False, "reply 1")


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (row(session_id=7), "session_id must be a string"),  # type: ignore[arg-type]
        (row(turn="1"), "turn must be an integer"),  # type: ignore[arg-type]
        (row(turn=True), "turn must be an integer"),
        ({k: v for k, v in row().items() if k != "output"}, "output must be .* is missing"),
        (row(output=5), "output must be a string or null"),
        (row(reset="yes"), "reset must be true or false"),
        (row(raw=1), "raw must be true or false"),
        (row(messages=[]), "messages must be a list with at least one"),
        (row(messages="hello"), "messages must be a list"),
        (row(messages=["hello"]), r"messages\[0\] must be an object"),
        (row(messages=[{"role": "user"}]), r"messages\[0\].content must be a string"),
        (row(messages=[{"role": None, "content": ""}]), r"messages\[0\].role must be a string"),
        ([1], "must be a JSON object"),
    ],
)
def test_a_row_out_of_form_is_refused_with_its_line_and_field(
    tmp_path: Path, bad: object, field: str
) -> None:
    path = write(tmp_path / "t.jsonl", row(), bad)
    with pytest.raises(TraceError, match=f"t.jsonl, line 2: {field}"):
        list(read_rows(path))


def test_a_line_that_is_no_json_is_refused_with_its_number(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", row())
    path.write_text(path.read_text() + '{"session_id": "s", ')
    with pytest.raises(TraceError, match=r"line 2: not JSON: .* at character \d+$"):
        list(read_rows(path))


def test_a_damaged_or_missing_file_is_refused_with_its_name(tmp_path: Path) -> None:
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(as_gzip(json.dumps(row()).encode())[:-12])
    no_zstd = tmp_path / "no.jsonl.zst"
    no_zstd.write_bytes(b"not compressed at all")
    latin = tmp_path / "latin.jsonl"
    latin.write_bytes(json.dumps(row(), ensure_ascii=False).encode() + b"\n\xe9\n")
    for path in (cut, no_zstd, latin, tmp_path / "none.jsonl"):
        with pytest.raises(TraceError, match=path.name):
            list(read_rows(path))


def test_a_trace_without_a_call_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="holds no call"):
        select_sessions(write(tmp_path / "t.jsonl"), 5, 5)


def test_the_first_sessions_are_taken_and_what_is_left_out_is_counted(tmp_path: Path) -> None:
    rows = [row(name, turn, kind="x") for turn in range(3) for name in ("a", "b", "c", "d")]
    chosen = select_sessions(write(tmp_path / "t.jsonl", *rows), max_sessions=3, max_turns=2)
    assert [(s.id, len(s.calls)) for s in chosen.sessions] == [("a", 2), ("b", 2), ("c", 2)]
    assert (chosen.left_out_sessions, chosen.left_out_calls) == (1, 6)
    assert chosen.ignored_fields == {"kind": 6}


def test_roles_that_templates_may_not_know_become_user_under_a_heading(tmp_path: Path) -> None:
    messages = [
        {"role": "system", "content": "rules"},
        {"role": "tool", "content": "42"},
        {"role": "function", "content": "43"},
        {"role": "tool", "content": "44"},
        {"role": "critic", "content": "no"},
    ]
    chosen = select_sessions(write(tmp_path / "t.jsonl", row(messages=messages)), 1, 1)
    assert chosen.mapped_roles == {"tool": 2, "function": 1, "critic": 1}
    assert chosen.sessions[0].calls[0].messages == (
        Message("system", "rules"),
        Message("user", "Tool result:\n42"),
        Message("user", "Function result:\n43"),
        Message("user", "Tool result:\n44"),
        Message("user", "From critic:\nno"),
    )
