"""Whether what conversations leave beside their way is asked for again.

Where a call goes on from an earlier one but not from its very end, the rest of that one's path is
left behind: a reply that was told anew, a turn that was dropped. Agents never ask for it again.
Retries, parallel samples and calls out of order do::

    system - question - reply - question 2        goes on, nothing is left
                     \\
                      reply told anew - question 2  goes on, the first reply is left behind
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeftBehindConfig:
    """What is left behind counts as used where it is asked for at least ``share`` as often as the
    ends of branches are. Traces lie far from it on either side: 0.05 to 0.25 in the order in which
    agents and chats were recorded, 0.6 and more with their calls shuffled. Before anything is seen,
    ``prior_count`` observations of ``prior_share``. ``decay`` of all counts every ``every`` calls,
    as those of `Returns`.
    """

    share: float = 0.5
    prior_count: float = 30.0
    prior_share: float = 0.1
    decay: float = 0.99
    every: int = 32


class LeftBehind:
    """Counts of both. Costs: constant."""

    def __init__(self, config: LeftBehindConfig) -> None:
        self._config = config
        self._calls = self._went_on = 0.0
        self._left = self._used = 0.0
        self._until_next = config.every
        self.is_used = False

    def called(self, *, went_on: bool) -> bool:
        """A call, which ``went_on`` from the end that another had left waiting; whether
        ``is_used`` is another from now on."""
        self._calls += 1
        self._went_on += went_on
        self._until_next -= 1
        if self._until_next:
            return False
        self._until_next = self._config.every
        return self._judge()

    def left(self) -> None:
        """The rest of a path was left behind."""
        self._left += 1

    def used(self) -> None:
        """A call used more of a path than the first one that went on from it had."""
        self._used += 1

    def _judge(self) -> bool:
        config = self._config
        self._calls *= config.decay
        self._went_on *= config.decay
        self._left *= config.decay
        self._used *= config.decay
        usual = (self._went_on + 1) / (self._calls + 2)
        expected = config.prior_count * config.prior_share * usual
        chance = (self._used + expected) / (self._left + config.prior_count)
        before = self.is_used
        self.is_used = chance >= config.share * usual
        return self.is_used != before
