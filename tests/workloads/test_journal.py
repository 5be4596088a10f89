"""A benchmark that was interrupted: what it measured is on disk, and it can go on."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.making import load, options, record, without_pictures
from tests.workloads.scripted import Script, serving
from workloads.__main__ import main
from workloads.agents.bench import bench_agent
from workloads.agents.journal import (
    JournalError,
    Leg,
    read_journal,
    resume_journal,
    start_journal,
)
from workloads.agents.legs import OpenServer
from workloads.agents.replay import Ended
from workloads.agents.targets import Target
from workloads.own_server import RunningServer

pictures = pytest.fixture(autouse=True)(without_pictures)
LEG = Leg("on", 0, None)


def lines(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "bench-agent.journal.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def results(folder: Path) -> dict[str, Any]:
    written: dict[str, Any] = json.loads((folder / "bench-agent.json").read_text())
    return written


def opener(*scripts: Script) -> OpenServer:
    """A new server for each replay, by these scripts in order."""
    waiting = iter(scripts)

    @contextmanager
    def open_server(target: Target) -> Iterator[RunningServer]:
        with serving(next(waiting)) as url:
            yield RunningServer(url)

    return open_server


def test_a_journal_gives_back_what_was_noted(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    journal = start_journal(path, {"seed": 1})
    first, second = record(1, text="ä\ud800"), record(2, cached_tokens=None)
    journal.began(LEG, {"emptied": True})
    journal.call(LEG, first)
    journal.call(LEG, second)
    journal.ended(LEG, Ended("b", "too long", 2))
    journal.close()
    kept = resume_journal(path, {"seed": 1}).kept(LEG)
    assert kept.replay.records == (first, second)
    assert kept.replay.too_long == ("b",)
    assert kept.began == {"emptied": True}
    assert kept.finished is None
    assert kept.replay.wall_s == 0.6  # both were sent at 0 s and took 0.6 s


def test_a_line_that_was_cut_off_is_dropped_and_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    journal = start_journal(path, {})
    journal.call(LEG, record(1))
    journal.call(LEG, record(2))
    journal.close()
    path.write_bytes(path.read_bytes()[:-20])
    again = resume_journal(path, {})
    assert [each.turn for each in again.kept(LEG).records] == [1]
    again.call(LEG, record(2, text="anew"))
    again.close()
    _, kept, _ = read_journal(path)
    assert [each.answer.text for each in kept[LEG].records] == ["yes", "anew"]


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_wherever_a_journal_is_cut_off_its_whole_lines_are_kept(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "j.jsonl"
        journal = start_journal(path, {"seed": 1})
        head = path.stat().st_size
        for turn in range(1, 6):
            journal.call(LEG, record(turn, text="ä" * turn))
        journal.close()
        content = path.read_bytes()
        cut = data.draw(st.integers(head, len(content)))
        path.write_bytes(content[:cut])
        again = resume_journal(path, {"seed": 1})
        whole = content[:cut].count(b"\n") - 1
        assert [each.turn for each in again.kept(LEG).records] == list(range(1, whole + 1))
        for turn in range(whole + 1, 6):
            again.call(LEG, record(turn, text="ä" * turn))
        again.close()
        assert path.read_bytes() == content


def test_other_options_are_refused_and_each_is_named_with_both_values(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    start_journal(path, {"seed": 1, "rounds": 2, "targets": ["a"], "gone": 5}).close()
    with pytest.raises(JournalError) as refused:
        resume_journal(path, {"seed": 1, "rounds": 3, "targets": ["a", "b"], "new": None})
    text = str(refused.value)
    assert "gone was 5 and is not given" in text
    assert "rounds was 2 and is 3" in text
    assert "targets was ['a'] and is ['a', 'b']" in text
    assert "seed" not in text
    assert "--resume" in text


@pytest.mark.parametrize(
    "content", [b"", b"no json\n", b"[]\n", b'{"journal": 1, "options": {}}\n{"kind": "call"}\n']
)
def test_what_is_no_journal_is_refused_with_its_name(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "j.jsonl").write_bytes(content)
    with pytest.raises(JournalError, match=r"j\.jsonl holds a line"):
        resume_journal(tmp_path / "j.jsonl", {})


def test_a_new_journal_keeps_the_last_one_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    start_journal(path, {"seed": 1}).close()
    start_journal(path, {"seed": 2}).close()
    assert read_journal(path)[0] == {"seed": 2}
    assert read_journal(tmp_path / "j.jsonl.old")[0] == {"seed": 1}


def test_resume_without_a_journal_is_a_clear_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench_agent(options(tmp_path, resume=True)) == 1
    assert "there is no journal" in capsys.readouterr().err


def test_a_replay_that_is_killed_midway_leaves_its_calls_and_is_finished_by_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = Script(holds_call=4)
    with serving(script) as url:
        asked = ["bench-agent", "--url", f"it={url}", "--agents", "2", "--turns", "3"]
        asked += ["--think-time", "0", "--concurrency", "1", "--output", str(tmp_path)]
        process = subprocess.Popen(
            [sys.executable, "-m", "workloads", *asked], stderr=subprocess.DEVNULL
        )
        try:
            while not script.held.wait(0.1):
                assert process.poll() is None
        finally:
            process.kill()
            process.wait()
            script.holds_call = None
            script.release.set()
        calls = [line for line in lines(tmp_path) if line.get("kind") == "call"]
        assert [(call["session"], call["turn"]) for call in calls] == [
            ("agent-00", 1),
            ("agent-00", 2),
            ("agent-00", 3),
        ]
        assert not (tmp_path / "bench-agent.json").exists()

        assert main([*asked, "--seed", "1", "--resume"]) == 1
        assert "seed was 0 and is 1" in capsys.readouterr().err
        assert main([*asked, "--resume"]) == 0
    assert len(script.prompts) == 6  # nothing was asked twice
    run = results(tmp_path)["data"]["runs"]["it"]
    assert run["resumed_after_calls"] == [3]
    assert [call.get("after_resume") for call in run["calls"]] == [None] * 3 + [1] * 3
    assert results(tmp_path)["data"]["resumed"] is True
    assert run["wall_s"] >= sum(call["total_s"] for call in run["calls"])
    printed = capsys.readouterr().out
    assert "it*" in printed
    assert "resumed after 3 of 6 calls" in printed
    assert "resumed after 3 of 6 calls" in (tmp_path / "bench-agent.html").read_text()


def test_half_replayed_sessions_go_on_after_the_replies_they_had(tmp_path: Path) -> None:
    chosen = {"load": load(agents=1, turns=4)}
    dying, on, off = Script(dies_at_call=4), Script(own_words="other"), Script(prefix_cache=False)
    assert bench_agent(options(tmp_path, **chosen), opener(dying)) == 1
    resumed = options(tmp_path, resume=True, **chosen)
    assert bench_agent(resumed, opener(on, off)) == 0
    # A warm-up and two calls were answered; the third one's prompt has both replies.
    assert len(on.prompts) == 3
    said = [m["content"] for m in on.prompts[1] if m["role"] == "assistant"]
    assert said == ["reply 2", "reply 3"]
    runs = results(tmp_path)["data"]["runs"]
    assert len(runs["on"]["calls"]) == len(runs["off"]["calls"]) == 4
    assert (runs["on"]["resumed_after_calls"], runs["off"]["resumed_after_calls"]) == ([2], [])
    # Counters are compared over the calls since the server was started again.
    assert runs["on"]["counters_agree"] is True
    # The first call after it found an empty cache.
    assert runs["on"]["calls"][2]["cached_tokens"] == 0


def test_a_finished_benchmark_is_shown_again_without_a_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench_agent(options(tmp_path), opener(Script(), Script(prefix_cache=False))) == 0
    before, printed = results(tmp_path), capsys.readouterr().out
    assert bench_agent(options(tmp_path, resume=True), opener()) == 0
    assert results(tmp_path)["figures"] == before["figures"]
    assert results(tmp_path)["data"] == before["data"]
    assert capsys.readouterr().out == printed


def test_a_session_that_ended_early_is_not_tried_again(tmp_path: Path) -> None:
    from workloads.agents.prompt import SYSTEM_PROMPT

    chosen = {"load": load(agents=1, turns=40), "targets": (Target("a", "http://unused"),)}
    limit = len(SYSTEM_PROMPT.split()) + 200
    assert bench_agent(options(tmp_path, **chosen), opener(Script(context_length=limit))) == 0
    last = lines(tmp_path)[-1]
    assert last.pop("kind") == "finished"
    # As if it had been killed between the session's end and the replay's.
    path = tmp_path / "bench-agent.journal.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    nobody = Script(context_length=limit)
    assert bench_agent(options(tmp_path, resume=True, **chosen), opener(nobody)) == 0
    assert nobody.prompts == []
    run = results(tmp_path)["data"]["runs"]["a"]
    assert run["sessions_ended_by_a_too_long_prompt"] == ["agent-00"]
