"""What changed between two prompts, from their digests."""

from __future__ import annotations

from typing import Any

import pytest

from radix_engine.cache import Cause, MatchEnd, Namespace, Reason
from server.diagnostics import Fingerprint, RecentPrompts, Verdict, compare, fingerprint
from server.near_miss import PromptSource
from server.outputs import Usage

MESSAGES = [{"role": role, "content": role} for role in ("system", "user", "assistant", "user")]
TOKENS = list(range(100))


def mark(tokens: list[int] = TOKENS, messages: Any = MESSAGES, **more: Any) -> Fingerprint:
    source = PromptSource("", messages, more.pop("tools", ()))
    return fingerprint(tokens, source, more)


def usage(cached: int, reason: Reason = Reason.DIVERGED, **more: Any) -> Usage:
    return Usage(0, 1, cached, MatchEnd(reason, cached, **more))


@pytest.mark.parametrize(
    ("now", "cached", "expected"),
    [
        (mark(), 99, Verdict(False, None, 0, 96)),
        (mark(), 84, Verdict(False, None, 15, 96)),  # less than a block
        (mark(), 83, Verdict(True, None, 16, 96)),
        (mark([*TOKENS, 1, 2]), 100, Verdict(False, None, 0, 96)),
        (mark(TOKENS[:50], [*MESSAGES[:3]]), 0, Verdict(True, "compacted", 49, 48)),
        (mark([*TOKENS[:40], *TOKENS], tools=[{}]), 40, Verdict(True, "tools", 60, 32)),
        (mark([*TOKENS[:15], 0, *TOKENS]), 15, Verdict(True, None, 85, 0)),
        (mark(effort="low"), 0, Verdict(True, "variables", 99, 96)),
        (mark(messages=[{"role": "system"}, *MESSAGES[1:]]), 0, Verdict(True, "system", 99, 96)),
        (mark(messages=[*MESSAGES[:1], *MESSAGES[2:], {}]), 0, Verdict(True, "messages", 99, 96)),
    ],
)
def test_the_first_change_and_its_tokens(now: Fingerprint, cached: int, expected: Verdict) -> None:
    assert compare(mark(), now, usage(cached)) == expected


def test_where_what_is_shared_was_evicted_the_change_is_not_the_reason() -> None:
    now = mark([*TOKENS[:60], *TOKENS], tools=[{}])
    gone = usage(16, Reason.EVICTED, cause=Cause.CAPACITY, lost_tokens=32)
    assert compare(mark(), now, gone) == Verdict(True, None, 84, 48)
    later = usage(48, Reason.EVICTED, cause=Cause.CAPACITY, lost_tokens=32)
    assert compare(mark(), now, later).change == "tools"


def test_recent_prompts_are_bounded_and_of_one_namespace() -> None:
    acme, beta = Namespace("acme"), Namespace("beta")
    recent = RecentPrompts(most_bytes=10 * mark().size_bytes)
    for number in range(30):
        recent.add(f"id {number}", acme, mark())
    assert [bool(recent.find(f"id {number}", acme)) for number in range(30)] == (
        [False] * 20 + [True] * 10
    )
    assert recent.find("id 29", beta) is None
    assert recent.find("id 29", Namespace("acme", "salt")) is None
    assert recent.find("id 29", acme) == mark()
