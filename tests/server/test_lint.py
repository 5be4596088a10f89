"""``python -m server lint``: requests of a file, replayed without a model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from server.lint import CLEAN, FOUND, WRONG, lint
from server.text import TextCodec

ROOT = Path(__file__).parents[2]
RULES = "Always be kind to people and say so. " * 14


def write(path: Path, lines: list[Any]) -> Path:
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def openai(system: str, question: str = "Hello") -> dict[str, Any]:
    said = (("system", system), ("user", question))
    return {"model": "gpt-9", "messages": [{"role": role, "content": text} for role, text in said]}


def anthropic(system: str, question: str = "Hello") -> dict[str, Any]:
    return {"system": system, "messages": [{"role": "user", "content": question}]}


@pytest.fixture
def run(tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Lint these lines: the exit status, the result, and what was said to standard error."""

    def run(lines: list[Any], *options: str) -> tuple[int, Any, str]:
        file = write(tmp_path / "requests.jsonl", lines)
        status = lint([str(file), "--model", str(tiny_folder), "--json", *options])
        told = capsys.readouterr()
        return status, json.loads(told.out), told.err

    return run


def test_what_would_be_served_and_what_is_missed(run: Any, tiny_folder: Path) -> None:
    prompts = [openai(f"It is 19:0{minute}. {RULES}", "Hi") for minute in (1, 2, 3)]
    status, told, errors = run(prompts)
    codec = TextCodec(tiny_folder)
    ids = [codec.render_chat(prompt["messages"]) for prompt in prompts]
    (size,) = {len(each) for each in ids}
    position = next(place for place in range(size) if ids[0][place] != ids[1][place])
    lost = size // 16 * 16 - position - 1
    assert (status, errors) == (FOUND, "")
    assert (told["requests"], told["prompt_tokens"]) == (3, 3 * size)
    assert told["cached_tokens"] == 2 * position
    assert told["hit_rate"] == round(2 * position / (3 * size), 4)
    assert told["mended_hit_rate"] == round(2 * (position + lost) / (3 * size), 4)
    (near_miss,) = told["near_misses"]
    assert (near_miss["kind"], near_miss["lost_tokens"]) == ("clock", lost)
    assert (near_miss["times"], near_miss["lines"]) == (2, [2, 3])
    assert (near_miss["position"], near_miss["characters"]) == (position, [6, 11])


def test_requests_that_share_what_they_can_are_clean(run: Any) -> None:
    status, told, _ = run([openai(RULES, f"{'xyz'[place] * 90}?") for place in range(3)])
    assert (status, told["near_misses"]) == (CLEAN, [])
    assert told["hit_rate"] > 0.5


def test_all_forms_of_requests_are_read(run: Any) -> None:
    times = iter(range(10, 50))

    def text() -> str:
        return f"It is 19:{next(times)}. {RULES}"

    lines = [
        openai(text()),
        {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": openai(text())},
        anthropic(text()),
        {"custom_id": "2", "params": {"max_tokens": 9, **anthropic(text())}},
        "",
        {"prompt": text()},
        {"url": "/v1/completions", "body": {"prompt": text()}},
        {"prompt": [1, 2, 3]},
    ]
    status, told, errors = run(lines)
    assert (status, errors, told["requests"]) == (FOUND, "", 7)
    kinds = {(each["kind"], each["section"]): each["lines"] for each in told["near_misses"]}
    assert kinds[("clock", "system")] == [2, 3, 4]  # one cache for both APIs
    assert list(kinds) == [("clock", "system")]  # the completions part once only


def test_wrong_lines_are_named_and_the_rest_is_looked_at(run: Any) -> None:
    lines = [openai(RULES), "no JSON", {"messages": []}, {"model": "m"}, [1], openai(RULES)]
    status, told, errors = run(lines)
    assert status == WRONG
    assert told["requests"] == 2
    assert [each["line"] for each in told["errors"]] == [2, 3, 4, 5]
    told_of = ("not JSON: Expecting value at character 1", "messages", "neither", "JSON object")
    for line, words in enumerate(told_of, 2):
        (said,) = [each for each in errors.splitlines() if f"line {line}:" in each]
        assert words in said
        assert "requests.jsonl" in said


def test_a_cache_that_is_too_small_serves_nothing(run: Any) -> None:
    prompts = [openai(text * 12) for text in (RULES[:80], "b" * 60, "c" * 60, RULES[:80])]
    assert run(prompts)[1]["cached_tokens"] > 500
    assert run(prompts, "--kv-tokens", "1200")[1]["cached_tokens"] < 100


def test_what_is_salted_is_not_shared(run: Any) -> None:
    prompts = [{**openai(RULES), "cache_salt": salt} for salt in ("a", "b", "a")]
    told = run(prompts)[1]
    assert told["cached_tokens"] == told["prompt_tokens"] // 3 // 16 * 16


def test_a_file_that_is_not_there_is_an_error(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lint([str(tmp_path / "none.jsonl"), "--model", str(tiny_folder)]) == WRONG
    assert "none.jsonl" in capsys.readouterr().err
    file = write(tmp_path / "one.jsonl", [openai(RULES)])
    assert lint([str(file), "--model", str(tmp_path / "no model")]) == WRONG
    assert "no model" in capsys.readouterr().err


def test_the_command_line_runs_it(tiny_folder: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "r.jsonl", [openai(f"It is 19:0{each}. {RULES}") for each in range(3)])
    command = [sys.executable, "-m", "server", "lint", str(file), "--model", str(tiny_folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == FOUND, done.stderr
    assert "r.jsonl: 3 requests" in done.stdout
    assert "clock: 2 times" in done.stdout
    assert "(lines 2, 3)" in done.stdout
    assert "system message 0, characters 6 to 11" in done.stdout
    assert "here    '19:02'" in done.stdout
