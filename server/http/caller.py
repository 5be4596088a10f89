"""Who sends a request, as the server knows it: nothing in a body can change it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """``tenant``: whose prefixes are whose (None: nobody in particular). ``is_operator``: may look
    at all of the cache, and administer it."""

    tenant: str | None = None
    is_operator: bool = False


# Where no keys are given out, whoever reaches the server may do everything.
ANYBODY = Caller(is_operator=True)
