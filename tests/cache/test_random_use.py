"""Any sequence of operations leaves the cache sound and equal to the dictionary of prefixes."""

from __future__ import annotations

from hypothesis import settings

from tests.cache.machine import CacheMachine

TestRandomUse = CacheMachine.TestCase
TestRandomUse.settings = settings(
    max_examples=200, stateful_step_count=40, deadline=None, derandomize=True
)
