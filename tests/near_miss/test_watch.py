"""Looking for near-misses beside a server's work: bounded, and never in its way."""

from __future__ import annotations

import threading

import pytest

from radix_engine.cache import DEFAULT, Branch, MatchEnd, Namespace, Reason
from server.near_miss import PromptSource, Register, Seen, Watch
from tests.near_miss.replaying import Bytes

TOKENS = list(b"It is 19:02 now, and so it goes. " * 9)
TIMEOUT_S = 20.0


def seen(reason: Reason = Reason.DIVERGED, position: int = 10) -> Seen:
    return Seen(TOKENS, PromptSource(), DEFAULT, MatchEnd(reason, position))


def test_while_one_is_looked_at_only_so_many_wait() -> None:
    go, calls = threading.Event(), 0

    def look_up(run: bytes, namespace: Namespace, position: int) -> Branch | None:
        nonlocal calls
        calls += 1
        assert go.wait(TIMEOUT_S)
        return None

    watch = Watch(Bytes(), look_up, log_prompts=False, register=Register())
    for _ in range(100):
        watch.saw(seen())  # returns at once
    go.set()
    watch.wait()
    assert (calls, watch.looked_at, watch.dropped) == (32, 32, 68)
    watch.saw(seen())
    watch.wait()
    assert calls == 33
    watch.close()
    watch.saw(seen())  # the server ends: nothing happens


@pytest.mark.parametrize(
    ("reason", "position", "is_looked_up"),
    [
        (Reason.DIVERGED, 10, True),
        (Reason.SHORT, 10, True),
        (Reason.FULL, 10, False),
        (Reason.COLD, 0, False),
        (Reason.EVICTED, 10, False),
        (Reason.BYPASSED, 0, False),
        (Reason.DIVERGED, len(TOKENS) - 63, False),  # too little is left to lose
        (Reason.DIVERGED, len(TOKENS) - 64, True),
    ],
)
def test_only_what_parts_from_a_branch_is_looked_up(
    reason: Reason, position: int, is_looked_up: bool
) -> None:
    asked: list[int] = []

    def look_up(run: bytes, namespace: Namespace, position: int) -> Branch | None:
        asked.append(position)
        return None

    watch = Watch(Bytes(), look_up, log_prompts=False, register=Register())
    watch.saw(seen(reason, position))
    watch.wait()
    assert asked == ([position] if is_looked_up else [])
    watch.close()


def test_a_look_that_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def look_up(run: bytes, namespace: Namespace, position: int) -> Branch | None:
        raise ZeroDivisionError

    watch = Watch(Bytes(), look_up, log_prompts=False, register=Register())
    for _ in range(40):
        watch.saw(seen())
        watch.wait()
    assert (watch.looked_at, watch.dropped) == (40, 0)
    assert "looking for near-misses failed" in caplog.text
    watch.close()
