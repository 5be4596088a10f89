"""Looks for near-misses while the server runs: off the event loop, and off the engine's thread but
for one look-up between two of its steps."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock

from radix_engine.cache import Branch, MatchEnd, Namespace, Reason, pack
from server.logs import fields
from server.near_miss.judge import LEAST_LOST_TOKENS, judge
from server.near_miss.mending import how_to_mend
from server.near_miss.register import Group, Register
from server.near_miss.source import PromptSource, TokenLooks

logger = logging.getLogger("server.near_miss")

LookUp = Callable[[bytes, Namespace, int], Branch | None]

# Prompts that wait to be looked at; with more than these, some are let go.
_MOST_WAITING = 32
_MOST_TENANTS = 4096
# Ends at which a stored branch goes on otherwise.
_PARTS = (Reason.DIVERGED, Reason.SHORT)


@dataclass(frozen=True, slots=True)
class Seen:
    """A prompt that was started, and how its match ended."""

    tokens: Sequence[int]
    source: PromptSource
    namespace: Namespace
    end: MatchEnd


class Watch:
    """Near-misses of one server. ``look_up``: how a stored branch goes on, see `branch_after`; it
    may block for a step. ``log_prompts``: the log shows the spans' text.

    `saw` is for one thread; it costs a request that parts from nothing a dictionary's look-up.
    ``looked_at`` and ``dropped``: prompts that parted from a branch, and that nobody had time for.
    """

    def __init__(
        self, looks: TokenLooks, look_up: LookUp, *, log_prompts: bool, register: Register
    ) -> None:
        self.looked_at = 0
        self.dropped = 0
        self.register = register
        self._looks = looks
        self._look_up = look_up
        self._log_prompts = log_prompts
        self._numbers: Counter[str | None] = Counter()  # requests, by tenant
        self._waiting = 0
        self._lock = Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="near-miss")

    def saw(self, seen: Seen) -> None:
        """A prompt was started. Never blocks."""
        tenant, end = seen.namespace.tenant, seen.end
        if tenant not in self._numbers and len(self._numbers) >= _MOST_TENANTS:
            self._numbers.clear()
        self._numbers[tenant] += 1
        if end.reason not in _PARTS or len(seen.tokens) - end.position < LEAST_LOST_TOKENS:
            return
        if self._waiting >= _MOST_WAITING:
            self.dropped += 1
            return
        with self._lock:
            self._waiting += 1
        number = self._numbers[tenant]
        try:
            self._thread.submit(self._look, seen, number)
        except RuntimeError:  # the server ends
            self._look_is_over()

    def close(self) -> None:
        """Let the thread end."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def wait(self) -> None:
        """Until all that was seen has been looked at."""
        self._thread.submit(lambda: None).result()

    def _look_is_over(self) -> None:
        with self._lock:
            self._waiting -= 1

    def _look(self, seen: Seen, number: int) -> None:
        try:
            self.looked_at += 1
            group = self._judge(seen, number)
            if group is not None:
                _tell(group, log_prompts=self._log_prompts)
        except RuntimeError as error:  # the engine has ended
            logger.debug("near-misses are not looked for: %s", error)
        except Exception:
            logger.exception("looking for near-misses failed")
        finally:
            self._look_is_over()

    def _judge(self, seen: Seen, number: int) -> Group | None:
        space = seen.namespace
        branch = self._look_up(pack(seen.tokens), space, seen.end.position)
        if branch is None:
            return None
        finding = judge(self._looks, seen.tokens, seen.source, branch, space)
        if finding is None:
            return None
        salted = space.salt is not None
        return self.register.add(finding, space.tenant, salted, number, time.monotonic())


def _tell(group: Group, *, log_prompts: bool) -> None:
    """One line of the log."""
    found = group.latest
    logger.warning(
        "prompts keep missing the cache: they diverge at token %d, %s; to mend it: %s",
        found.position,
        found.section.name,
        how_to_mend(found),
        extra=fields(
            near_miss=group.id,
            kind=found.kind,
            tenant=group.tenant,
            characters=f"{found.first}-{found.last}",
            lost_tokens=group.lost_each,
            times=group.times,
            here=found.here if log_prompts else None,
            stored=found.stored if log_prompts else None,
        ),
    )
