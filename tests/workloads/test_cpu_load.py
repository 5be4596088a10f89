from __future__ import annotations

import pytest

from workloads.cpu.load import Load, LoadFailed, Outcome, checked_outcome


def test_the_decode_rate_counts_what_comes_after_the_first_tokens() -> None:
    # Two streams of 5 tokens; the first comes after 1 s, the last of all after 3 s: 8 in 2 s.
    outcome = Outcome((((1.0, 2.5, 5),), ((1.5, 3.0, 5),)), 3.2)
    assert outcome.decode_tps() == 4.0


def test_the_load_rate_counts_all_tokens_of_the_whole_time() -> None:
    assert Outcome((((1.0, 2.0, 6), (3.0, 4.0, 2)),), 4.0).load_tps() == 2.0


def test_the_time_to_the_first_token_is_in_milliseconds() -> None:
    assert Outcome((((0.25, 0.25, 1),),), 0.3).ttft_ms() == 250.0


def test_tokens_that_all_come_at_once_have_no_rate() -> None:
    with pytest.raises(LoadFailed, match="at once"):
        Outcome((((1.0, 1.0, 4),),), 1.0).decode_tps()


def test_a_load_needs_memory_for_the_longest_call_of_each_session() -> None:
    load = Load([[[1] * 10, [1] * 30], [[1] * 5]], 8)
    assert load.kv_tokens == 38 + 13


@pytest.mark.parametrize(
    ("sessions", "reason"),
    [
        ([[[0.1, 0.2, 3]]], "asked for 4 tokens"),
        ([[[0.1, 0.2, 4], [0.3, 0.4, 4]]], "does not have the calls"),
        ([], "does not have the calls"),
    ],
)
def test_an_answer_to_something_else_is_refused(
    sessions: list[list[list[float]]], reason: str
) -> None:
    with pytest.raises(LoadFailed, match=reason):
        checked_outcome(Load([[[1, 2]]], 4), sessions, 1.0)
