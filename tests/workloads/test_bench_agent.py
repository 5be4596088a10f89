from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.workloads.making import load, options, without_pictures
from tests.workloads.scripted import Script, serving
from workloads.__main__ import main
from workloads.agents.bench import bench_agent
from workloads.agents.legs import OpenServer
from workloads.agents.prompt import SYSTEM_PROMPT
from workloads.agents.targets import Target, parse_target
from workloads.own_server import RunningServer

pictures = pytest.fixture(without_pictures)


def opener(on: Script, off: Script) -> OpenServer:
    @contextmanager
    def open_server(target: Target) -> Iterator[RunningServer]:
        with serving(on if target.cache else off) as url:
            yield RunningServer(url)

    return open_server


def results(folder: Path) -> dict[str, Any]:
    written: dict[str, Any] = json.loads((folder / "bench-agent.json").read_text())
    return written


def test_both_runs_are_measured_compared_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on, off = Script(), Script(prefix_cache=False)
    assert bench_agent(options(tmp_path), opener(on, off)) == 0
    written = results(tmp_path)
    figures = {key: figure["value"] for key, figure in written["figures"].items()}
    runs = written["data"]["runs"]
    calls = runs["on"]["calls"]
    prompt = sum(call["prompt_tokens"] for call in calls)
    cached = sum(call["cached_tokens"] for call in calls)
    assert len(calls) == len(runs["off"]["calls"]) == 6
    assert cached > 0
    assert figures["hit_rate"] == cached / prompt
    assert figures["computed_tokens_on"] == prompt - cached
    assert figures["computed_tokens_off"] == prompt
    assert figures["warm_ttft_p50_ratio"] == (
        figures["warm_ttft_p50_ms_on"] / figures["warm_ttft_p50_ms_off"]
    )
    assert written["figures"]["warm_ttft_p50_ratio"]["goal"] == 0.333
    assert figures["peak_memory_mib_on"] == 3
    for key in ("ttft_p99_ms", "wall_s", "decode_tps"):
        assert figures[f"{key}_on"] > 0
        assert figures[f"{key}_off"] > 0
    assert (tmp_path / "bench-agent.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "sums agree" in printed
    assert f"{cached / prompt:.4g}" in printed


@pytest.mark.usefixtures("pictures")
def test_the_run_without_the_cache_sends_the_same_prompts_whatever_it_answers(
    tmp_path: Path,
) -> None:
    on, off = Script(), Script(prefix_cache=False, own_words="something else")
    assert bench_agent(options(tmp_path), opener(on, off)) == 0
    assert len(on.prompts) == 7
    assert sorted(map(str, on.prompts)) == sorted(map(str, off.prompts))


@pytest.mark.usefixtures("pictures")
def test_a_fresh_server_is_warmed_up_flushed_and_not_charged_for_it(tmp_path: Path) -> None:
    on, off = Script(), Script(prefix_cache=False)
    assert bench_agent(options(tmp_path), opener(on, off)) == 0
    assert on.flushes == off.flushes == 1
    assert on.paths[0] == "/v1/completions"
    first = results(tmp_path)["data"]["runs"]["on"]["calls"][0]
    assert (first["turn"], first["cached_tokens"]) == (1, 0)


@pytest.mark.usefixtures("pictures")
def test_counters_that_contradict_the_answers_fail_the_benchmark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on, off = Script(cached_counter_error=16), Script(prefix_cache=False)
    assert bench_agent(options(tmp_path), opener(on, off)) == 1
    assert "cached_tokens: server" in capsys.readouterr().err
    assert results(tmp_path)["data"]["runs"]["on"]["counters_agree"] is False


@pytest.mark.usefixtures("pictures")
def test_a_server_that_dies_leaves_what_was_measured_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on, off = Script(dies_at_call=5), Script(prefix_cache=False)
    assert bench_agent(options(tmp_path), opener(on, off)) == 1
    written = results(tmp_path)
    run = written["data"]["runs"]["on"]
    assert run["complete"] is False
    assert len(run["calls"]) == 3
    assert "off" not in written["data"]["runs"]
    assert written["figures"]["hit_rate"]["value"] >= 0
    assert "FAILED" in capsys.readouterr().err


@pytest.mark.usefixtures("pictures")
def test_a_trace_is_replayed_within_its_bounds_and_says_what_it_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {
            "session_id": name,
            "turn": turn,
            "messages": [{"role": "tool" if turn else "user", "content": f"{name} says {turn}"}],
            "output": f"recorded {turn}",
        }
        for name in ("a", "b", "c")
        for turn in range(3)
    ]
    trace = tmp_path / "t.jsonl"
    trace.write_text("\n".join(json.dumps(row) for row in rows))
    on, off = Script(), Script(prefix_cache=False)
    chosen = options(tmp_path, load=load(trace=trace, sessions=2, max_turns=2))
    assert bench_agent(chosen, opener(on, off)) == 0
    printed = capsys.readouterr().out
    assert "left out: 1 whole sessions, 5 calls in all" in printed
    assert "messages sent as user under a heading: 2 tool" in printed
    assert [m["content"] for m in on.prompts[-1]][1] == "recorded 0"
    # Results are published: where a file lies on this machine is nobody's business.
    assert str(tmp_path.parent) not in (tmp_path / "bench-agent.json").read_text()


