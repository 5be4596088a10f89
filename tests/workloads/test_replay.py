from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.workloads.making import session, user
from tests.workloads.scripted import COMPLETION_TOKENS, Script, serving
from workloads.agents.client import new_client
from workloads.agents.replay import Progress, Replay, own_replies, replay
from workloads.traces.session import Call, Session, with_replies


def run(
    script: Script,
    sessions: Sequence[Session],
    concurrency: int = 4,
    before: Replay | None = None,
    refusals: bool = False,
) -> Replay:
    async def main(url: str) -> Replay:
        async with new_client(url) as client:
            return await replay(
                client,
                sessions,
                max_tokens=8,
                concurrency=concurrency,
                progress=Progress(),
                before=before,
                refusals=refusals,
            )

    with serving(script) as url:
        return asyncio.run(main(url))


def turns(*texts: str, reset: bool = False) -> tuple[Call, ...]:
    return tuple(Call((user(text),), reset=reset) for text in texts)


def test_records_hold_the_usage_that_the_server_reported() -> None:
    script = Script()
    done = run(script, [session("a", *turns("one two three", "four"))])
    first, second = (record.answer for record in done.records)
    assert (first.prompt_tokens, first.cached_tokens) == (3, 0)
    assert (second.prompt_tokens, second.cached_tokens) == (6, 3)
    assert (first.text, first.finish_reason) == ("reply 1", "length")
    assert first.completion_tokens == COMPLETION_TOKENS
    assert 0 < first.ttft_s <= first.last_s <= first.total_s <= done.wall_s
    assert done.failure is None


def test_calls_are_greedy_streamed_and_ask_for_usage() -> None:
    script = Script()
    run(script, [session("a", *turns("hello"))])
    assert {k: v for k, v in script.bodies[0].items() if k != "messages"} == {
        "max_tokens": 8,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_the_engines_own_reply_goes_into_the_history() -> None:
    script = Script()
    run(script, [session("a", *turns("one", "two"))])
    assert script.prompts[1] == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "reply 1"},
        {"role": "user", "content": "two"},
    ]


def test_a_second_run_with_the_replies_forced_sends_the_same_prompts() -> None:
    sessions = [session("a", *turns("one", "two", "three")), session("b", *turns("x", "y"))]
    first, second = Script(), Script(prefix_cache=False, own_words="something else")
    recorded = run(first, sessions)
    again = run(second, with_replies(sessions, own_replies(recorded.records)))
    assert sorted(map(str, second.prompts)) == sorted(map(str, first.prompts))
    digests = [{(r.session, r.turn): r.prompt_digest for r in d.records} for d in (recorded, again)]
    assert digests[0] == digests[1]
    assert "something else" in again.records[0].answer.text


def test_a_raw_call_is_a_completion_of_the_joined_history() -> None:
    script = Script()
    raw = Call((user("Question: why? Answer:"),), reply=" because", raw=True)
    done = run(script, [session("a", raw, Call((user(" And?"),), raw=True))])
    assert script.paths == ["/v1/completions"] * 2
    assert [body["prompt"] for body in script.bodies] == [
        "Question: why? Answer:",
        "Question: why? Answer: because And?",
    ]
    assert done.records[0].answer.text == "reply 1"


def test_a_reset_forgets_the_history() -> None:
    script = Script()
    run(script, [session("a", *turns("one"), *turns("new start", reset=True))])
    assert script.prompts[1] == [{"role": "user", "content": "new start"}]


def test_a_prompt_beyond_the_context_ends_its_session_alone() -> None:
    long = session("long", *turns("one", "two three four five six", "never sent"))
    ended: list[int] = []

    async def main(url: str) -> Replay:
        async with new_client(url) as client:
            return await replay(
                client,
                [long, session("short", *turns("a", "b"))],
                max_tokens=8,
                concurrency=1,
                progress=Progress(session_done=ended.append),
            )

    with serving(Script(context_length=6)) as url:
        done = asyncio.run(main(url))
    assert done.too_long == ("long",)
    assert done.failure is None
    assert [(r.session, r.turn) for r in done.records] == [("long", 1), ("short", 1), ("short", 2)]
    assert ended == [2, 0]


def test_a_server_that_dies_ends_the_replay_and_keeps_what_was_answered() -> None:
    done = run(Script(dies_at_call=3), [session("a", *turns("one", "two", "three", "four"))])
    assert [record.turn for record in done.records] == [1, 2]
    assert done.failure is not None
    assert "session a, turn 3" in done.failure


def test_an_error_in_the_stream_is_a_failure_with_its_words() -> None:
    script = Script(stream_error={"message": "out of blocks"})
    done = run(script, [session("a", *turns("one"))])
    assert done.records == ()
    assert "out of blocks" in str(done.failure)


def test_no_more_sessions_are_in_flight_than_allowed() -> None:
    script = Script()
    run(script, [session(name, *turns(f"{name} 1", f"{name} 2")) for name in "abc"], concurrency=1)
    assert [prompt[-1]["content"] for prompt in script.prompts] == [
        f"{name} {turn}" for name in "abc" for turn in (1, 2)
    ]


@pytest.mark.parametrize("answered", range(6))
def test_a_replay_that_goes_on_sends_exactly_the_prompts_that_were_missing(answered: int) -> None:
    replies = {("a", n): f"so {n}" for n in range(3)} | {("b", n): f"yes {n}" for n in range(2)}
    sessions = with_replies(
        [session("a", *turns("one", "two", "three")), session("b", *turns("x", "y"))], replies
    )
    whole, first, rest = Script(), Script(dies_at_call=answered + 1), Script()
    run(whole, sessions, concurrency=1)
    before = run(first, sessions, concurrency=1)
    after = run(rest, sessions, concurrency=1, before=before)
    assert first.prompts + rest.prompts == whole.prompts
    assert [(r.session, r.turn) for r in after.records] == [
        ("a", 1),
        ("a", 2),
        ("a", 3),
        ("b", 1),
        ("b", 2),
    ]
    parts = [0] * answered + [1 if answered else 0] * (5 - answered)
    assert [record.part for record in after.records] == parts
    sent = [record.sent_s for record in after.records]
    assert sent == sorted(sent)
    assert after.wall_s >= before.wall_s


def test_reasoning_is_a_first_token_and_no_part_of_the_history() -> None:
    script = Script(reasons=True)
    done = run(script, [session("a", *turns("one", "two"))])
    assert [record.answer.pieces for record in done.records] == [3, 3]
    assert [record.answer.text for record in done.records] == ["reply 1", "reply 2"]
    assert script.prompts[1][1] == {"role": "assistant", "content": "reply 1"}


def test_a_server_that_is_too_busy_ends_the_replay_unless_that_is_allowed_for() -> None:
    sessions = [session("a", *turns("one", "two", "three")), session("b", *turns("x"))]
    failed = run(Script(busy_from_call=2), sessions, concurrency=1)
    assert "session a, turn 2" in str(failed.failure)
    assert "HTTP 429: come back later" in str(failed.failure)
    allowed = run(Script(busy_from_call=2), sessions, concurrency=1, refusals=True)
    assert allowed.failure is None
    # Two turns of the one session, and the other's only one.
    assert allowed.refused_turns == 3
    assert allowed.too_long == ()
