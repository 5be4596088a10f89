from __future__ import annotations

import hashlib
import json
from array import array
from collections import Counter
from pathlib import Path

import pytest

from workloads.simulation.arrivals import Arrivals
from workloads.simulation.load import (
    Load,
    LoadRequest,
    blocks_for_share,
    distinct_tokens,
    made_up_tokens,
)
from workloads.simulation.shared_heads import Sizes, fewshot_load, zipf_load
from workloads.simulation.trace import role_token, text_tokens, trace_load

SIZES = Sizes(head=4, own=2, reply=3)


def split_mix(seed: int, name: str, place: int) -> int:
    """The upper 31 bits of SplitMix64's number ``place``, with plain integers."""
    start = int.from_bytes(
        hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest(), "little"
    )
    x = (start + (place + 1) * 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x >> 33


def request(prompt: list[int], reply: list[int], delay_s: float = 0.0) -> LoadRequest:
    return LoadRequest(array("i", prompt), array("i", reply), delay_s)


def single(*requests: LoadRequest) -> Load:
    return Load(tuple((each,) for each in requests))


def test_made_up_tokens_depend_on_the_seed_and_the_name_only() -> None:
    first = made_up_tokens(7, "reply 1", 64)
    assert first == made_up_tokens(7, "reply 1", 64)
    assert first[:10] == made_up_tokens(7, "reply 1", 10)
    assert first.tolist()[:3] == [split_mix(7, "reply 1", place) for place in range(3)]
    starts = [made_up_tokens(7, f"reply {n}", 1)[0] for n in range(2000)]
    starts += [made_up_tokens(8, f"reply {n}", 1)[0] for n in range(2000)]
    assert len(set(starts)) == 4000
    assert 0 <= min(starts) < 2**22
    assert 2**31 - 2**22 < max(starts) < 2**31


def test_heads_are_drawn_by_zipfs_law() -> None:
    load = zipf_load(11_000, 3, 1.0, SIZES, seed=1)
    drawn = Counter(each.prompt[:4].tobytes() for each in load.requests())
    # Weights 1, 1/2 and 1/3: 6, 3 and 2 elevenths. Four standard deviations are below 220.
    heads = [made_up_tokens(1, f"head {rank}", 4).tobytes() for rank in range(3)]
    assert sorted(heads) == sorted(drawn)
    for head, expected in zip(heads, (6000, 3000, 2000), strict=True):
        assert abs(drawn[head] - expected) < 220


def test_an_exponent_of_zero_draws_all_heads_alike() -> None:
    load = zipf_load(9_000, 3, 0.0, SIZES, seed=1)
    drawn = Counter(each.prompt[:4].tobytes() for each in load.requests())
    assert all(abs(count - 3000) < 180 for count in drawn.values())


def test_requests_arrive_at_random_with_the_rate_that_is_asked_for() -> None:
    load = zipf_load(4_000, 3, 1.0, SIZES, seed=1)
    moments = [each.delay_s for each in load.requests()]
    gaps = [after - before for before, after in zip([0.0, *moments], moments, strict=False)]
    assert min(gaps) > 0
    # Exponential gaps: mean 1, and a share of 1/e longer than that.
    assert abs(sum(gaps) / 4_000 - 1) < 4 / 4_000**0.5
    assert abs(sum(gap > 1 for gap in gaps) / 4_000 - 0.368) < 0.03
    faster = [each.delay_s for each in load.at_rate(4.0).requests()]
    assert faster == pytest.approx([moment / 4 for moment in moments])
    assert {each.delay_s for each in load.at_once().requests()} == {0.0}


def test_a_load_has_the_sizes_that_were_asked_for_and_depends_on_its_seed() -> None:
    load = zipf_load(20, 3, 1.0, SIZES, seed=1)
    assert load.num_requests == 20
    assert {(len(r.prompt), len(r.reply)) for r in load.requests()} == {(6, 3)}
    assert load == zipf_load(20, 3, 1.0, SIZES, seed=1)
    assert load != zipf_load(20, 3, 1.0, SIZES, seed=2)


def test_a_batch_asks_every_head_equally_often_in_a_shuffled_order() -> None:
    load = fewshot_load(5, 8, SIZES, seed=1)
    heads = [each.prompt[:4].tobytes() for each in load.requests()]
    assert set(Counter(heads).values()) == {8}
    assert len(set(heads)) == 5
    assert heads != sorted(heads, key=heads.index)
    assert {each.delay_s for each in load.requests()} == {0.0}
    assert len({each.prompt.tobytes() for each in load.requests()}) == 40


def test_distinct_tokens_count_each_prefix_once() -> None:
    load = single(
        request([1, 2, 3, 4], [5, 6]),  # 6
        request([1, 2, 3, 9], [5]),  # 2 more: 9, 5
        request([1, 2, 3, 4], [5, 6, 7]),  # 1 more
        request([1, 2, 3, 4], [5]),  # none
        request([256 + 1, 2], [3]),  # 3: another first token, though its first byte is the same
    )
    assert distinct_tokens(load) == 12


def test_the_pool_is_the_share_of_the_distinct_tokens_in_whole_blocks() -> None:
    load = zipf_load(10, 1, 1.0, SIZES, seed=1)
    # One head of 4, and 2 + 3 of its own for each of the ten: 54 tokens; half are 27, 6 blocks.
    assert distinct_tokens(load) == 54
    assert blocks_for_share(load, 0.5, 4) == 6


def test_a_pool_without_room_for_the_longest_request_says_which_share_has() -> None:
    load = zipf_load(10, 1, 1.0, SIZES, seed=1)
    # 4 + 2 + 3 tokens, the last without K and V: 8 tokens, 2 blocks of 4; 8 of 54 are 0.148.
    with pytest.raises(ValueError, match=r"8 tokens\) needs 2: use at least 0\.15"):
        blocks_for_share(load, 0.1, 4)
    assert blocks_for_share(load, 0.15, 4) == 2


def test_sessions_beyond_the_concurrency_start_as_others_end() -> None:
    one, two = request([1], [1], 0.5), request([2], [2], 0.0)
    later = request([3], [3], 9.0)
    arrivals = Arrivals(Load(((one, later), (two,), (later,)), concurrency=2))
    first, second = arrivals.due(0.5)
    assert [(a.session, a.turn, a.moment) for a in (first, second)] == [(1, 0, 0.0), (0, 0, 0.5)]
    assert arrivals.request(second) is one
    assert arrivals.next_moment() is None
    arrivals.ended(second, 2.0)  # its next turn comes 9 s later
    assert arrivals.next_moment() == 11.0
    arrivals.ended(first, 3.0)  # its session is over: the third starts, not before its time
    assert arrivals.next_moment() == 9.0
    assert [(a.session, a.turn) for a in arrivals.due(11.0)] == [(2, 0), (0, 1)]


def test_text_becomes_a_token_for_every_four_bytes() -> None:
    assert text_tokens("abcdefgh") == array("i", [0x64636261, 0x68676665])
    assert text_tokens("abcde") == array("i", [0x64636261, 0x65])
    assert len(text_tokens("")) == 0
    assert min(text_tokens("aaaé" * 3 + "漢字" * 5)) >= 0
    assert role_token("user") < 0
    assert role_token("user") != role_token("assistant")


def test_a_traces_turns_extend_what_was_said_before(tmp_path: Path) -> None:
    def row(turn: int, content: str, output: str | None, **more: object) -> str:
        messages = [{"role": "user", "content": content}]
        return json.dumps(
            {"session_id": "s", "turn": turn, "messages": messages, "output": output, **more}
        )

    path = tmp_path / "t.jsonl"
    path.write_text(
        "\n".join(
            [
                row(0, "12345678", "abcdefghi"),
                row(1, "next", None),
                row(2, "anew", "x", reset=True),
                row(3, "rawtext!", "y", reset=True, raw=True),
                row(4, "left out", "z"),
            ]
        )
    )
    load, left_out = trace_load(
        [path],
        sessions=1,
        max_turns=4,
        concurrency=3,
        think_time_s=2.0,
        reply_tokens=7,
        seed=0,
    )
    assert left_out == 1
    assert load.concurrency == 3
    (turns,) = load.sessions
    user, assistant = role_token("user"), role_token("assistant")
    assert turns[0].prompt.tolist() == [user, *text_tokens("12345678"), assistant]
    assert turns[0].reply == text_tokens("abcdefghi")
    history = turns[0].prompt + turns[0].reply
    assert turns[1].prompt.tolist() == [*history, user, *text_tokens("next"), assistant]
    assert len(turns[1].reply) == 7
    assert turns[2].prompt.tolist() == [user, *text_tokens("anew"), assistant]
    assert turns[3].prompt == text_tokens("rawtext!")
    assert turns[0].delay_s == 0.0
    assert all(turn.delay_s > 0 for turn in turns[1:])
