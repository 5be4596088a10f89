"""Near-misses that repeat: which belong together, how often they came, and when that is told.

Pure but for its own counts. One thread at a time.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from hashlib import blake2b

from server.near_miss.finding import Finding, Kind

_SURE: tuple[Kind, ...] = ("clock", "date", "uuid", "id", "hex", "tool_order", "json_form")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From how many near-misses of a shape on they are told: ``sure`` of those kinds that no client
    means, ``unsure`` of the others; and they come within so many requests of a tenant for each."""

    sure: int = 3
    unsure: int = 5
    within: int = 16

    def least(self, kind: Kind) -> int:
        """For one kind."""
        return self.sure if kind in _SURE else self.unsure


@dataclass(slots=True)
class Group:
    """Near-misses of one shape. ``latest``: the last of them; ``times`` and ``lost_tokens`` of all.
    ``first_s`` and ``last_s``: when, on the caller's clock. ``is_told``: it has repeated."""

    id: str
    tenant: str | None
    is_salted: bool
    latest: Finding
    first_s: float
    last_s: float
    times: int = 0
    lost_tokens: int = 0
    is_told: bool = False
    recent: deque[int] = field(default_factory=deque)  # numbers of a tenant's requests

    @property
    def lost_each(self) -> int:
        """Tokens that it costs a request, on average."""
        return round(self.lost_tokens / self.times)


class Register:
    """At most ``most`` shapes, those seen last. ``by_kind``: near-misses that were told, and
    ``tokens_by_kind`` what they have cost."""

    def __init__(self, thresholds: Thresholds | None = None, most: int = 256) -> None:
        self.by_kind: Counter[str] = Counter()
        self.tokens_by_kind: Counter[str] = Counter()
        self._thresholds = thresholds or Thresholds()
        self._most = most
        self._groups: OrderedDict[bytes, Group] = OrderedDict()

    def add(
        self, finding: Finding, tenant: str | None, salted: bool, number: int, now: float
    ) -> Group | None:
        """Note a near-miss, of a tenant's request of this ``number``; its group, where it is to be
        told now, once."""
        group = self._groups.pop(finding.shape, None)
        if group is None:
            name = blake2b(finding.shape, digest_size=6).hexdigest()
            group = Group(name, tenant, salted, finding, now, now)
        self._groups[finding.shape] = group
        while len(self._groups) > self._most:
            self._groups.popitem(last=False)
        group.latest, group.last_s = finding, now
        group.times += 1
        group.lost_tokens += finding.lost_tokens
        if group.is_told:
            self._count(finding.kind, 1, finding.lost_tokens)
            return None
        least = self._thresholds.least(finding.kind)
        group.recent.append(number)
        while len(group.recent) > least:
            group.recent.popleft()
        if len(group.recent) < least or number - group.recent[0] > least * self._thresholds.within:
            return None
        group.is_told = True
        group.recent.clear()
        self._count(finding.kind, group.times, group.lost_tokens)
        return group

    def told(self) -> list[Group]:
        """Those that have repeated, the costliest first."""
        groups = [group for group in list(self._groups.values()) if group.is_told]
        return sorted(groups, key=lambda group: -group.lost_tokens)

    def _count(self, kind: Kind, times: int, tokens: int) -> None:
        self.by_kind[kind] += times
        self.tokens_by_kind[kind] += tokens
