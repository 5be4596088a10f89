"""Many that begin alike and come together: the common head is computed once."""

from __future__ import annotations

import pytest

from radix_engine.cache import Namespace, pack
from scheduler import Limits
from scheduler.order import ORDERS
from tests.cache.trees import ids
from tests.checking_model import Bench, answer_alone_of, answer_of

HEAD = ids(1024, 1)


def serve(bench: Bench, count: int, new: int) -> None:
    """Serve that many at once, which go on differently after the head."""
    for seed in range(count):
        bench.submit(HEAD + ids(16, 200 + seed), new)
    bench.run()
    assert all(answer_of(request) == answer_alone_of(request) for request in bench.requests)
    counters = bench.scheduler.counters
    assert counters.computed_tokens == 1024 + count * 16
    assert counters.cached_tokens == (count - 1) * 1024
    assert bench.cache.counters.duplicate_blocks == 0
    bench.assert_idle()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("step_tokens", [64, 250, 512, 4096])
def test_8_siblings_compute_1152_tokens_however_many_steps_their_head_takes(
    step_tokens: int, order: str
) -> None:
    bench = Bench(200, 16, Limits(step_tokens, max_running=64), order=order)
    serve(bench, 8, 1)
    assert bench.computed == 1152


@pytest.mark.parametrize("order", ORDERS)
def test_100_siblings_of_which_8_run_at_a_time_compute_their_head_once(order: str) -> None:
    bench = Bench(120, 16, Limits(512, max_running=8), order=order)
    serve(bench, 100, 4)
    assert bench.computed == 1024 + 100 * (16 + 3)


def test_siblings_with_branches_compute_it_once_too() -> None:
    bench = Bench(200, 16, Limits(512, max_running=8))
    for seed in range(6):
        bench.submit(HEAD + ids(16, 200 + seed), 4, branches=2)
    bench.run()
    assert bench.scheduler.counters.computed_tokens == 1024 + 6 * 16
    assert bench.computed == 1024 + 6 * (16 + 3 * 3)
    assert all(answer_of(request) == answer_alone_of(request) for request in bench.requests)


def test_tenants_that_send_the_same_prompt_compute_it_once_each_in_fair_turns() -> None:
    bench = Bench(400, 16, Limits(512, max_running=16), fair=True)
    for seed in range(4):
        for tenant in ("a", "b", "c"):
            bench.submit(HEAD + ids(16, 200 + seed), namespace=Namespace(tenant=tenant))
    bench.run()
    assert bench.computed == 3 * (1024 + 4 * 16)
    assert all(answer_of(request) == answer_alone_of(request) for request in bench.requests)


def test_what_the_next_waiting_will_use_is_evicted_after_everything_else() -> None:
    bench = Bench(12, 4, Limits(max_step_tokens=16, max_running=1))
    bench.answer(ids(17, 1))  # 4 blocks, used longest ago
    bench.answer(ids(17, 2))  # 4 blocks
    busy = bench.submit(ids(13, 3), 16)  # takes 4 free blocks, then those of others
    bench.step()
    wanted = bench.submit([*ids(16, 1), 7, 7])
    while busy.num_new_tokens < 16:
        bench.step()
    assert bench.cache.counters.evicted_blocks > 0
    bench.run()
    assert wanted.cached_tokens == 16
    assert bench.cache.match(pack(ids(17, 2))).num_tokens < 16
