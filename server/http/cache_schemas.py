"""The shapes of what the cache's endpoints answer, for the OpenAPI description."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from server.http.schemas import MatchEndBody


class _Exact(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Prewarmed(_Exact):
    """What a prewarm has computed and stored."""

    id: str
    object: Literal["cache.prewarm"]
    created: int = Field(description="Seconds since 1970.")
    model: str
    tokens: int = Field(ge=0, description="Tokens of the head, as the template writes it.")
    cached: int = Field(ge=0, description="Of these, those that were stored before.")
    computed: int = Field(ge=0, description="Of these, those that were computed now.")
    retained: int = Field(ge=0, description="Of these, those that are kept for a time.")
    refused: str | None = Field(description="Why not all are that should be, as in usage.")
    retention_id: str | None = Field(description="For DELETE /v1/cache/retained/{id}.")
    match_end: MatchEndBody | None = Field(description="Why no more was stored before.")


class RetainedPrefixBody(_Exact):
    """A prefix that is kept for a time."""

    id: str
    tenant: str | None = Field(description="Whose it is; null: nobody's in particular.")
    salted: bool = Field(description="Whether it is under a cache_salt.")
    tokens: int = Field(ge=0, description="First tokens that are kept, whole blocks.")
    seconds_left: float = Field(ge=0, description="If nobody uses it meanwhile.")
    name: str | None
    session: str | None = Field(description="The session of the request that named it last.")


class RetainedList(_Exact):
    """What is kept."""

    object: Literal["list"]
    data: list[RetainedPrefixBody]


class PublicPrefixBody(_Exact):
    """A prefix that all tenants share."""

    id: str
    tokens: int = Field(ge=1, description="First tokens that are shared, whole blocks.")
    name: str | None


class PublicList(_Exact):
    """What all tenants share."""

    object: Literal["list"]
    data: list[PublicPrefixBody]


class Released(_Exact):
    """How many prefixes were let go."""

    released: int = Field(ge=0)
