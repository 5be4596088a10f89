"""The agent rule on a cache: what leaves first, and that it keeps its books."""

from __future__ import annotations

from random import Random

import pytest

from radix_engine.cache import Lease, PrefixCache, pack
from radix_engine.cache.eviction import AgentLeaves
from radix_engine.cache.eviction.agent import AgentConfig
from tests.cache.requests import Clock, begin, reach, serve
from tests.cache.trees import assert_sound, ids, make_cache, take

SIZE = 4


class Sessions:
    """Conversations that grow by a block a turn; all of them fit until a test evicts."""

    def __init__(self, *, most_calls: int = 4096) -> None:
        self.clock = Clock()
        self.rule = AgentLeaves(AgentConfig(most_calls=most_calls))
        self.cache = make_cache(4000, SIZE, clock=self.clock, eviction=self.rule)
        self.turns: dict[int, int] = {}

    def tokens(self, session: int) -> list[int]:
        return [1000 + session, *ids(SIZE * self.turns[session] - 1, session)]

    def call(self, session: int, *, tool: bool = False) -> None:
        self.turns[session] = self.turns.get(session, 0) + 1
        lease = begin(self.cache, self.tokens(session))
        if tool:
            self.cache.note_tool_call(lease)
        self.cache.release(lease)

    def run(self, until: float, every: dict[int, float], *, tool: bool = False) -> None:
        """Each session is called again and again, so many seconds apart."""
        due = [(self.clock.now + gap, session) for session, gap in every.items()]
        while min(due)[0] <= until:
            at, session = min(due)
            due.remove((at, session))
            due.append((at + every[session], session))
            self.clock.now = at
            self.call(session, tool=tool)
        self.clock.now = until

    def first_out(self) -> int:
        """The session that loses its last block first."""
        before = {session: reach(self.cache, self.tokens(session)) for session in self.turns}
        self.cache.evict(1)
        assert_sound(self.cache)
        gone = [each for each in before if reach(self.cache, self.tokens(each)) < before[each]]
        assert len(gone) == 1
        return gone[0]


def test_a_session_that_is_overdue_leaves_before_one_that_is_idle_for_longer_as_usual() -> None:
    sessions = Sessions()
    quick = {session: 10.0 + session / 10 for session in range(1, 9)}
    slow = {session: 200.0 + session for session in range(11, 19)}
    sessions.run(2400.0, quick | slow)
    # The slow ones were all called at about 2,200 s or later. One quick one was dropped at 2,400 s.
    rest = {session: gap for session, gap in (quick | slow).items() if session not in (1, 11)}
    sessions.call(11)
    sessions.clock.now += 1
    sessions.call(1)
    sessions.run(sessions.clock.now + 90.0, rest)
    assert sessions.first_out() == 1
    lru = sessions.cache.match(pack(sessions.tokens(11))).node.last_used
    assert lru < sessions.cache.match(pack(sessions.tokens(1))).node.last_used


def test_where_replies_that_call_tools_are_followed_up_others_leave_first() -> None:
    sessions = Sessions()
    for number in range(300):
        sessions.clock.now += 1.0
        sessions.call(10_000 + number)
        sessions.call(number % 4 + 1, tool=True)
    # Two of the same age and no gap yet, whose replies ended otherwise; the tool's is the older.
    sessions.clock.now += 1.0
    sessions.call(5, tool=True)
    sessions.call(6)
    cache = sessions.cache
    while reach(cache, sessions.tokens(5)) and reach(cache, sessions.tokens(6)):
        cache.evict(1)
    assert reach(cache, sessions.tokens(5))


def test_a_tool_call_told_after_the_end_counts_as_well() -> None:
    rule = AgentLeaves()
    cache = make_cache(16, SIZE, eviction=rule)
    lease = begin(cache, ids(8, 1))
    cache.release(lease)
    cache.note_tool_call(lease)
    assert lease.note.stop == 1
    assert_sound(cache)
    assert cache.evict(2) == 2


