"""bench-agent against servers that run already: any that have OpenAI's API, several in one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.workloads.making import load, options, without_pictures
from tests.workloads.scripted import Script, serving
from workloads.agents.bench import bench_agent
from workloads.agents.targets import Target, parse_target, with_access

pictures = pytest.fixture(autouse=True)(without_pictures)


def only_openai(**changes: Any) -> Script:
    return Script(only_openai=True, models=["m"], **changes)


def compare(folder: Path, scripts: dict[str, Script], **changes: Any) -> int:
    """Both servers measured side by side, under their names in ``scripts``."""
    (first, one), (second, other) = scripts.items()
    with serving(one) as url, serving(other) as other_url:
        targets = (Target(first, url), Target(second, other_url))
        return bench_agent(options(folder, targets=targets, **changes))


def results(folder: Path) -> dict[str, Any]:
    written: dict[str, Any] = json.loads((folder / "bench-agent.json").read_text())
    return written


def row(printed: str, name: str) -> str:
    return next(line for line in printed.splitlines() if line.startswith(name))


def test_a_server_with_nothing_but_openais_api_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = only_openai()
    with serving(script) as url:
        target = parse_target(f"other={url}/v1")
        assert bench_agent(options(tmp_path, targets=(target,), flush=True)) == 0
    assert [body["model"] for body in script.bodies] == ["m"] * 6
    run = results(tmp_path)["data"]["runs"]["other"]
    assert (run["prefix_cache"], run["counters_agree"]) == (None, None)
    assert run["cache_flushed_before"] is None
    figures = results(tmp_path)["figures"]
    cached = sum(call["cached_tokens"] for call in run["calls"])
    prompt = sum(call["prompt_tokens"] for call in run["calls"])
    assert figures["hit_rate_other"]["value"] == figures["hit_rate"]["value"] == cached / prompt
    printed = capsys.readouterr().out
    assert row(printed, "cache emptied before").endswith("not possible")
    assert row(printed, "peak memory of the server").endswith("not told")


@pytest.mark.parametrize(
    "tells", [("prompt_tokens", "completion_tokens"), ()], ids=["no details", "no usage"]
)
def test_cached_tokens_that_a_server_does_not_tell_are_unknown_and_not_none(
    tells: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(tmp_path, {"a": only_openai(), "b": only_openai(tells=tells)}) == 0
    written = results(tmp_path)
    assert {call["cached_tokens"] for call in written["data"]["runs"]["b"]["calls"]} == {None}
    assert "hit_rate_a" in written["figures"]
    assert not {"hit_rate_b", "computed_tokens_b"} & written["figures"].keys()
    assert written["figures"]["decode_tps_b"]["value"] > 0
    printed = capsys.readouterr().out
    assert row(printed, "cached tokens").split()[-3:] == ["not", "told", "-"]
    assert "b: cached tokens: not told" in printed


def test_a_server_that_leaves_zeros_out_gives_bounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(tmp_path, {"a": only_openai(), "b": only_openai(tells_zero=False)}) == 0
    runs = results(tmp_path)["data"]["runs"]
    # Word for word the same prompts, so what b does not tell is what a tells as zero.
    told = {name: runs[name]["tokens"] for name in "ab"}
    silent = sum(call["cached_tokens"] == 0 for call in runs["a"]["calls"])
    assert (told["a"]["untold"], told["b"]["untold"]) == (0, silent)
    assert told["a"]["cached"] == told["b"]["cached"] > 0
    printed = capsys.readouterr().out
    assert f"≥ {told['b']['cached']:,}" in row(printed, "cached tokens")
    assert f"b: cached tokens: not told for {silent} calls, counted as none there" in printed


def test_all_targets_get_the_first_ones_replies_and_are_set_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = only_openai(), only_openai(own_words="something else")
    assert compare(tmp_path, {"a": a, "b": b}) == 0
    assert sorted(map(str, a.prompts)) == sorted(map(str, b.prompts))
    assert not any("something else" in str(prompt) for prompt in b.prompts)
    figures = results(tmp_path)["figures"]
    assert {"wall_s_a", "wall_s_b", "hit_rate_a", "hit_rate_b"} <= figures.keys()
    printed = capsys.readouterr().out
    assert "b / a" in printed
    assert "a and b both answered 6 calls; 0 replies are equal" in printed


def test_rounds_change_who_is_first_and_medians_count(tmp_path: Path) -> None:
    a, b = Script(), Script()
    assert compare(tmp_path, {"a": a, "b": b}, load=load(rounds=3), flush=True) == 0
    runs = results(tmp_path)["data"]["runs"]
    assert list(runs) == ["a", "b", "b, round 2", "a, round 2", "a, round 3", "b, round 3"]
    assert a.flushes == b.flushes == 3
    walls = sorted(run["wall_s"] for name, run in runs.items() if name.startswith("a"))
    assert results(tmp_path)["figures"]["wall_s_a"]["value"] == walls[1]
    # Emptied before each round: none finds what another left.
    assert runs["a"]["tokens"] == runs["a, round 3"]["tokens"]


def test_a_key_goes_to_the_server_and_nowhere_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = only_openai()
    with serving(script) as url:
        targets = with_access([Target("a", url)], None, ["KEY"], {"KEY": "very-secret"})
        assert bench_agent(options(tmp_path, targets=targets)) == 0
    assert set(script.keys) == {"Bearer very-secret"}
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    printed = capsys.readouterr()
    assert b"very-secret" not in written
    assert "very-secret" not in printed.out + printed.err


def test_a_server_with_several_models_has_to_be_told_which(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = Script(only_openai=True, models=["small", "large"])
    with serving(script) as url:
        assert bench_agent(options(tmp_path, targets=(Target("a", url),))) == 1
        assert "has 2 models, name one with --model-name: small, large" in capsys.readouterr().err
        assert bench_agent(options(tmp_path, targets=(Target("a", url, model="large"),))) == 0
    assert {body["model"] for body in script.bodies} == {"large"}


def test_a_prompt_that_is_too_long_in_another_engines_words_ends_its_session_alone(
    tmp_path: Path,
) -> None:
    text = "This model's maximum context length is 9 tokens. However, you requested 10 tokens"
    script = only_openai(context_length=9, too_long_error={"message": text, "code": 400})
    with serving(script) as url:
        assert bench_agent(options(tmp_path, targets=(Target("a", url),))) == 1
    # Nothing fits there, which is said as such and not as a failed call.
    assert not (tmp_path / "bench-agent.json").exists()
    assert len(script.prompts) == 2


def test_targets_that_answer_different_turns_are_not_compared_as_if_they_were_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from workloads.agents.prompt import SYSTEM_PROMPT

    small = only_openai(context_length=len(SYSTEM_PROMPT.split()) + 200)
    assert compare(tmp_path, {"a": only_openai(), "b": small}, load=load(turns=40)) == 1
    assert "a and b did not answer the same prompts" in capsys.readouterr().err