@pytest.mark.usefixtures("pictures")
def test_sessions_that_outgrow_the_context_are_counted_and_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = len(SYSTEM_PROMPT.split()) + 200  # in words: a few turns fit, all of them do not
    on, off = Script(context_length=limit), Script(prefix_cache=False, context_length=limit)
    assert bench_agent(options(tmp_path, load=load(turns=40)), opener(on, off)) == 0
    assert "2 sessions ended early" in capsys.readouterr().out
    ended = results(tmp_path)["data"]["runs"]["on"]["sessions_ended_by_a_too_long_prompt"]
    assert sorted(ended) == ["agent-00", "agent-01"]


@pytest.mark.usefixtures("pictures")
def test_a_running_server_is_replayed_once_and_left_as_it_is(tmp_path: Path) -> None:
    script = Script()
    with serving(script) as url:
        assert bench_agent(options(tmp_path, targets=(parse_target(url),))) == 0
    assert script.flushes == 0
    assert script.paths == ["/v1/chat/completions"] * 6
    figures = results(tmp_path)["figures"]
    assert "hit_rate" in figures
    assert not [key for key in figures if key.endswith("_off") or key.endswith("ratio")]


def test_a_server_that_cannot_be_reached_is_a_clear_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(Script()) as url:
        pass
    assert bench_agent(options(tmp_path, targets=(parse_target(url),))) == 1
    assert "/v1/models: ConnectError" in capsys.readouterr().err
    assert not (tmp_path / "bench-agent.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--turns", "0"], "--turns: '0' is not a whole number of at least 1"),
        (["--arrival", "soon"], "is not an arrival"),
        (["--think-time", "-1"], "is not a number of at least 0"),
        (["--sessions", "3"], "--sessions does not apply without --trace"),
        (["--trace", "/none.jsonl"], "there is no file /none.jsonl"),
        (["--trace", __file__, "--agents", "3"], "--agents does not apply with --trace"),
        (["--url", "http://127.0.0.1:1", "--model", "m"], "does not apply with --url"),
        (["--flush"], "--flush only applies with --url"),
        (["--model-name", "m"], "--model-name only applies with --url"),
        (["--api-key-env", "KEY"], "--api-key-env only applies with --url"),
        (["--url", "127.0.0.1:8000"], "is not a URL such as http://127.0.0.1:8000"),
        (["--url", "a b=http://127.0.0.1:1"], "'a b' is not a target's name"),
        (["--url", "a=http://h:1", "--url", "a=http://h:2"], "two targets have the name a"),
        (["--url", "http://me:secret@h:1"], "h: a target's URL has no query, fragment or user"),
        (["--url", "http://h:1", "--api-key-env", "NO_SUCH_KEY"], "'NO_SUCH_KEY' is not set"),
        (["--url", "a=http://h:1", "--api-key-env", "b=PATH"], "'b=PATH' names no target"),
        (["--slo-share", "0.5"], "--slo-share needs a limit"),
        (["--slo-ttft-ms", "5", "--slo-share", "1.5"], "is not a share above 0 and up to 1"),
        (["--rates", "0.1,0"], "is not a list of rates above 0"),
        (["--rates", "0.1", "--arrival", "together"], "give one of them"),
        (["--colour", "red"], "unrecognized arguments"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["bench-agent", *arguments])
    assert refused.value.code == 2
    assert message in capsys.readouterr().err


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    printed = capsys.readouterr().out
    assert "bench-agent" in printed
    assert "bench-startup" in printed
