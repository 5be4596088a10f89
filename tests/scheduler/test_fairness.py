"""Tenants take turns by the tokens computed for each, however many requests one of them sends."""

from __future__ import annotations

from collections import Counter

import pytest

from radix_engine.cache import Namespace
from scheduler import Limits, Request, State
from tests.cache.trees import ids
from tests.checking_model import Bench, answer_alone_of, answer_of

A, B, C = (Namespace(tenant=name) for name in "abc")


def fair(max_running: int = 1, max_step_tokens: int = 256, **limits: int) -> Bench:
    return Bench(400, 16, Limits(max_step_tokens, max_running, **limits), fair=True)


def runs(bench: Bench, steps: int | None = None) -> list[Request]:
    """The requests in the order in which they began to run, over so many steps or to the end."""
    order: list[Request] = []
    while bench.scheduler.has_work and (steps is None or steps > 0):
        for span in bench.step().spans:
            if span.request not in order:
                order.append(span.request)
        steps = None if steps is None else steps - 1
    return order


def tenants(requests: list[Request]) -> str:
    return "".join(request.namespace.tenant or "-" for request in requests)


@pytest.mark.parametrize(("flood", "single"), [(A, B), (B, A), (Namespace(), A), (A, Namespace())])
def test_a_single_request_starts_within_two_turns_of_a_flood_that_keeps_nearly_all(
    flood: Namespace, single: Namespace
) -> None:
    bench = fair()
    for seed in range(200):
        bench.submit(ids(50, seed), namespace=flood)
    runs(bench, 5)
    request = bench.submit(ids(50, 999), namespace=single)
    order = runs(bench, 40)
    assert order.index(request) <= 1
    assert len(order) == 40, "39 of 40 turns are the flood's"
    bench.run()
    assert all(answer_of(request) == answer_alone_of(request) for request in bench.requests)


def test_with_many_running_at_a_time_a_single_request_starts_when_the_next_place_is_free() -> None:
    bench = fair(max_running=8)
    for seed in range(200):
        bench.submit(ids(50, seed), 10, namespace=A)
    runs(bench, 15)
    request = bench.submit(ids(50, 999), 10, namespace=B)
    finished = bench.scheduler.counters.requests_finished
    while bench.scheduler.counters.requests_finished == finished:
        assert request.state is State.WAITING
        bench.step()
    bench.step()
    assert request.state is State.RUNNING
    bench.run()
    assert all(answer_of(request) == answer_alone_of(request) for request in bench.requests)


def test_tenants_of_very_different_prompts_get_equal_tokens_within_one_requests_length() -> None:
    bench = fair(max_step_tokens=512)
    lengths = {"a": 20, "b": 200, "c": 1000}
    for number in range(300):
        for seed, (name, length) in enumerate(lengths.items()):
            if number * length < 6000:
                bench.submit(ids(length, 3 * number + seed), namespace=Namespace(tenant=name))
    given: Counter[str] = Counter()
    left = Counter(tenants(bench.requests))
    while min(left.values()) > 0:
        for span in bench.step().spans:
            tenant = tenants([span.request])
            given[tenant] += span.count
            left[tenant] -= span.samples
        assert max(given[name] for name in lengths) - min(given[name] for name in lengths) <= 1000
    assert min(given.values()) >= 4000
    bench.run()


def test_a_flood_gets_no_turns_for_having_been_passed_by_others_who_take_theirs() -> None:
    bench = fair(max_passed_by=8)
    for seed in range(60):
        bench.submit(ids(20, seed), namespace=A)
    order: list[Request] = []
    for seed in range(60):
        bench.submit(ids(20, 100 + seed), namespace=B)
        order += runs(bench, 1)
    assert tenants(order[:2]) in ("ab", "ba")
    turns = Counter(tenants(order))
    assert abs(turns["a"] - turns["b"]) <= 2


def test_a_tenant_that_was_idle_while_another_waited_has_saved_no_turns() -> None:
    bench = fair()
    bench.submit(ids(20, 1), namespace=B)
    for seed in range(60):
        bench.submit(ids(20, 2 + seed), namespace=A)
    runs(bench, 31)  # b had one, and then nothing
    for seed in range(30):
        bench.submit(ids(20, 100 + seed), namespace=B)
    order = tenants(runs(bench, 20))
    assert order.count("a") == order.count("b") == 10
    assert "aaa" not in order
    assert "bbb" not in order


