"""How many requests may wait."""

from __future__ import annotations

from dataclasses import dataclass

from server.errors import RequestRefused


@dataclass(frozen=True, slots=True)
class QueueState:
    """The requests that have not started: ``waiting`` of all, ``of_tenant`` of one tenant.

    ``places``: so many of them start with the next step; 0 while the last step left any behind.
    """

    waiting: int
    of_tenant: int
    places: int


def refuse_if_full(state: QueueState, most: int | None, new: int = 1, coming: int = 0) -> None:
    """Raise RequestRefused 429 where ``new`` requests more would be too many for a queue of
    ``most`` (None: any number). ``coming``: others on their way to the queue, which count too."""
    waiting = state.waiting + coming
    if most is not None and waiting + new > most + state.places:
        raise RequestRefused(
            f"the queue is full ({waiting} waiting, limit {most}); try again later, or start "
            "the server with a larger --max-waiting",
            code="queue_full",
            status=429,
        )


def refuse_if_too_many(prompts: int, most: int | None, limit: str) -> None:
    """Raise RequestRefused 400 where so many prompts in one request could never be taken, however
    little there is to do: ``most`` are. ``limit`` names that."""
    if most is not None and prompts > most:
        raise RequestRefused(
            f"the request has {prompts} prompts, more than {limit} lets in at a time ({most}); "
            "send the rest in further requests",
            param="prompt",
            code="too_many_prompts",
        )
