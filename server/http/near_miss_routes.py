"""The near-misses that repeat, for operators and the debug page."""

from __future__ import annotations

import time

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from server.http.schemas import Exact
from server.http.service import Service
from server.near_miss import group_body


class NearMiss(Exact):
    """Prompts of one shape that keep parting from the cache at the same place."""

    id: str
    tenant: str | None = Field(description="Whose prompts; null: nobody's in particular.")
    salted: bool = Field(description="Whether they have a cache_salt.")
    kind: str = Field(description="What differs; docs/near-misses.md lists the kinds.")
    position: int = Field(ge=0, description="The token at which the last of them parted.")
    section: str = Field(description="system, tools, message, template or prompt.")
    message: int | None = Field(description="The message, by its number from 0.")
    role: str | None
    characters: list[int] = Field(
        min_length=2,
        max_length=2,
        description="Where in the section's text what differs begins and ends, in characters.",
    )
    prompt_tokens: int = Field(ge=1, description="Of the last of them.")
    where: str = Field(description="The place in words.")
    mend: str = Field(description="What the client can do about it.")
    here: str = Field(description="What the last of them has there; at most 80 characters.")
    stored: str = Field(description="What the cached prompt has there; likewise.")
    times: int = Field(ge=1, description="How many requests.")
    lost_tokens: int = Field(ge=0, description="Tokens computed again, a request on average.")
    lost_tokens_total: int = Field(ge=0)
    first_s: float = Field(ge=0, description="Seconds since the first of them.")
    last_s: float = Field(ge=0, description="Seconds since the last.")


class NearMissList(Exact):
    """All that are known."""

    object: str
    looked_at: int = Field(ge=0, description="Requests that parted from a cached prompt.")
    dropped: int = Field(ge=0, description="Such requests that were not looked at.")
    data: list[NearMiss] = Field(description="The costliest first.")


def near_miss_routes(service: Service) -> APIRouter:
    """The one route."""
    router = APIRouter()

    @router.get(
        "/debug/near-misses",
        summary="Places at which prompts keep parting from what is cached",
        responses={200: {"model": NearMissList}},
    )
    async def near_misses() -> Response:
        watch, now = service.near_misses, time.monotonic()
        return JSONResponse(
            {
                "object": "list",
                "looked_at": watch.looked_at,
                "dropped": watch.dropped,
                "data": [group_body(each, now) for each in watch.register.told()],
            }
        )

    return router
