from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from workloads.__main__ import main
from workloads.cpu import options as cpu_options
from workloads.cpu.bench import memory_problem, run, taking_part
from workloads.cpu.cases import OURS, PEER_CONTENDERS, Contender, chosen_cases
from workloads.cpu.load import EngineFailed, Load, LoadFailed, Outcome
from workloads.cpu.options import CpuOptions
from workloads.cpu.prompts import Prompts
from workloads.cpu.run import Race, case_rounds, estimated_s, turn_order

OUR = OURS[0]
OPENVINO, OPENVINO_OFF = PEER_CONTENDERS["openvino"]


class Scripted:
    """An engine whose tokens come one a ``pace`` seconds, and which notes its loads."""

    pid = 1
    ready_s = 2.0
    about: Mapping[str, Any] = {}

    def __init__(self, name: str, pace: float, journal: list[str]) -> None:
        self.name, self.pace, self.journal = name, pace, journal
        self.fails: Exception | None = None

    def run(self, load: Load, limit_s: float) -> Outcome:
        self.journal.append(f"{self.name} {load.max_tokens}")
        if self.fails is not None:
            raise self.fails
        n, pace = load.max_tokens, self.pace
        sessions = tuple(tuple((pace, n * pace, n) for _ in calls) for calls in load.sessions)
        return Outcome(sessions, n * pace)

    def stop(self) -> None:
        self.journal.append(f"{self.name} ends")


@pytest.fixture
def journal() -> list[str]:
    return []


def make_race(rounds: int, kv_tokens: int = 100_000) -> Race:
    prompts = Prompts(lambda text: [ord(word[0]) for word in text.split()], 49_152, 0)
    return Race(rounds, prompts, kv_tokens, settle_s=0.0)


def starter(journal: list[str], **special: Exception) -> Callable[[Contender], Scripted]:
    """Starts engines: ours takes 10 ms a token, peers 20; ``special`` ones fail at their start."""

    def start(contender: Contender) -> Scripted:
        name = contender.name
        journal.append(f"{name} starts")
        if name in special:
            raise special[name]
        return Scripted(name, 0.01 if contender.engine == "ours" else 0.02, journal)

    return start


def options(tmp_path: Path, **changed: Any) -> CpuOptions:
    chosen = CpuOptions(
        peers=("openvino",),
        rounds=1,
        cases=tuple(chosen_cases(["decode_1_short"])[:1]),
        model=None,
        threads=None,
        kv_gib=1,
        seed=0,
        build=tmp_path / "build",
        output=tmp_path / "results",
    )
    return replace(chosen, **changed)


def test_engines_take_turns_and_each_round_begins_with_another(journal: list[str]) -> None:
    race = make_race(rounds=3)
    for contender in (OUR, OPENVINO):
        race.add(contender, starter(journal))
    journal.clear()
    race.run(chosen_cases(["decode_1_2k"]))
    # Each turn: the prompt unmeasured for 1 token, then 128 tokens that count.
    ours, theirs = ["ours 1", "ours 128"], ["openvino 1", "openvino 128"]
    assert journal == ours + theirs + theirs + ours + ours + theirs
    values = race.measured.values["decode_1_2k"]
    assert values[OUR] == pytest.approx([100.0] * 3)
    assert values[OPENVINO] == pytest.approx([50.0] * 3)


def test_everybody_comes_once_in_a_round() -> None:
    three = (*OURS[:2], OPENVINO)
    orders = [[each.name for each in turn_order(three, number)] for number in range(4)]
    assert orders[1] == ["ours-cache-off", "openvino", "ours"]
    assert orders[3] == orders[0]
    assert all(sorted(order) == sorted(orders[0]) for order in orders)


def test_an_engine_that_fails_a_load_goes_on_with_the_next_case(journal: list[str]) -> None:
    race = make_race(rounds=2)
    race.add(OUR, starter(journal))
    engine = race.engines[OUR]
    assert isinstance(engine, Scripted)
    engine.fails = LoadFailed("too long")
    race.run(chosen_cases(["decode_1_2k"]))
    assert race.measured.left_out == {"ours, decode_1_2k": "too long"}
    assert journal == ["ours starts", "ours 1"]  # not tried again in the second round
    engine.fails = None
    race.run(chosen_cases(["cold_ttft_512"]))
    assert race.measured.values["cold_ttft_512"][OUR] == pytest.approx([10.0, 10.0])


def test_an_engine_that_dies_is_ended_and_the_others_go_on(journal: list[str]) -> None:
    race = make_race(rounds=2)
    for contender in (OPENVINO, OUR):
        race.add(contender, starter(journal))
    engine = race.engines[OPENVINO]
    assert isinstance(engine, Scripted)
    engine.fails = EngineFailed("it ended with status -9")
    race.run(chosen_cases(["decode_1_2k"]))
    assert race.measured.left_out == {"openvino": "it ended with status -9"}
    assert "openvino ends" in journal
    assert len(race.measured.values["decode_1_2k"][OUR]) == 2


def test_what_does_not_fit_the_memory_is_skipped_with_the_reason(journal: list[str]) -> None:
    race = make_race(rounds=1, kv_tokens=2000)
    race.add(OUR, starter(journal))
    race.run(chosen_cases(["decode_1_short", "decode_1_2k"]))
    assert list(race.measured.values) == ["decode_1_short", "decode_1_short_busy_core"]
    assert "2,176 tokens" in race.measured.skipped["decode_1_2k"]


