from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.workloads.making import load, without_pictures
from tests.workloads.scripted import Script, serving
from tests.workloads.test_agent_report import run
from tests.workloads.test_own_server import HEALTHY
from workloads.__main__ import main
from workloads.agents.legs import OpenServer
from workloads.agents.slo import Slo
from workloads.agents.targets import Target
from workloads.own_server import RunningServer
from workloads.peers.bench import all_targets, compare, over_peers
from workloads.peers.fleet import Fleet, Started
from workloads.peers.options import PeerOptions

pictures = pytest.fixture(autouse=True)(without_pictures)


def options(folder: Path, **changes: object) -> PeerOptions:
    base = PeerOptions(
        load=load(rounds=2),
        peers=("vllm",),
        running=(),
        slo=Slo(),
        model=None,
        threads=None,
        kv_gib=1,
        build=folder / "build",
        only_install=False,
        resume=False,
        output=folder,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def opener(urls: dict[str, str]) -> OpenServer:
    @contextmanager
    def open_server(target: Target) -> Iterator[RunningServer]:
        yield RunningServer(urls[target.name])

    return open_server


def test_both_take_turns_with_empty_caches_and_the_same_prompts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, vllm = Script(), Script(own_words="something else", models=["theirs"])
    with serving(ours) as first, serving(vllm) as second:
        chosen = options(tmp_path)
        urls = {"ours": first, "vllm": second}
        assert compare(chosen, all_targets(chosen), opener(urls)) == 0
    written = json.loads((tmp_path / "bench-peers.json").read_text())
    assert list(written["data"]["runs"]) == ["ours", "vllm", "vllm, round 2", "ours, round 2"]
    figures = written["figures"]
    for key in ("agents_wall_over_vllm", "agents_ttft_p99_over_vllm"):
        assert (figures[key]["goal"], figures[key]["better"]) == (0.5, "lower")
        assert figures[key]["value"] > 0
    assert {"hit_rate_ours", "hit_rate_vllm", "computed_tokens_vllm"} <= figures.keys()
    assert ours.flushes == vllm.flushes == 2
    asked = [[p for p in script.prompts if len(p) > 1] for script in (ours, vllm)]
    assert sorted(map(str, asked[0])) == sorted(map(str, asked[1]))
    assert "agents_wall_over_vllm" in capsys.readouterr().out


def test_the_figures_are_ours_over_theirs_by_the_median_of_the_rounds() -> None:
    runs = [
        run("ours", wall_s=1.0),
        run("vllm", wall_s=4.0),
        run("vllm", wall_s=10.0, number=1),
        run("ours", wall_s=5.0, number=1),
        run("ours", wall_s=9.0, number=2),
        run("vllm", wall_s=10.0, number=2),
        run("other", wall_s=2.0),
        run("other", wall_s=5.0, number=1),
        run("other", wall_s=9.0, number=2),
    ]
    found = over_peers(runs)
    assert found["agents_wall_over_vllm"].value == 0.5
    assert found["agents_wall_over_other"].value == 1.0
    assert found["agents_wall_over_other"].goal is None
    # Nobody answered a call there, so no time to a first token is known.
    assert "agents_ttft_p99_over_vllm" not in found


def test_servers_stay_loaded_between_their_turns_and_end_with_the_benchmark(
    tmp_path: Path,
) -> None:
    started: list[str] = []

    def start(name: str, port: int) -> Started:
        started.append(name)
        return Started([sys.executable, "-c", HEALTHY, str(port)], dict(os.environ))

    targets = [Target("a"), Target("b"), Target("c", "http://127.0.0.1:9")]
    pids = []
    with Fleet(targets, start, tmp_path) as fleet:
        for target in (*targets, *targets):
            with fleet.turn(target) as server:
                pids.append(server.pid)
        assert fleet.idle_share < 1
    assert started == ["a", "b"]
    assert pids[:3] == pids[3:]
    assert pids[2] is None
    assert not [pid for pid in pids if pid is not None and Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--peers"], "nobody to compare with"),
        (["--peers", "openvino"], "invalid choice: 'openvino'"),
        (["--url", "vllm=http://h:1"], "vllm is started here; give that server another name"),
        (["--url", "ours=http://h:1"], "ours is started here"),
        (["--model-name", "m"], "--model-name only applies with --url"),
        (["--flush"], "unrecognized arguments: --flush"),
        (["--kv-memory", "0.5"], "is not a whole number of at least 1"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["bench-peers", *arguments])
    assert refused.value.code == 2
    assert message in capsys.readouterr().err
