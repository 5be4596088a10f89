"""How many requests come in: counted from their coming to their end, bounded for each tenant."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial

import pytest

from scheduler import Limits
from server.errors import RequestRefused
from server.http.door import Door, Visit
from server.queue_limit import QueueState
from server.tenants import TenantLimits
from tests.server_http.scripted import INFO, ScriptedEngine


class Queue(ScriptedEngine):
    """Only its queue counts here."""

    def __init__(self, max_waiting: int | None = None, max_running: int = 4) -> None:
        super().__init__()
        self.info = replace(INFO, limits=Limits(256, max_running, max_waiting=max_waiting))
        self.waiting, self.of_acme, self.places = 0, 0, 0

    def queue(self, tenant: str | None, /) -> QueueState:
        return QueueState(self.waiting, self.of_acme if tenant == "acme" else 0, self.places)


def door(engine: Queue, **limits: int) -> Door:
    """Where only the tenant acme has limits."""
    return Door(engine, lambda name: TenantLimits(**limits) if name == "acme" else TenantLimits())


def come(door: Door, prompts: int = 1, tenant: str = "acme") -> Visit:
    """As a request does, which leaves when it is refused."""
    visit = door.enter(tenant)
    try:
        visit.expect(prompts)
    except RequestRefused:
        visit.leave()
        raise
    return visit


def refused(door: Door, prompts: int = 1, tenant: str = "acme") -> RequestRefused:
    with pytest.raises(RequestRefused) as refusal:
        come(door, prompts, tenant)
    return refusal.value


def test_a_tenant_has_as_many_in_flight_as_it_may_and_others_are_not_concerned() -> None:
    entrance = door(Queue(), max_in_flight=2)
    first, second = entrance.enter("acme"), entrance.enter("acme")
    refusal = refused(entrance)
    assert (refusal.status, refusal.code) == (429, "tenant_in_flight_limit")
    assert "acme has 2" in refusal.message
    assert "max_in_flight" in refusal.message
    for tenant in ("beta", "beta", "beta", None):
        entrance.enter(tenant)
    first.leave()
    entrance.enter("acme").expect(1)
    second.leave()
    assert entrance.in_flight("acme") == 1


def test_each_prompt_of_a_body_is_a_request() -> None:
    entrance = door(Queue(), max_in_flight=5)
    visit = entrance.enter("acme")
    visit.expect(1)
    visit.expect(4)
    assert entrance.in_flight("acme") == 4
    assert refused(entrance, prompts=2).code == "tenant_in_flight_limit"
    assert entrance.in_flight("acme") == 4
    for _ in range(4):
        visit.queued()
    visit.ended()
    assert entrance.in_flight("acme") == 3
    entrance.enter("acme").expect(2)
    visit.leave()
    assert entrance.in_flight("acme") == 2


def test_what_could_never_be_taken_is_a_400_that_names_the_limit() -> None:
    for entrance, name, most in (
        (door(Queue(), max_in_flight=5), "max_in_flight", 5),
        (door(Queue(max_running=4), max_queued=3), "max_queued", 7),
        (door(Queue(max_waiting=6, max_running=4)), "--max-waiting", 10),
    ):
        refusal = refused(entrance, prompts=most + 1)
        assert (refusal.status, refusal.code, refusal.param) == (400, "too_many_prompts", "prompt")
        assert f"{most + 1} prompts" in refusal.message
        assert name in refusal.message
        assert f"({most})" in refusal.message
        assert entrance.in_flight("acme") == 0


def test_a_tenants_queue_counts_what_the_engine_has_not_started_and_what_is_on_its_way() -> None:
    engine = Queue()
    entrance = door(engine, max_queued=3)
    visits = [entrance.enter("acme") for _ in range(4)]
    for visit in visits[:3]:
        visit.expect(1)  # on their way
    with pytest.raises(RequestRefused) as refusal:
        visits[3].expect(1)
    assert (refusal.value.status, refusal.value.code) == (429, "tenant_queue_full")
    assert "acme has 3" in refusal.value.message
    assert "(max_queued) is 3" in refusal.value.message
    engine.of_acme = engine.waiting = 3
    for visit in visits[:3]:
        visit.queued()
    assert refused(entrance).code == "tenant_queue_full"
    engine.of_acme = engine.waiting = 2  # one has been started
    visits[3].expect(1)
    entrance.enter("beta").expect(1)


def test_what_starts_with_the_next_step_does_not_count_as_waiting() -> None:
    engine = Queue()
    entrance = door(engine, max_queued=1)
    engine.places = 2
    for _ in range(3):
        entrance.enter("acme").expect(1)
    assert refused(entrance).code == "tenant_queue_full"


def test_the_bound_on_all_that_wait_counts_every_tenants() -> None:
    engine = Queue(max_waiting=2)
    entrance = door(engine)
    first = entrance.enter("acme")
    first.expect(1)
    entrance.enter("beta").expect(1)
    for tenant in ("acme", "beta", "gamma"):
        refusal = refused(entrance, tenant=tenant)
        assert (refusal.status, refusal.code) == (429, "queue_full")
        assert "--max-waiting" in refusal.message
    first.leave()
    entrance.enter("gamma").expect(1)


def test_who_has_left_gives_nothing_back_twice() -> None:
    entrance = door(Queue(), max_in_flight=3)
    other = entrance.enter("acme")
    visit = entrance.enter("acme")
    visit.expect(2)
    visit.leave()
    for late in (visit.queued, visit.ended, visit.leave, partial(visit.expect, 2)):
        late()
        assert entrance.in_flight("acme") == 1
    other.leave()
    assert entrance.in_flight("acme") == 0


def test_limits_hold_as_they_are_when_a_request_comes() -> None:
    limits = TenantLimits(max_in_flight=1)
    entrance = Door(Queue(), lambda _: limits)
    entrance.enter("acme")
    assert refused(entrance).code == "tenant_in_flight_limit"
    limits = TenantLimits(max_in_flight=2)
    entrance.enter("acme")


def test_many_at_once_never_exceed_the_limit_and_leave_nothing_behind() -> None:
    entrance = door(Queue(), max_in_flight=7, max_queued=50)
    most = 0
    refusals = []

    def come_and_go() -> None:
        nonlocal most
        for _ in range(200):
            try:
                visit = come(entrance, 2)
            except RequestRefused as refusal:
                refusals.append(refusal.code)
                continue
            most = max(most, entrance.in_flight("acme"))
            visit.queued()
            visit.ended()
            visit.leave()

    threads = [threading.Thread(target=come_and_go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert 2 <= most <= 7
    assert set(refusals) <= {"tenant_in_flight_limit"}
    assert entrance.in_flight("acme") == 0
    for _ in range(7):
        entrance.enter("acme").expect(1)
