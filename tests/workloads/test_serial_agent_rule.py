"""The agent rule on generated traces, one call at a time, beside LRU and the best there is."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from workloads.simulation.optimum import Optimum
from workloads.simulation.serial import SerialCache
from workloads.simulation.serial_calls import SerialCall

ROOM = 400  # blocks


class Blocks:
    """Numbers for the blocks of sessions, each a path that grows."""

    def __init__(self) -> None:
        self._paths: dict[int, list[int]] = {}
        self._made = 0

    def grow(self, session: int, blocks: int) -> np.ndarray:
        path = self._paths.setdefault(session, [])
        path.extend(range(self._made, self._made + blocks))
        self._made += blocks
        return np.array(path, np.int64)


def call(path: np.ndarray, at: float, reply_s: float = 0.0, stop: str | None = None) -> SerialCall:
    return SerialCall(path, len(path), len(path), at, at, stop, reply_s)


def loop(sessions: int, rounds: int, every: float = 1.0) -> list[SerialCall]:
    """Sessions of about 40 blocks in turn, which grow by one a round."""
    blocks, calls = Blocks(), []
    for round_number in range(rounds):
        for session in range(sessions):
            at = every * (round_number * sessions + session)
            calls.append(call(blocks.grow(session, 30 if not round_number else 1), at))
    return calls


def heavy_tailed(seed: int, sessions: int = 300) -> list[SerialCall]:
    """Sessions whose gaps are of all lengths alike, the longer the rarer."""
    draw, blocks = random.Random(seed), Blocks()
    times = []
    for session in range(sessions):
        at = draw.uniform(0, 2000)
        for _ in range(draw.randrange(1, 12)):
            times.append((at, session))
            at += 0.5 * draw.paretovariate(0.6)
    return [
        call(blocks.grow(session, draw.randrange(1, 20)), at)
        for at, session in sorted(times)
        if at < 4000
    ]


def rates(calls: list[SerialCall], room: int = ROOM) -> tuple[int, int, int]:
    """Blocks hit by LRU, by the agent rule and at best."""
    lru, agent = (sum(SerialCache(room, rule).hits(calls)) for rule in ("lru", "agent"))
    return lru, agent, sum(Optimum(calls, room).hits())


def test_of_a_loop_that_does_not_fit_it_keeps_a_part_where_lru_keeps_nothing() -> None:
    lru, agent, best = rates(loop(sessions=20, rounds=20))
    assert lru == 0
    assert agent > best / 2


def test_of_a_loop_that_fits_all_is_kept() -> None:
    lru, agent, best = rates(loop(sessions=8, rounds=10))
    assert lru == agent == best > 0


@pytest.mark.parametrize("seed", range(3))
def test_where_gaps_are_of_all_lengths_it_serves_about_what_lru_does(seed: int) -> None:
    lru, agent, best = rates(heavy_tailed(seed), room=300)
    assert lru < best
    assert agent > 0.95 * lru


def with_dead_sessions() -> Iterator[SerialCall]:
    """Slow sessions that come back every 100 s, among quick ones that end after 3 calls."""
    blocks = Blocks()
    events = [(100.0 * turn + 10 * session, session) for turn in range(30) for session in range(10)]
    for start in range(0, 2990, 5):
        events.extend((start + 2.0 * turn, 1000 + start) for turn in range(3))
    for at, session in sorted(events):
        yield call(blocks.grow(session, 4), at)


def test_sessions_that_are_over_make_room_for_slow_ones_that_are_not() -> None:
    calls = list(with_dead_sessions())
    lru, agent, best = rates(calls, room=900)
    assert (agent - lru) / (best - lru) > 0.3


def test_whether_a_tool_was_called_tells_who_comes_back_soon() -> None:
    draw, blocks, calls = random.Random(1), Blocks(), []
    events = []
    for session in range(400):
        at, more = draw.uniform(0, 3000), True
        while more:
            more = draw.random() < 0.8
            events.append((at, session, more))
            at += draw.uniform(5, 60)
    for at, session, more in sorted(events):
        stop = "tool_use" if more else "end_turn"
        calls.append(call(blocks.grow(session, 10), at, 1.0, stop))
    untold = [call(each.path, each.start_s, each.reply_s) for each in calls]
    told = sum(SerialCache(ROOM, "agent").hits(calls))
    assert told > 1.05 * sum(SerialCache(ROOM, "agent").hits(untold))


def test_the_end_of_a_reply_is_told_when_it_comes_and_no_sooner() -> None:
    cache = SerialCache(ROOM, "agent")
    blocks = Blocks()
    cache.serve(call(blocks.grow(1, 4), 0.0, reply_s=30.0, stop="tool_use"))
    rule = cache.cache._tree.leaves.rule
    (leaf,) = rule.leaves()
    cache.serve(call(blocks.grow(2, 4), 29.0))
    assert leaf.place[4].ended is None
    assert not leaf.place[4].stop
    cache.serve(call(blocks.grow(3, 4), 31.0))
    assert leaf.place[4].ended == 30.0
    assert leaf.place[4].stop


def test_a_running_call_keeps_its_path_and_its_end_is_told_with_its_reason() -> None:
    calls = [
        SerialCall(each.path, each.prompt_blocks, each.prompt_tokens, each.start_s,
                   each.start_s + 15.0, "tool_use", 15.0)
        for each in loop(sessions=20, rounds=12, every=4.0)
    ]  # fmt: skip
    cache = SerialCache(ROOM, "agent")
    hits = sum(cache.hits(calls))
    assert sum(SerialCache(ROOM, "lru").hits(calls)) == 0
    assert sum(Optimum(calls, ROOM).hits()) / 2 < hits <= sum(Optimum(calls, ROOM).hits())
    assert cache.cache.audit((), (lease for _, _, lease, _ in cache._running)) == []
