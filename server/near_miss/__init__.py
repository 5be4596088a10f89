"""Repeated near-misses: prompts that part from what is cached at a place that can be mended.

A near-miss is a prompt that leaves a stored branch, differs from it over a short span, and then
goes on as the branch does: what follows the span is computed again although it is the same. Prompts
that go on differently, as those of two users do, have lost nothing, and are none.
"""

from server.near_miss.finding import Finding, Kind
from server.near_miss.judge import judge
from server.near_miss.listing import finding_body, group_body
from server.near_miss.mending import how_to_mend
from server.near_miss.register import Group, Register, Thresholds
from server.near_miss.source import PromptSource
from server.near_miss.watch import Seen, Watch

__all__ = [
    "Finding",
    "Group",
    "Kind",
    "PromptSource",
    "Register",
    "Seen",
    "Thresholds",
    "Watch",
    "finding_body",
    "group_body",
    "how_to_mend",
    "judge",
]
