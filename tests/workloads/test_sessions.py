from __future__ import annotations

import pytest

from tests.workloads.making import session, user
from workloads.agents.generated import agent_sessions
from workloads.traces.arrival import Arrival, parse_arrival, with_times
from workloads.traces.session import (
    Call,
    Message,
    after_reply,
    prompt_digest,
    prompt_of,
    raw_text,
    with_replies,
)


def test_the_history_grows_by_the_messages_and_the_forced_reply() -> None:
    call = Call((user("one"),), reply="recorded")
    history = after_reply(prompt_of((), call), call, own_reply="generated")
    assert prompt_of(history, Call((user("two"),))) == (
        user("one"),
        Message("assistant", "recorded"),
        user("two"),
    )


def test_without_a_recorded_reply_the_engines_own_is_kept() -> None:
    call = Call((user("one"),))
    assert after_reply((user("one"),), call, "generated")[-1] == Message("assistant", "generated")


def test_a_reset_makes_the_messages_the_whole_prompt() -> None:
    assert prompt_of((user("old"),), Call((user("new"),), reset=True)) == (user("new"),)


def test_a_raw_prompt_is_the_contents_with_nothing_between() -> None:
    assert raw_text((user("Question: "), Message("assistant", "yes"))) == "Question: yes"


def test_recorded_replies_are_forced_unless_the_trace_has_its_own() -> None:
    kept, own = Call((user("1"),), reply="trace"), Call((user("2"),))
    sessions = [session("a", kept, own, own)]
    (forced,) = with_replies(sessions, {("a", 0): "x", ("a", 1): "y"})
    assert [call.reply for call in forced.calls] == ["trace", "y", None]


def test_an_empty_reply_is_a_reply() -> None:
    (forced,) = with_replies([session("a", Call((user("1"),)))], {("a", 0): ""})
    assert forced.calls[0].reply == ""


def test_prompts_have_equal_digests_only_if_they_are_equal() -> None:
    prompt = (user("one"), user("two"))
    swapped, joined = (user("two"), user("one")), (user("onetwo"),)
    others = [swapped, joined, (Message("system", "one"), user("two"))]
    digests = {prompt_digest(p, raw=False) for p in (prompt, *others)}
    assert len(digests | {prompt_digest(prompt, raw=True)}) == 5
    assert prompt_digest(prompt, raw=False) == prompt_digest((user("one"), user("two")), raw=False)


def test_agents_share_their_head_and_differ_after_it() -> None:
    sessions = agent_sessions(agents=15, turns=4, seed=3)
    assert len({s.calls[0].messages[0] for s in sessions}) == 1
    assert len({s.calls[0].messages[1] for s in sessions}) == 15
    assert all(len(s.calls) == 4 for s in sessions)
    results = [call.messages[0] for s in sessions for call in s.calls[1:]]
    assert all(m.role == "user" and m.content.startswith("Tool result: ") for m in results)
    assert len(set(results)) == len(results)


def test_one_seed_gives_one_workload() -> None:
    assert agent_sessions(4, 5, seed=1) == agent_sessions(4, 5, seed=1)
    assert agent_sessions(4, 5, seed=1) != agent_sessions(4, 5, seed=2)
    once, again = (with_times(agent_sessions(3, 3, 0), Arrival(), 1.0, seed=9) for _ in range(2))
    assert once == again


def test_arrivals_are_together_staggered_or_poisson() -> None:
    sessions = agent_sessions(400, 1, 0)
    starts = {
        how: [s.arrival_s for s in with_times(sessions, parse_arrival(how), 0.0, seed=0)]
        for how in ("together", "stagger:2.5", "poisson:4")
    }
    assert set(starts["together"]) == {0.0}
    assert starts["stagger:2.5"][:3] == [0.0, 2.5, 5.0]
    assert starts["poisson:4"] == sorted(starts["poisson:4"])
    assert 400 / starts["poisson:4"][-1] == pytest.approx(4, rel=0.2)


@pytest.mark.parametrize(
    "text", ["", "later", "stagger", "stagger:x", "poisson:0", "poisson:inf", "recorded:"]
)
def test_an_unknown_arrival_is_refused_with_the_forms_there_are(text: str) -> None:
    forms = r"together, stagger:SECONDS, poisson:RATE .*, recorded or recorded:FACTOR"
    with pytest.raises(ValueError, match=forms):
        parse_arrival(text)


def test_thinking_times_have_the_mean_asked_for_and_none_before_the_first_call() -> None:
    timed = with_times(agent_sessions(50, 11, 0), Arrival(), 2.0, seed=0)
    assert {s.calls[0].think_s for s in timed} == {0.0}
    times = [call.think_s for s in timed for call in s.calls[1:]]
    assert sum(times) / len(times) == pytest.approx(2.0, rel=0.15)