def test_a_tool_call_told_after_a_flush_brings_nothing_back() -> None:
    rule = AgentLeaves()
    cache = make_cache(16, SIZE, eviction=rule)
    lease = begin(cache, ids(8, 1))
    cache.release(lease)
    cache.flush()
    cache.note_tool_call(lease)
    assert rule.leaves() == []
    assert_sound(cache)
    serve(cache, ids(8, 2))
    assert cache.evict(3) == 2
    assert_sound(cache)


def test_what_a_later_call_has_left_behind_leaves_first() -> None:
    clock = Clock()
    cache = make_cache(64, SIZE, clock=clock, eviction="agent")
    for seed in (1, 2, 3):
        clock.now += 1.0
        serve(cache, ids(16, seed))
    clock.now += 1.0
    again = [*ids(16, 3)[:8], *ids(8, 9)]  # the conversation's last turn was told anew
    serve(cache, again)
    assert cache.evict(2) == 2
    assert reach(cache, ids(16, 3)) == 8
    assert [reach(cache, ids(16, seed)) for seed in (1, 2)] == [16, 16]
    assert reach(cache, again) == 16


@pytest.mark.parametrize(("one_in", "stored"), [(1, [8, 16, 16]), (4, [16, 16, 8])])
def test_where_what_was_left_behind_is_asked_for_again_it_does_not(
    one_in: int, stored: list[int]
) -> None:
    clock = Clock()
    cache = make_cache(2000, SIZE, clock=clock, eviction="agent")
    for seed in range(100, 148):  # each is told anew, and some then go on as they were at first
        anew = [*ids(16, seed)[:8], *ids(8, -seed)]
        for told in (ids(16, seed), anew, *([ids(16, seed)] if seed % one_in == 0 else [])):
            clock.now += 1.0
            serve(cache, told)
    cache.evict(2000)
    for seed in (1, 2, 3):
        clock.now += 1.0
        serve(cache, ids(16, seed))
    clock.now += 1.0
    serve(cache, [*ids(16, 3)[:8], *ids(8, 9)])
    clock.now += 50.0  # longer than any took to come back, so that all are worth little
    assert cache.evict(4) == 4  # of the answer told anew, too
    assert [reach(cache, ids(16, seed)) for seed in (1, 2, 3)] == stored


def test_a_head_that_many_share_stays_while_it_is_used_though_their_tails_go() -> None:
    clock = Clock()
    cache = make_cache(40, SIZE, clock=clock, eviction="agent")
    head = ids(40, 1)
    for number in range(60):
        clock.now += 5.0
        serve(cache, [*head, 5000 + number, *ids(SIZE * 4 - 1, 2)])
        if number > 1:
            assert reach(cache, head) == 40


@pytest.mark.parametrize("seed", range(4))
def test_nothing_in_use_is_chosen_whatever_the_clock_does(seed: int) -> None:
    draw, clock = Random(seed), Clock()
    rule = AgentLeaves(AgentConfig(most_calls=16))
    cache = make_cache(32, SIZE, clock=clock, eviction=rule, ghost_blocks=20, most_retained=0.5)
    running: list[Lease] = []
    for _ in range(400):
        clock.now += draw.choice([0.0, 0.0, 0.1, 1.0, 30.0, 2000.0, -0.2, -50.0])
        prompt = [draw.randrange(2) for _ in range(SIZE * draw.randrange(1, 6) + 1)]
        kind = draw.random()
        if kind < 0.6 and cache.available_blocks >= 6:
            running.append(begin(cache, prompt))
        elif kind < 0.7:
            held = [list(lease.blocks()) for lease in running]
            count = draw.randrange(5)
            there = cache.evictable_blocks
            assert cache.evict(count) == min(count, there)
            assert [list(lease.blocks()) for lease in running] == held
        elif kind < 0.75 and cache.match(pack(prompt)).num_tokens and not cache.retained_blocks:
            cache.retain(pack(prompt[:SIZE]), 20.0)
        elif kind < 0.8 and running:
            running.append(cache.share(draw.choice(running)))
        elif kind < 0.82:
            cache.flush()
        if running and draw.random() < 0.6:
            lease = running.pop(draw.randrange(len(running)))
            if draw.random() < 0.5:
                cache.note_tool_call(lease)
            cache.release(lease)
        cache.expire()
        for leaf in rule.leaves():
            assert not leaf.pins
            assert not leaf.retained
            assert leaf.blocks
        assert_sound(cache, running)
    for lease in running:
        cache.release(lease)
    stored = cache.pool.tree_blocks
    assert cache.evict(32) == stored
    assert rule.leaves() == []


