"""Who sends a request, as the server knows it: nothing in a body can change it."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request


@dataclass(frozen=True, slots=True)
class Caller:
    """``tenant``: whose prefixes are whose (None: nobody in particular). ``is_operator``: may look
    at all of the cache, and administer it."""

    tenant: str | None = None
    is_operator: bool = False


NOBODY = Caller()
# Where no keys are given out, whoever is on the server's own machine may do everything.
ANYBODY = Caller(is_operator=True)


def caller_of(request: Request) -> Caller:
    """Who sends a request, as the gate has found out."""
    caller: Caller = request.state.caller
    return caller