def test_a_peer_that_fails_to_start_is_left_out_with_the_reason(
    tmp_path: Path, journal: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    start = starter(journal, openvino=EngineFailed("no module named openvino"))
    assert run(options(tmp_path), make_race(1), start, {}, 8192) == 0
    written = json.loads((tmp_path / "results" / "bench-cpu.json").read_text())
    assert written["figures"]["decode_1_short_tps"]["value"] == pytest.approx(100.0)
    assert not [key for key in written["figures"] if "openvino" in key]
    assert written["data"]["not_measured"]["openvino"] == "no module named openvino"
    printed = capsys.readouterr()
    assert "not measured: openvino: no module named openvino" in printed.out


def test_a_whole_run_writes_figures_ratios_and_a_plot(tmp_path: Path, journal: list[str]) -> None:
    unable: dict[str, str | None] = {"ours-q4": "no 4-bit weights yet", "ours-http": None}
    assert run(options(tmp_path), make_race(1), starter(journal), unable, 8192) == 0
    written = json.loads((tmp_path / "results" / "bench-cpu.json").read_text())
    ratio = written["figures"]["decode_1_short_ratio_openvino"]
    assert ratio["value"] == pytest.approx(2.0)
    assert ratio["goal"] == 2.0
    assert written["data"]["not_measured"]["ours-q4"] == "no 4-bit weights yet"
    assert written["data"]["values"]["decode_1_short_tps_openvino"] == pytest.approx([50.0])
    assert (tmp_path / "results" / "bench-cpu.png").read_bytes().startswith(b"\x89PNG")
    # The first start of each engine warms its files up; a second one is timed.
    assert journal.count("ours starts") == 2
    assert journal.count("openvino starts") == 2
    assert journal.count("ours-http starts") == 1
    assert "ours-q4 starts" not in journal
    assert [line for line in journal[-3:] if line.endswith("ends")] == journal[-3:]


def test_engines_are_ended_when_the_run_is_interrupted(tmp_path: Path, journal: list[str]) -> None:
    begin = starter(journal)

    def start(contender: Contender) -> Scripted:
        engine = begin(contender)
        if contender.name == "ours-http":
            engine.fails = KeyboardInterrupt()  # type: ignore[assignment]
        return engine

    with pytest.raises(KeyboardInterrupt):
        run(options(tmp_path), make_race(1), start, {}, 8192)
    assert {line for line in journal[-4:] if line.endswith("ends")} == {
        "ours ends",
        "ours-q4 ends",
        "ours-http ends",
        "openvino ends",
    }
    assert not (tmp_path / "results").exists()


def test_without_ours_the_run_fails(
    tmp_path: Path, journal: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    start = starter(journal, ours=EngineFailed("it ended with status 1"))
    assert run(options(tmp_path, peers=()), make_race(1), start, {}, 8192) == 1
    assert "FAILED: ours" in capsys.readouterr().err


def test_a_prompt_beyond_the_context_is_skipped(tmp_path: Path, journal: list[str]) -> None:
    cases = tuple(chosen_cases(["cold_ttft"]))
    run(options(tmp_path, peers=(), cases=cases), make_race(1), starter(journal), {}, 4096)
    written = json.loads((tmp_path / "results" / "bench-cpu.json").read_text())
    assert "context of 7,501 tokens" in written["data"]["not_measured"]["cold_ttft_7500"]
    assert "cold_ttft_2050_ms" in written["figures"]


def test_engines_that_do_not_fit_the_memory_together_are_refused_before(tmp_path: Path) -> None:
    chosen = options(tmp_path, kv_gib=2)  # ours, ours-q4, ours-http, openvino: 4 x 3 GiB
    assert memory_problem(chosen, 12.0) is None
    problem = memory_problem(chosen, 11.9)
    assert problem is not None
    assert "4 engines" in problem
    assert "--kv-memory" in problem


def test_only_who_has_something_to_do_takes_part() -> None:
    names = [each.name for each in taking_part(("openvino",), chosen_cases(["cold_ttft_512"]))]
    assert names == ["ours", "ours-q4", "ours-http", "openvino-cache-off"]


def test_what_comes_down_to_a_per_cent_has_more_rounds() -> None:
    assert [case_rounds(case, 3) for case in chosen_cases(["nothing", "agents"])] == [3, 12]
    assert estimated_s(chosen_cases(["cold_ttft_512"]), [OUR, OPENVINO_OFF], 10) == pytest.approx(
        2 * 10 * 0.7
    )


def parsed(*arguments: str) -> CpuOptions:
    parser = argparse.ArgumentParser()
    command = cpu_options.add_parser(parser.add_subparsers())
    return cpu_options.resolve(parser.parse_args([cpu_options.NAME, *arguments]), command)


def test_options_have_their_defaults() -> None:
    found = parsed()
    assert (found.peers, found.rounds, len(found.cases), found.kv_gib) == ((), 5, 20, 2)
    quick = parsed("--quick", "--peers", "vllm", "llama.cpp", "vllm")
    assert (quick.peers, quick.rounds) == (("vllm", "llama.cpp"), 2)
    assert "decode_32_2k" not in [case.stem for case in quick.cases]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--peers", "sglang"], "choose from"),
        (["--rounds", "0"], "'0' is not a whole number of at least 1"),
        (["--kv-memory", "1.5"], "'1.5' is not a whole number of at least 1"),
        (["--only", "lukewarm"], "'lukewarm' is in no case's name"),
        (["--quick", "--only", "cold"], "give one of them"),
    ],
)
def test_a_wrong_option_gets_a_clear_message(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        main(["bench-cpu", *arguments])
    assert error.value.code == 2
    assert message in capsys.readouterr().err
