from __future__ import annotations

from pathlib import Path

import pytest

from workloads.cpu.cases import OURS, PEER_CONTENDERS, all_cases
from workloads.cpu.plot import draw
from workloads.cpu.report import (
    Measured,
    case_goal,
    comparison_table,
    comparisons,
    figures,
    title_of,
)

CASES = all_cases()
OUR, OUR_OFF, OUR_Q4, OUR_HTTP = OURS
OPENVINO, OPENVINO_OFF = PEER_CONTENDERS["openvino"]
(VLLM,), (LLAMA,) = PEER_CONTENDERS["vllm"], PEER_CONTENDERS["llama.cpp"]


def goal(stem: str, peer: object) -> float | None:
    (case,) = (each for each in CASES if each.stem == stem)
    (contender,) = (each for each in (OPENVINO, VLLM, LLAMA) if each is peer)
    return case_goal(case, contender)


def measured() -> Measured:
    """Ours decodes 100, 120, 110 tokens/s in three rounds; the peers as below."""
    return Measured(
        values={
            "decode_1_short": {
                OUR: [100.0, 120.0, 110.0],
                OPENVINO: [50.0, 40.0, 55.0],  # ratios 2, 3, 2
                OUR_Q4: [300.0, 300.0, 300.0],
                LLAMA: [150.0, 100.0, 120.0],  # 2, 3, 2.5
            },
            "cold_ttft_2050": {OUR: [80.0], OPENVINO_OFF: [100.0]},
            "decode_8_2k": {OUR_HTTP: [90.0], VLLM: [30.0]},
            "nothing_shared": {OUR: [50.0, 50.0], OUR_OFF: [51.0, 52.0]},
        },
        walls={"nothing_shared": {OUR: [2.0, 2.1, 2.0], OUR_OFF: [2.0, 2.0, 2.0]}},
        memory_mib={OUR: 800.0, OUR_HTTP: 900.0, VLLM: 1800.0, OUR_OFF: 700.0},
        start_up_s={OUR: 3.0, OUR_HTTP: 4.0, VLLM: 40.0},
    )


def test_a_figure_is_the_median_of_its_rounds() -> None:
    found = figures(CASES, measured())
    assert found["decode_1_short_tps"].value == 110.0
    assert found["decode_1_short_tps"].unit == "tokens/s"
    assert found["decode_1_short_tps_openvino"].value == 50.0
    assert found["decode_1_short_q4_tps_llama_cpp"].value == 120.0
    assert found["cold_ttft_2050_ms_openvino"].better == "lower"
    assert found["peak_memory_mib"].value == 800.0
    assert found["peak_memory_mib_http_vllm"].value == 1800.0
    assert found["start_up_s_http"].value == 4.0
    assert found["nothing_shared_tps"].value == 50.0


def test_a_ratio_is_the_median_of_the_rounds_ratios_and_has_its_goal() -> None:
    found = figures(CASES, measured())
    decode = found["decode_1_short_ratio_openvino"]
    assert (decode.value, decode.goal, decode.met) == (2.0, 2.0, True)
    cold = found["cold_ttft_2050_ratio_openvino"]
    assert (cold.value, cold.goal, cold.better) == (0.8, 0.85, "lower")
    four_bits = found["decode_1_short_q4_ratio_llama_cpp"]
    assert (four_bits.value, four_bits.goal) == (2.5, 2.5)
    over_http = found["decode_8_2k_ratio_http_vllm"]
    assert (over_http.value, over_http.goal, over_http.met) == (3.0, 2.5, True)
    memory = found["peak_memory_ratio_http_vllm"]
    assert (memory.value, memory.goal, memory.met) == (0.5, 1.0, True)
    cache = found["cache_on_over_off_nothing_shared"]
    assert (cache.value, cache.goal, cache.met) == (1.0, 1.01, True)


def test_each_peer_is_compared_with_ours_by_the_same_door_and_bits() -> None:
    pairs = {(each.measure, each.peer): each.ours for each in comparisons(CASES, measured())}
    assert pairs == {
        ("decode, 1 stream, short", "openvino"): 110.0,
        ("decode, 1 stream, short 4-bit", "llama.cpp"): 300.0,
        ("cold TTFT, 2,050 tokens", "openvino"): 80.0,
        ("decode, 8 streams, 2k over HTTP", "vllm"): 90.0,
        ("peak memory over HTTP", "vllm"): 900.0,
        ("start up over HTTP", "vllm"): 4.0,
    }


def test_measures_have_names_for_people() -> None:
    assert title_of("warm_ttft_2000_of_2050") == "warm TTFT, 2,000 of 2,050 tokens"
    assert title_of("decode_1_short_busy_core") == "decode, 1 stream, short, busy core"
    assert title_of("peak_memory") == "peak memory"


def test_without_ours_or_without_peers_there_is_nothing_to_compare() -> None:
    alone = Measured(values={"decode_1_short": {OPENVINO: [1.0], VLLM: [1.0]}})
    assert comparisons(CASES, alone) == []
    assert list(figures(CASES, alone)) == [
        "decode_1_short_tps_openvino",
        "decode_1_short_tps_http_vllm",
    ]


@pytest.mark.parametrize(
    ("stem", "peer", "expected"),
    [
        ("cold_ttft_7500", OPENVINO, 0.85),
        ("warm_ttft_7000_of_7050", OPENVINO, 0.55),
        ("decode_1_short", OPENVINO, 2.0),
        ("decode_1_2k", OPENVINO, 1.6),
        ("decode_8_short", OPENVINO, 1.4),
        ("decode_8_2k", OPENVINO, 2.5),
        ("decode_32_2k", OPENVINO, None),
        ("agents", OPENVINO, None),
        ("agents", VLLM, 2.5),
        ("warm_ttft_2000_of_2050", VLLM, 0.4),
        ("decode_1_2k", LLAMA, 2.5),
        ("cold_ttft_512", LLAMA, None),
        ("decode_1_short_busy_core", OPENVINO, 1.0),
        ("decode_1_short_busy_core", VLLM, 1.0),
        ("decode_1_short_busy_core", LLAMA, 1.0),
    ],
)
def test_goals(stem: str, peer: object, expected: float | None) -> None:
    assert goal(stem, peer) == expected


def test_the_table_has_ours_beside_each_peer_s_with_the_goal() -> None:
    lines = comparison_table(comparisons(CASES, measured())).splitlines()
    assert (
        " ".join(lines[2].split()) == "cold TTFT, 2,050 tokens (ms) 80 openvino 100 0.8 <= 0.85 met"
    )


def test_bars_say_how_many_times_better_ours_is(tmp_path: Path) -> None:
    found = comparisons(CASES, measured())
    (cold,) = (each for each in found if each.measure == "cold TTFT, 2,050 tokens")
    assert cold.times_better == pytest.approx(1.25)
    assert cold.goal_times_better == pytest.approx(1 / 0.85)
    (decode,) = (each for each in found if each.measure == "decode, 8 streams, 2k over HTTP")
    assert (decode.times_better, decode.goal_times_better) == (3.0, 2.5)
    path = tmp_path / "deep" / "plot.png"
    draw(found, "title", path)
    assert path.read_bytes().startswith(b"\x89PNG")
