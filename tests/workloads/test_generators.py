"""Made-up workloads: the same for a seed, and sharing what they say they share."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.generators.adversarial import clock_in_head, one_off_flood
from workloads.generators.branching import long_document, parallel_samples, tree_of_thought
from workloads.generators.catalogue import GENERATORS, planned
from workloads.generators.draws import Draws
from workloads.generators.plan import Part, PlannedCall, PlannedSession, prompts, size_of
from workloads.generators.shared_heads import (
    few_shot,
    multi_prefix_round_robin,
    multi_prefix_zipf,
    shared_system,
)
from workloads.generators.text import delta_chat_lines, text_sessions
from workloads.generators.token_ids import token_sessions

FEW = {name: 3 if name in ("long-document", "tree-of-thought") else 24 for name in GENERATORS}

DIGESTS = {
    "shared-system": "83e091617733d5de",
    "multi-prefix-zipf": "5c1839dbb8365eb4",
    "multi-prefix-round-robin": "b258249ebeedc15c",
    "long-document": "843bd4c0df61ab9f",
    "few-shot": "7d28f793392b985b",
    "tree-of-thought": "5211370e7b3797bb",
    "parallel-samples": "5cfc0c6a8d71b909",
    "agents": "2a5a716af4c19363",
    "clock-at-head": "db109cc492d3e3dc",
    "one-off-flood": "29ed8266601e78dc",
    "loop": "88be5b34d715de0d",
}


def written(name: str, seed: int) -> str:
    plan = planned(name, seed, FEW[name], scale=0.05)
    return "".join(delta_chat_lines(text_sessions(plan, seed)))


@pytest.mark.parametrize("name", GENERATORS)
def test_equal_seeds_write_equal_bytes_today_and_later(name: str) -> None:
    digest = hashlib.sha256(written(name, 7).encode()).hexdigest()[:16]
    assert digest == DIGESTS[name]
    assert written(name, 7) == written(name, 7)
    assert written(name, 8) != written(name, 7)


def served_by_comparing(sessions: list[PlannedSession], seed: int) -> tuple[int, int]:
    """Prompt tokens, and those that begin an earlier prompt and reply, found token by token."""
    stored: set[bytes] = set()
    asked = served = 0
    for session in token_sessions(sessions, seed):
        for request in session:
            ids = request.prompt.tobytes()
            length = len(request.prompt)
            known = (n for n in range(length - 1, 0, -1) if ids[: 4 * n] in stored)
            asked += length
            served += next(known, 0)
            whole = (request.prompt + request.reply).tobytes()
            stored.update(whole[: 4 * n] for n in range(1, len(whole) // 4 + 1))
    return asked, served


@pytest.mark.parametrize("name", GENERATORS)
def test_the_share_that_is_told_is_that_of_the_tokens(name: str) -> None:
    sessions = list(planned(name, 3, FEW[name] // 2 or 1, scale=0.02))
    size = size_of(sessions)
    assert (size.prompt_tokens, size.served_tokens) == served_by_comparing(sessions, 3)


def share(sessions: Iterator[PlannedSession]) -> float:
    return size_of(sessions).share


def test_shares_are_those_of_the_lengths() -> None:
    # All but the first request find the head of 2,048 tokens; the question of 50 is new.
    assert share(shared_system(0, 10)) == pytest.approx(9 * 2048 / (10 * 2098))
    assert share(multi_prefix_round_robin(0, 40)) == pytest.approx(32 * 2048 / (40 * 2098))
    # 20 questions of 100 tokens to each document of 12,000.
    assert share(long_document(0, 3)) == pytest.approx(19 * 12_000 / (20 * 12_100))
    # The head of 1,000 is new once, a question of 200 once in four; the last token always is.
    assert share(parallel_samples(0, 8, samples=4)) == pytest.approx((1000 + 6 * 1199) / (8 * 1200))
    # A task's instruction of 60 and 8 examples of 150 are new once, in 2 tasks.
    assert share(few_shot(0, 20, tasks=2)) == pytest.approx(18 * 1260 / (20 * 1320))
    # Half are one-offs; of the other ten, four find no head yet.
    assert share(one_off_flood(0, 20)) == pytest.approx(6 * 2048 / (10 * 2098 + 10 * 3050))


def test_a_thought_goes_on_from_what_was_said() -> None:
    # A problem: 880 tokens four times; then twice four times those, a thought of 60 and 8 more.
    sessions = list(tree_of_thought(0, 1, depth=2))
    size = size_of(sessions)
    assert size.prompt_tokens == 4 * 880 + 8 * 948
    # New: the first prompt; a kept thought is known by its reply, and the 8 are new once a path.
    assert size.served_tokens == 3 * 879 + 2 * 940 + 6 * 947


@pytest.mark.parametrize(("at", "before"), [(0.0, 0), (0.25, 512), (1.0, 2048)])
def test_a_clock_leaves_shared_what_stands_before_it(at: float, before: int) -> None:
    assert share(clock_in_head(0, 10, at=at)) == pytest.approx(9 * before / (10 * 2110))


def test_zipfs_heads_are_drawn_by_their_weights() -> None:
    drawn = list(islice(Draws(1, "zipf").zipf(3, 1.0), 12_000))
    # 1, 1/2 and 1/3 of their sum.
    for number, weight in enumerate((6 / 11, 3 / 11, 2 / 11)):
        assert drawn.count(number) / len(drawn) == pytest.approx(weight, abs=0.02)
    heads = [session.calls[0].parts[0].name for session in multi_prefix_zipf(0, 200)]
    assert 2 <= len(set(heads)) <= 8
    assert max(map(heads.count, set(heads))) > 200 / 8


def test_sessions_arrive_at_the_rate_asked_for_and_agents_think() -> None:
    sessions = list(planned("agents", 0, 400, rate=4.0))
    starts = [session.arrival_s for session in sessions]
    assert starts == sorted(starts)
    assert len(starts) / starts[-1] == pytest.approx(4.0, rel=0.2)
    pauses = [call.think_s for session in sessions for call in session.calls[1:]]
    assert sum(pauses) / len(pauses) == pytest.approx(2.0, rel=0.1)
    assert {session.calls[0].think_s for session in sessions} == {0.0}


def test_a_text_begins_as_another_where_its_parts_do_and_only_there() -> None:
    first, second = islice(text_sessions(shared_system(5, 2), 5), 2)
    system, question = first.calls[0].messages
    assert (system.role, question.role) == ("system", "user")
    assert second.calls[0].messages[0] == system
    assert second.calls[0].messages[1].content.split()[:4] != question.content.split()[:4]
    # 2,048 tokens are 1,891 words and 157 full stops.
    assert len(system.content.split()) == 1891
    assert system.content.count(".") == 157


def test_parts_of_one_role_are_one_message() -> None:
    (session,) = islice(text_sessions(clock_in_head(0, 1, at=0.5), 0), 1)
    system, question = session.calls[0].messages
    assert "\n\nCurrent time: 2026-01-01 00:00:00 UTC.\n\n" in system.content
    assert question.role == "user"


names = st.sampled_from("abc")


@settings(deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(st.lists(names, min_size=1, max_size=3), st.booleans()),
            min_size=1,
            max_size=3,
        ),
        max_size=4,
    )
)
def test_any_plan_shares_what_its_tokens_share(
    shape: list[list[tuple[list[str], bool]]],
) -> None:
    sessions = [
        PlannedSession(
            f"{at}",
            tuple(
                PlannedCall(
                    tuple(Part("user", name, ord(name) - ord("a") + 1) for name in parts),
                    Part("assistant", f"reply {at} {turn}", 2),
                    reset,
                )
                for turn, (parts, reset) in enumerate(calls)
            ),
        )
        for at, calls in enumerate(shape)
    ]
    size = size_of(sessions)
    assert (size.prompt_tokens, size.served_tokens) == served_by_comparing(sessions, 0)
    lengths = [len(request.prompt) for each in token_sessions(sessions, 0) for request in each]
    assert lengths == [sum(p.tokens for p in prompt) for s in sessions for prompt in prompts(s)]
