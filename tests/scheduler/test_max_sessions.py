"""First requests of sessions are held back while those under way fill the memory, not for ever."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_engine.cache import Namespace, PrefixCache
from scheduler import Limits, QueueFull, Request, Scheduler, State
from scheduler.sessions import Sessions
from tests.cache.trees import ids
from tests.checking_model import Bench, answer_alone_of, answer_of

SIZE = 4


def bench_of(blocks: int, most: Any, **limits: int) -> Bench:
    given_limits = {"max_step_tokens": 64, "max_running": 8, **limits}
    return Bench(blocks, SIZE, Limits(**given_limits, max_sessions=most))


def held(bench: Bench) -> list[Request]:
    return [request for request in bench.requests if request.request_id in bench.scheduler._gate]


def test_a_session_that_does_not_fit_beside_those_under_way_is_held_until_they_are_over() -> None:
    bench = bench_of(14, "auto")  # 56 tokens, 44.8 of them for contexts
    first = bench.submit(ids(24, 1), 4, session="a")
    second = bench.submit(ids(24, 2), 4, session="b")
    bench.step()
    assert first.state is State.RUNNING
    assert held(bench) == [second]
    assert bench.scheduler.num_held == bench.scheduler.num_waiting == 1
    bench.run()  # once the first has its answer nothing else is to do
    assert second.admitted_s is not None
    assert answer_of(second) == answer_alone_of(second)
    bench.assert_idle()


def test_a_session_that_fits_is_not_held() -> None:
    bench = bench_of(15, "auto")  # 60 tokens, 48 of them for contexts: two prompts of 24
    bench.submit(ids(24, 1), 4, session="a")
    bench.submit(ids(24, 2), 4, session="b")
    bench.step()
    assert held(bench) == []


def test_what_sessions_share_counts_once() -> None:
    bench = bench_of(15, "auto")
    head = ids(20, 1)
    bench.answer([*head, 101])
    requests = [bench.submit([*head, 102 + n, *ids(3, n)], 2, session=str(n)) for n in range(5)]
    bench.step()
    # 21 of the first session, and 5 x 4 tokens of the others' own: 41 of 48.
    assert held(bench) == []
    bench.run()
    assert [request.cached_tokens for request in requests] == [20] * 5


def test_what_is_the_same_in_two_namespaces_counts_in_each_as_it_is_stored_in_each() -> None:
    bench = bench_of(40, "auto")  # 160 tokens, 128 of them for contexts
    head = ids(40, 1)
    spaces = [Namespace(tenant=name) for name in "abc"]
    for space in spaces:
        bench.submit([*head, 99], 1, session="before", namespace=space)
        bench.run()
    bench.now = 1000.0  # those sessions are over
    requests = [
        bench.submit([*head, *ids(12, n)], 2, session="now", namespace=space)
        for n, space in enumerate(spaces)
    ]
    bench.step()
    # Two have 2 x (40 + 12); a third would make 156.
    assert held(bench) == requests[2:]
    bench.run()
    assert [request.cached_tokens for request in requests] == [40] * 3


def test_a_session_that_is_under_way_goes_on_and_passes_those_held() -> None:
    bench = bench_of(15, "auto")
    first = bench.submit(ids(20, 1), 3, session="a")
    other = bench.submit(ids(30, 2), 3, session="b")
    bench.step()
    bench.step()
    again = bench.submit([*first.tokens, 7], 3, session="a")
    bench.step()
    assert again.state is State.RUNNING
    assert held(bench) == [other]


@pytest.mark.parametrize("named", [True, False])
def test_a_session_is_known_by_its_name_or_by_its_prompt(named: bool) -> None:
    bench = bench_of(100, 1)

    def session(name: str) -> str | None:
        return name if named else None

    head = ids(40, 9)  # that all share
    first = bench.submit([*head, *ids(30, 1)], 6, session=session("a"))
    bench.step()
    again = bench.submit([*first.tokens[:70], 1, 2, 3], 6, session=session("a"))
    other = bench.submit([*head, *ids(30, 2)], 2, session=session("b"))
    bench.step()
    assert again.state is State.RUNNING
    assert held(bench) == [other]
    # Of another tenant the same prompt is another session, whatever its name.
    stranger = bench.submit(
        [*first.tokens[:70], 1, 2, 3], 2, session=session("a"), namespace=Namespace(tenant="t")
    )
    assert stranger in held(bench)
    bench.run()
    bench.assert_idle()


def test_a_session_is_waited_for_as_long_as_pauses_take() -> None:
    bench = bench_of(200, 1)
    busy = bench.submit(ids(8, 1), 60, session="busy")
    bench.step()
    other = bench.submit(ids(8, 2), 1, session="other")
    # Pauses of 1 s, as ten requests have shown: 2 s is waited.
    sessions = bench.scheduler._gate._sessions
    for _ in range(10):
        sessions._learn_pause(1.0)
    bench.scheduler.finish(busy)
    filler = bench.submit(ids(8, 1), 60, session="busy")
    bench.scheduler.finish(filler)
    assert held(bench) == [other]
    bench.now = 1.9
    assert len(sessions.active(bench.now)) == 1
    bench.now = 2.1
    assert len(sessions.active(bench.now)) == 0


def test_no_more_than_so_many_later_requests_pass_the_first_one_held() -> None:
    bench = bench_of(100, 1, max_passed_by=3)
    bench.submit(ids(8, 1), 90, session="a")  # runs all the time
    bench.step()
    waiting = [bench.submit(ids(8, seed), 1, session=str(seed)) for seed in (2, 3)]
    for count in range(1, 9):
        bench.submit(ids(8, 1), 1, session="a")
        bench.step()
        # The first is let in before a fourth passes it, the second three later.
        assert held(bench) == waiting[(count - 1) // 3 :]


def test_one_that_was_aborted_behind_the_first_is_not_let_in_with_it() -> None:
    bench = bench_of(100, 1, max_passed_by=0)
    bench.submit(ids(8, 1), 90, session="a")
    bench.step()
    first, gone = (bench.submit(ids(8, seed), 1, session=str(seed)) for seed in (2, 3))
    bench.scheduler.abort(gone)
    bench.submit(ids(8, 1), 1, session="a")
    bench.step()
    assert held(bench) == []
    assert (first.admitted_s, gone.admitted_s) == (0.0, None)


def test_those_aborted_behind_the_first_are_not_kept() -> None:
    bench = bench_of(100, 1)
    bench.submit(ids(8, 1), 90, session="a")
    bench.step()
    first = bench.submit(ids(8, 2), 1, session="b")
    for number in range(20):
        bench.scheduler.abort(bench.submit(ids(8, 3), 1, session=str(number)))
    gate = bench.scheduler._gate
    assert [list(line.values()) for line in gate._lines.values()] == [[first]]
    assert gate.num_of(None) == len(gate) == 1


def test_a_session_is_over_when_its_request_ends_undecided_and_without_blocks() -> None:
    scheduler = Scheduler(PrefixCache(4, SIZE), Limits(64, max_sessions=2))
    parked, other = (Request(n, ids(9, n), 3, session=str(n)) for n in (1, 2))
    scheduler.submit(parked)
    scheduler.submit(other)
    for _ in range(2):  # there is room for one at a time
        scheduler.commit(scheduler.plan(), [None])
    assert parked.state is State.PARKED
    scheduler.abort(parked)
    scheduler.abort(other)
    sessions = scheduler._gate._sessions
    assert [session.requests for session in sessions._known.values()] == [0, 0]
    assert sessions._of == {}
    assert sessions.active(1000.0) == {}


def test_namespaces_whose_sessions_are_forgotten_are_forgotten() -> None:
    sessions = Sessions()
    for number in range(1030):  # of which 1024 are remembered
        request = Request(number, [7, 8], 1, namespace=Namespace(salt=f"s{number}"))
        sessions.note(sessions.begin(request), request, 0.0)
    assert len(sessions._nameless) == len(sessions._known) == 1024
    assert Namespace(salt="s5") not in sessions._nameless
    assert Namespace(salt="s6") in sessions._nameless


def test_tenants_take_turns_at_the_gate() -> None:
    bench = bench_of(400, 1, max_passed_by=1000)
    for seed in range(3):
        bench.submit(ids(8, seed), 1, namespace=Namespace(tenant="many"))
    few = bench.submit(ids(8, 9), 1, namespace=Namespace(tenant="few"))
    bench.step()
    bench.step()
    assert few.state is State.FINISHED, "it came last, and is its tenant's first"
    assert len(held(bench)) == 2


def test_a_held_request_can_be_aborted_or_end_by_its_deadline() -> None:
    bench = bench_of(100, 1)
    running = bench.submit(ids(8, 1), 50, session="a")
    bench.step()
    gone = bench.submit(ids(8, 2), 1, session="b", branches=1)
    late = bench.submit(ids(8, 3), 1, session="c", deadline=5.0)
    assert len(held(bench)) == 2
    with pytest.raises(ValueError, match="request_id 2 is in use"):
        bench.scheduler.submit(Request(2, ids(8, 4), 1))
    branch = bench.requests[2]
    bench.scheduler.abort(branch)
    bench.scheduler.abort(gone)
    assert held(bench) == [late]
    bench.now = 6.0
    plan = bench.step()
    assert [ended.request for ended in plan.ended] == [late]
    assert held(bench) == []
    bench.scheduler.abort(running)
    bench.assert_idle()
    assert not bench.scheduler.has_work


def test_held_requests_count_as_waiting_ones() -> None:
    bench = bench_of(100, 1, max_waiting=2)
    bench.submit(ids(8, 1), 50, session="a")
    bench.step()
    for seed in (2, 3):
        bench.submit(ids(8, seed), 1, session=str(seed), namespace=Namespace(tenant="t"))
    assert bench.scheduler.num_new_waiting == 2
    assert bench.scheduler.num_new_waiting_of("t") == 2
    assert bench.scheduler.num_new_waiting_of(None) == 0
    with pytest.raises(QueueFull, match="2 requests wait, the limit is 2"):
        bench.submit(ids(8, 4), 1, session="d")


def test_without_a_limit_nothing_is_held_or_remembered() -> None:
    bench = bench_of(12, None)
    for seed in range(9):
        bench.submit(ids(24, seed), 2, session=str(seed))
    assert bench.scheduler.num_held == 0
    bench.run()
    assert bench.scheduler._gate._sessions._known == {}


@pytest.mark.parametrize("most", [0, -1, 1.5, "many"])
def test_a_limit_that_is_none_is_refused(most: Any) -> None:
    with pytest.raises(ValueError, match="max_sessions must be at least 1, auto or None"):
        Limits(max_sessions=most)


CALLS = st.lists(
    st.tuples(
        st.integers(0, 5),  # session
        st.integers(1, 12),  # tokens that it says
        st.integers(1, 6),  # tokens of answer
        st.sampled_from([0.0, 0.1, 3.0, 500.0]),  # seconds until then
        st.booleans(),  # whether it is aborted
    ),
    min_size=1,
    max_size=20,
)


@settings(deadline=None, max_examples=30)
@given(
    calls=CALLS,
    most=st.sampled_from([1, 2, "auto"]),
    blocks=st.integers(24, 60),
    passed=st.integers(0, 4),
    named=st.booleans(),
)
def test_whatever_comes_everybody_is_served_and_nobody_is_passed_too_often(
    calls: list[tuple[int, int, int, float, bool]],
    most: Any,
    blocks: int,
    passed: int,
    named: bool,
) -> None:
    bench = bench_of(blocks, most, max_passed_by=passed)
    gate = bench.scheduler._gate
    history: dict[int, list[int]] = {}
    aborted: list[Request] = []
    for number, (session, said, answer, pause, gives_up) in enumerate(calls):
        bench.now += pause
        before = history.get(session, [900 + session])
        prompt = [*before, *ids(said, number)]
        if len(prompt) + answer > blocks * SIZE // 2:
            continue
        request = bench.submit(prompt, answer, session=str(session) if named else None)
        history[session] = prompt
        if gives_up:
            bench.scheduler.abort(request)
            aborted.append(request)
        bench.step()
        assert all(count <= passed for count in gate._passed.values())
    bench.run()
    for request in bench.requests:
        assert request.state is State.FINISHED
        if request not in aborted:
            assert answer_of(request) == answer_alone_of(request)
    bench.assert_idle()
