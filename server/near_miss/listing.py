"""What is known of near-misses, ready for JSON."""

from __future__ import annotations

from typing import Any

from server.near_miss.finding import Finding
from server.near_miss.mending import how_to_mend
from server.near_miss.register import Group


def group_body(group: Group, now: float) -> dict[str, Any]:
    """One shape. ``now``: on the clock that it was noted on."""
    return {
        "id": group.id,
        "tenant": group.tenant,
        "salted": group.is_salted,  # the salt itself is the client's secret
        **finding_body(group.latest),
        "times": group.times,
        "lost_tokens": group.lost_each,
        "lost_tokens_total": group.lost_tokens,
        "first_s": round(now - group.first_s, 3),
        "last_s": round(now - group.last_s, 3),
    }


def finding_body(found: Finding) -> dict[str, Any]:
    """Where it is, what it is, and how it is mended."""
    section = found.section
    return {
        "kind": found.kind,
        "position": found.position,
        "section": section.kind,
        "message": section.message,
        "role": section.role,
        "characters": [found.first, found.last],
        "prompt_tokens": found.prompt_tokens,
        "where": f"diverged at token {found.position}, {section.name}",
        "mend": how_to_mend(found),
        "here": found.here,
        "stored": found.stored,
    }