@pytest.mark.parametrize(("earlier", "later"), [(A, B), (B, A)])
def test_a_tenant_that_was_idle_while_nobody_waited_has_saved_no_turns_either(
    earlier: Namespace, later: Namespace
) -> None:
    bench = fair()
    for seed in range(30):  # one after the other: none has to wait
        bench.submit(ids(20, seed), namespace=A)
        bench.run()
    for seed in range(20):
        bench.submit(ids(20, 100 + seed), namespace=earlier)
        bench.submit(ids(20, 200 + seed), namespace=later)
    order = tenants(runs(bench, 20))
    assert order.count("a") == order.count("b") == 10
    assert "aaa" not in order
    assert "bbb" not in order


def test_tenants_that_come_together_share_the_places_from_the_start() -> None:
    bench = fair(max_running=8, max_step_tokens=512)
    for seed in range(20):
        bench.submit(ids(20, seed), 40, namespace=A)
    for seed in range(20):
        bench.submit(ids(20, 100 + seed), 40, namespace=B)
    bench.step()
    running = [request for request in bench.requests if request.state is State.RUNNING]
    assert sorted(tenants(running)) == list("aaaabbbb")


def test_what_is_cached_costs_a_tenant_no_turn() -> None:
    bench = fair()
    bench.answer(ids(161, 1))  # of nobody in particular, which is a tenant too
    for _ in range(12):
        bench.submit(ids(161, 1))  # computes 1 token each
    for seed in range(2, 8):
        bench.submit(ids(161, seed), namespace=A)
    # They begin with equal counts. The first of a's counts 161, as all 12 others would in 161.
    assert tenants(runs(bench, 14)) == "-a" + "-" * 11 + "a"


def test_all_answers_to_a_prompt_are_charged_to_their_tenant() -> None:
    bench = fair(max_running=4)
    bench.submit(ids(16, 1), 11, branches=3, namespace=A)  # 16 + 4 x 10 tokens
    bench.submit(ids(16, 2), 1, branches=3, namespace=B)
    for seed in range(3, 9):
        bench.submit(ids(16, seed), namespace=A)
        bench.submit(ids(16, 10 + seed), namespace=B)
    order = runs(bench)
    # a's four, then b's, whose tokens are 16, 32, 48 and 64, then a's, which had 56.
    assert tenants(order[:9]) == "aaaabbbba"


def test_within_a_tenant_the_order_is_the_usual_one_and_tenants_share_nothing() -> None:
    bench = fair()
    for namespace in (A, B):
        bench.submit(ids(64, 1), namespace=namespace)
        bench.run()
    cold, hot = bench.submit(ids(64, 2), namespace=A), bench.submit(ids(64, 1), namespace=A)
    other = bench.submit(ids(64, 2), namespace=B)
    order = runs(bench)
    assert order.index(hot) < order.index(cold)
    assert (cold.cached_tokens, hot.cached_tokens, other.cached_tokens) == (0, 48, 0)


def test_without_fairness_a_flood_goes_first() -> None:
    bench = Bench(400, 16, Limits(256, 1))
    for seed in range(20):
        bench.submit(ids(50, seed), namespace=A)
    bench.submit(ids(50, 99), namespace=B)
    assert tenants(runs(bench)) == "a" * 20 + "b"


def test_one_that_does_not_fit_is_passed_by_other_tenants_at_most_as_often_as_may_be() -> None:
    bench = Bench(20, 16, Limits(max_step_tokens=512, max_running=16, max_passed_by=3), fair=True)
    running = bench.submit(ids(160, 1), 40, namespace=B)
    bench.step()
    large = bench.submit(ids(200, 2), 2, namespace=A)  # 13 blocks, of which about 9 are there
    small: list[Request] = []
    while large.state is State.WAITING:
        started = sum(request.state is not State.WAITING for request in small)
        assert bench.scheduler.passed_by(large) == started <= 3
        small.append(bench.submit(ids(20, len(bench.requests)), 2, namespace=B))
        bench.step()
    assert bench.scheduler.most_passed_by == started == 3
    assert running.state is State.FINISHED
    bench.run()
    assert all(answer_of(request) == answer_alone_of(request) for request in bench.requests)
    bench.assert_idle()
