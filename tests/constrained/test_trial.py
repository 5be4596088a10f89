"""Grammars that no process survives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from server.constrained import compiling, trial
from server.constrained.trial import Trial, TrialBusy
from tests.constrained.tokenizers_of_two_kinds import BYTE_END
from tests.tiny import VOCAB_SIZE

GOOD = 'start: "a"'
# Of these intersections each has twice the states of the one before.
ENDLESS = "start: A\nA: " + " & ".join(f"/.*a{index}.*/" for index in range(60))


@pytest.fixture(scope="module")
def tried(tokenizer: Tokenizer) -> Iterator[Trial]:
    made = Trial(tokenizer.to_str(), VOCAB_SIZE, [BYTE_END])
    yield made
    made.close()


def test_a_good_grammar_has_no_problem_and_a_bad_one_has_llguidances(tried: Trial) -> None:
    assert tried.problem(GOOD) == ""
    assert "unknown name" in tried.problem("start: a")
    assert tried.problem(GOOD) == ""


def test_a_grammar_may_be_nested_more_deeply_than_a_threads_usual_stack(tried: Trial) -> None:
    links = "\n".join(f"r{link}: r{link + 1}" for link in range(8_000))
    assert tried.problem(f'start: r0\n{links}\nr8000: "c"') == ""


def test_a_grammar_that_takes_for_ever_is_given_up_and_the_next_is_tried(
    tried: Trial, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # The program itself, with less patience: three seconds are long for a test.
    source = Path(compiling.__file__).read_text(encoding="utf-8")
    hasty = tmp_path / "hasty.py"
    hasty.write_text(source.replace("CPU_SECONDS = 3.0", "CPU_SECONDS = 0.3"), encoding="utf-8")
    monkeypatch.setattr(compiling, "__file__", str(hasty))
    monkeypatch.setattr(tried, "_process", None)
    assert tried.problem(ENDLESS) == "it takes more than 3 seconds to compile"
    assert tried.problem(GOOD) == ""
    # The look for what is Lark takes time that grows with the square of the lines.
    assert tried.in_lark("\n" * 20_000) == ("", "it takes more than 3 seconds to compile")
    assert tried.in_lark('root ::= "a"')[1] == ""


def test_a_process_that_is_killed_says_so_and_the_next_is_tried(tried: Trial) -> None:
    assert tried.problem(GOOD) == ""
    assert tried._process is not None
    os.kill(tried._process.pid, signal.SIGSEGV)
    assert "too deeply" in tried.problem(GOOD)
    assert tried.problem(GOOD) == ""


def test_a_process_that_says_nothing_is_given_up(
    tried: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "_WALL_SECONDS", 0.05)
    assert tried.problem(GOOD) == ""
    assert tried._process is not None
    os.kill(tried._process.pid, signal.SIGSTOP)
    assert tried.problem(GOOD) != ""


def test_a_grammar_waits_for_another_for_a_while(
    tried: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "_WAITING_SECONDS", 0.05)
    with tried._one, pytest.raises(TrialBusy):
        tried.problem(GOOD)
    assert tried.problem(GOOD) == ""


def test_nothing_is_tried_after_the_end(tokenizer: Tokenizer) -> None:
    made = Trial(tokenizer.to_str(), VOCAB_SIZE, [BYTE_END])
    assert made.problem(GOOD) == ""
    process = made._process
    made.close()
    assert process is not None
    assert process.returncode == 0
    with pytest.raises(RuntimeError, match="any more"):
        made.problem(GOOD)


def test_the_end_does_not_wait_for_a_grammar(tokenizer: Tokenizer) -> None:
    made = Trial(tokenizer.to_str(), VOCAB_SIZE, [BYTE_END])
    assert made.problem(GOOD) == ""
    problems: list[str] = []
    thread = threading.Thread(target=lambda: problems.append(made.problem(ENDLESS)))
    thread.start()
    while not made._one.locked():
        time.sleep(0.001)
    process = made._process
    made.close()
    thread.join()
    assert process is not None
    assert process.returncode == -signal.SIGKILL
    assert len(problems) == 1


def test_the_process_ends_with_the_one_that_started_it(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    definition = tmp_path / "tokenizer.json"
    definition.write_text(tokenizer.to_str(), encoding="utf-8")
    program = (
        "import sys\n"
        "from server.constrained.trial import Trial\n"
        f"made = Trial(open({str(definition)!r}).read(), {VOCAB_SIZE}, [{BYTE_END}])\n"
        f"made.problem({GOOD!r})\n"
        "print(made._process.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert _is_there(child)
        parent.kill()
    deadline = time.monotonic() + 10
    while _is_there(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _is_there(child)


def _is_there(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has asked for does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
