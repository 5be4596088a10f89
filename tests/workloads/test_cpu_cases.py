from __future__ import annotations

import pytest

from workloads.cpu.cases import OURS, PEER_CONTENDERS, Case, Contender, all_cases, chosen_cases
from workloads.cpu.load import Load
from workloads.cpu.prompts import Prompts

CONTENDERS = {
    each.name: each for each in (*OURS, *(c for some in PEER_CONTENDERS.values() for c in some))
}


def words(text: str) -> list[int]:
    """A token for each word: its first letter's place."""
    return [ord(word[0]) % 100 for word in text.split()]


def make_prompts(seed: int = 0) -> Prompts:
    return Prompts(words, 5000, seed)


def case(stem: str) -> Case:
    (found,) = (each for each in all_cases() if each.stem == stem)
    return found


def loads(found: Case, prompts: Prompts) -> tuple[Load | None, Load]:
    return found.make(prompts)


def test_the_figures_have_the_names_that_others_look_for() -> None:
    keys = {each.key(who) for each in all_cases() for who in CONTENDERS.values() if each.has(who)}
    wanted = {
        "cold_ttft_2050_ms",
        "warm_ttft_2000_of_2050_ms",
        "decode_1_short_tps",
        "decode_1_2k_tps",
        "decode_8_short_tps",
        "decode_8_2k_tps",
        "decode_1_short_q4_tps",
        "decode_1_short_busy_core_tps",
    }
    assert wanted <= keys
    assert {
        "cold_ttft_2050_ms_http",
        "cold_ttft_2050_ms_openvino",
        "decode_8_2k_tps_http_vllm",
        "decode_1_short_q4_tps_llama_cpp",
        "decode_1_short_busy_core_tps_http_vllm",
    } <= keys


def test_openvino_reads_cold_prompts_without_its_cache_and_all_else_with_it() -> None:
    cold, warm = case("cold_ttft_2050"), case("warm_ttft_2000_of_2050")
    assert [name for name in CONTENDERS if cold.has(CONTENDERS[name])] == [
        "ours",
        "ours-q4",
        "ours-http",
        "openvino-cache-off",
        "vllm",
        "llama.cpp",
    ]
    assert [name for name in CONTENDERS if warm.has(CONTENDERS[name])] == [
        "ours",
        "ours-q4",
        "ours-http",
        "openvino",
        "vllm",
        "llama.cpp",
    ]


def test_llama_cpp_has_one_stream_and_short_prompts() -> None:
    takes = [each.stem for each in all_cases() if each.has(CONTENDERS["llama.cpp"])]
    assert takes == [
        "cold_ttft_512",
        "cold_ttft_2050",
        "warm_ttft_2000_of_2050",
        "decode_1_short",
        "decode_1_2k",
        "decode_1_short_busy_core",
    ]


def test_only_ours_in_process_shares_nothing_with_the_cache_on_and_off() -> None:
    takes = [each for each in CONTENDERS.values() if case("nothing_shared").has(each)]
    assert [each.name for each in takes] == ["ours", "ours-cache-off"]


def test_every_case_s_loads_need_the_memory_and_streams_that_it_says() -> None:
    prompts = Prompts(words, 49_152, 0)
    for each in all_cases():
        _, measured = loads(each, prompts)
        assert len(measured.sessions) == each.streams
        if each.kind == "agents":  # as many tokens as the tokenizer makes
            continue
        assert measured.kv_tokens == each.kv_tokens, each.stem


def test_a_warm_prompt_begins_as_the_one_before_and_no_further() -> None:
    before, measured = loads(case("warm_ttft_2000_of_2050"), make_prompts())
    assert before is not None
    ((first,),), ((second,),) = before.sessions, measured.sessions
    assert len(first) == len(second) == 2050
    assert first[:2000] == second[:2000]
    assert first[2000] != second[2000]


def test_decoding_streams_share_nothing_and_are_the_same_in_every_round() -> None:
    found, prompts = case("decode_8_short"), make_prompts()
    before, measured = loads(found, prompts)
    assert before is not None
    assert before.sessions == measured.sessions == loads(found, prompts)[1].sessions
    assert (before.max_tokens, measured.max_tokens) == (1, 64)
    assert len({calls[0][0] for calls in measured.sessions}) == 8


def test_agents_share_a_head_and_their_histories_grow() -> None:
    load = make_prompts().agents(2, 3, 10)
    (first, second), other = load.sessions, make_prompts(1).agents(2, 3, 10).sessions[0]
    for calls in (first, second):
        assert calls[1][: len(calls[0])] == calls[0]
        assert calls[2][: len(calls[1])] == calls[1]
        assert len(calls[1]) > len(calls[0]) + 10
    shared = next(i for i, (a, b) in enumerate(zip(first[0], second[0], strict=False)) if a != b)
    assert shared > 500
    assert first[0][0] != other[0][0]


def test_equal_seeds_give_equal_prompts_and_two_prompts_differ_at_once() -> None:
    assert make_prompts(3).fresh(100) == make_prompts(3).fresh(100)
    prompts = make_prompts()
    assert len({prompts.fresh(5)[0] for _ in range(200)}) == 200
    assert len(prompts.fresh(70_000)) == 70_000


def test_cases_are_chosen_by_a_part_of_their_names() -> None:
    assert [each.stem for each in chosen_cases(["cold", "decode_8_2k"])] == [
        "cold_ttft_512",
        "cold_ttft_2050",
        "cold_ttft_7500",
        "decode_8_2k",
    ]
    assert len(chosen_cases([])) == 20
    with pytest.raises(ValueError, match="'lukewarm' is in no case's name; the cases are cold_"):
        chosen_cases(["cold", "lukewarm"])


def test_a_contender_s_suffix_says_door_and_peer() -> None:
    assert {name: each.suffix for name, each in CONTENDERS.items()} == {
        "ours": "",
        "ours-cache-off": "",
        "ours-q4": "",
        "ours-http": "_http",
        "openvino": "_openvino",
        "openvino-cache-off": "_openvino",
        "vllm": "_http_vllm",
        "llama.cpp": "_llama_cpp",
    }
    assert Contender("x", "ours").suffix == ""
