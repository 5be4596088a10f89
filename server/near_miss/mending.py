"""How each kind of near-miss is mended, in a sentence; docs/near-misses.md has more."""

from __future__ import annotations

from server.near_miss.finding import Finding, Kind

_LATER = "after all that stays the same, such as into the last user message"

_MENDS: dict[Kind, str] = {
    "clock": f"leave the time out, round it (to the day or hour), or move it {_LATER}",
    "date": f"move the date {_LATER}",
    "uuid": f"leave the random id out, or move it {_LATER}",
    "id": f"leave the random id out, keep it the same for a conversation, or move it {_LATER}",
    "hex": f"leave the hash or id out, or move it {_LATER}",
    "number": f"leave the number out, or move it {_LATER}",
    "tool_order": "send the tools in the same order each time, such as by name",
    "tools": "send the same tools in each request, and add new ones at the end of the list",
    "json_form": "send JSON back as it was: the same order of keys, spaces and escapes",
    "history": "send earlier messages back as they were; drop or cut many at a time, and seldom",
    "other": f"move the text that changes {_LATER}",
}


def how_to_mend(finding: Finding) -> str:
    """What the client can do about it."""
    section = finding.section
    if section.kind == "template":
        return "give the chat template the same variables each time (chat_template_kwargs)"
    if section.kind == "message" and finding.kind in ("clock", "date", "uuid", "id", "hex"):
        return "keep what an earlier message said: write it once, when the message is new"
    return _MENDS[finding.kind]
