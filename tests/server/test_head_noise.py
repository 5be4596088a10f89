"""What is taken out of the head of system prompts, and what is left alone."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from server.head_noise import HeadNoise, NoiseFilter, read_head_noise

HEADER = "x-anthropic-billing-header:"
PROMPT = "You are a helpful assistant."


def stripped(text: str, *patterns: str) -> str:
    return NoiseFilter(HeadNoise(patterns) if patterns else HeadNoise()).strip(text)[0]


@pytest.mark.parametrize(
    "noise",
    [
        f"{HEADER} cc_version=2.1.36.a3b; cc_entrypoint=cli; cch=e3f1a;",
        f"{HEADER} cc_version=2.1.36; cch=00000",
        f"{HEADER} cc_version=2.1 (beta); cch=1;",
        f"{HEADER} something that is not known yet",
        HEADER,
    ],
)
@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_claude_codes_line_is_taken_out_and_nothing_else(noise: str, end: str) -> None:
    rest = PROMPT if end else ""
    assert stripped(noise + end + rest) == rest


def test_a_prompt_on_the_same_line_stays() -> None:
    assert stripped(f"{HEADER} cc_version=2; cch=a1; {PROMPT} a=b; c") == f"{PROMPT} a=b; c"


def test_only_the_head_is_looked_at() -> None:
    for text in (f"{PROMPT}\n{HEADER} cch=1;", f" {HEADER} cch=1;", "", HEADER[:-1]):
        assert stripped(text) == text


def test_pieces_are_taken_out_one_after_the_other_and_counted_by_pattern() -> None:
    noise = NoiseFilter(HeadNoise((r"date: \d+\n", r"id: \w+\n", r"never")))
    assert noise.strip(f"id: x\ndate: 5\nid: y\n{PROMPT}") == (PROMPT, 3)
    assert noise.strip(PROMPT) == (PROMPT, 0)
    assert noise.counts() == [(r"date: \d+\n", 1), (r"id: \w+\n", 2), ("never", 0)]


def test_without_patterns_nothing_is_taken_out() -> None:
    text = f"{HEADER} cch=1;\n{PROMPT}"
    assert NoiseFilter(HeadNoise(())).strip(text) == (text, 0)


@pytest.mark.parametrize(("pattern", "why"), [("(", "no regular expression"), ("x*", "empty text")])
def test_a_pattern_that_cannot_be_used_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        HeadNoise((pattern,))


def test_patterns_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "noise.txt"
    path.write_text("# a comment\n\nid: \\w+\n  \ndate: .*\n")
    assert read_head_noise(path) == HeadNoise((r"id: \w+", "date: .*"))
    path.write_text("fine\n[")
    with pytest.raises(ValueError, match=r"noise\.txt: '\[' is no regular expression"):
        read_head_noise(path)
    path.write_text("# none\n")
    assert read_head_noise(path).patterns == ()


def test_counts_are_right_from_many_threads() -> None:
    noise = NoiseFilter(HeadNoise())

    def strip() -> None:
        for _ in range(500):
            noise.strip(f"{HEADER} cch=1;")

    threads = [threading.Thread(target=strip) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert noise.counts()[0][1] == 2000