def test_no_more_calls_are_remembered_than_it_is_set_to() -> None:
    sessions = Sessions(most_calls=50)
    sessions.run(1000.0, {session: 3.0 + session for session in range(1, 20)})
    calls = sessions.rule._calls
    assert len(calls) == 50
    assert len(calls._by_tick) <= 50
    assert_sound(sessions.cache)
    assert sessions.cache.evict(4000) > 0
    assert sessions.rule.leaves() == []


def test_a_call_that_outlasts_all_that_is_remembered_is_known_when_it_ends() -> None:
    sessions = Sessions(most_calls=4)
    long = begin(sessions.cache, ids(16, 77))
    sessions.run(50.0, {1: 1.0, 2: 1.0})
    sessions.cache.release(long)
    sessions.clock.now += 1.0
    lease = begin(sessions.cache, [*ids(16, 77), *ids(4, 78)])
    assert lease.note.log_gap is not None  # it continues that one
    sessions.cache.release(lease)
    sessions.run(sessions.clock.now + 20.0, {1: 1.0, 2: 1.0})
    assert len(sessions.rule._calls._by_tick) <= 4


def test_the_branches_of_a_request_are_all_of_its_kind() -> None:
    sessions = Sessions()
    sessions.run(100.0, {1: 10.0})
    cache = sessions.cache
    lease = begin(cache, [*sessions.tokens(1), *ids(4, 5)])
    branch = cache.share(lease)
    assert branch.note.gap_class == lease.note.gap_class
    assert branch.note is not lease.note
    for each in (lease, branch):
        cache.release(each)
    follow_up = cache.lease(cache.match(pack([*sessions.tokens(1), *ids(4, 5), 0])))
    assert follow_up.note.log_gap is not None
    cache.release(follow_up)


def test_a_cold_prompt_continues_nobody() -> None:
    cache = make_cache(64, SIZE, eviction="agent")
    serve(cache, ids(8, 1))
    lease = begin(cache, ids(8, 2))
    assert lease.note.log_gap is None
    cache.release(lease)


def test_that_a_head_is_shared_is_learnt_when_two_sessions_have_gone_on_from_it() -> None:
    clock = Clock()
    cache = make_cache(64, SIZE, clock=clock, eviction="agent")
    head = ids(8, 1)
    told: dict[int, list[int]] = {}

    def continues_one(session: int) -> bool:
        clock.now += 10.0
        told[session] = [*told.get(session, head), *ids(SIZE, 100 * session + len(told))]
        lease = begin(cache, told[session])
        cache.release(lease)
        return lease.note.log_gap is not None

    assert not continues_one(1)
    assert continues_one(2)  # it might be the first one, told anew
    assert continues_one(1)  # no: that goes on, and so the head is shared
    assert continues_one(2)
    assert not continues_one(3)
    assert not continues_one(4)
    assert all(continues_one(session) for session in (1, 2, 3, 4))


def test_a_flush_forgets_calls_and_leaves_and_running_ones_may_end() -> None:
    rule = AgentLeaves()
    cache = make_cache(64, SIZE, eviction=rule)
    serve(cache, ids(8, 1))
    running = begin(cache, ids(8, 2))
    cache.flush()
    assert rule.leaves() == []
    assert len(rule._calls) == 0
    cache.release(running)
    serve(cache, ids(8, 3))
    assert cache.evict(64) == 2
    assert_sound(cache)


def test_it_is_one_of_the_rules_by_name() -> None:
    cache = PrefixCache(8, SIZE, eviction="agent")
    cache.free(take(cache, 3))
    assert cache.pool.free_blocks == 8
