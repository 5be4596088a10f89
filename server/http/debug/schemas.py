"""The shapes of the debug API's answers, for the OpenAPI description."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from server.http.schemas import Exact, MatchEndBody


class NamespaceBody(Exact):
    """Whose prefixes these are. The salt itself is not shown."""

    tenant: str | None
    salted: bool
    adapter: str | None
    weights: int


class FoldBody(Exact):
    """Children that are not shown, with all below them."""

    nodes: int = Field(description="Children, without what is below them.")
    tokens: int
    blocks: int
    hits: int
    at_least: bool = Field(description="Not all was looked at: there is more than these totals.")


class TreeNode(Exact):
    """One node."""

    id: str = Field(description="Stays from one answer to the next, unless it is cut further up.")
    parent: str | None
    namespace: NamespaceBody | None = Field(description="Set where one begins.")
    start: int = Field(description="Tokens before it, from the root.")
    tokens: int = Field(description="On its edge.")
    ghost_tokens: int = Field(description="The last of these were evicted and are remembered.")
    blocks: int
    in_flight_blocks: int = Field(description="Of these, blocks that a step is computing.")
    locks: int = Field(description="Leases that keep it from being evicted.")
    hits: int = Field(description="Requests that it has served.")
    used_at: float | None = Field(description="Seconds since 1970; null: in use now.")
    retained: int = Field(description="Retentions that cover it.")
    retained_until: float | None = Field(description="Of those that end here; null: none, or ever.")
    victim: int | None = Field(description="Its place among those evicted next, from 1 to 32.")
    children: int = Field(description="All of them, shown or not.")
    folded: FoldBody | None
    text: str | None = Field(description="The beginning of its text, at most 80 characters.")


class TreeBody(Exact):
    """The tree in outline, parents first."""

    at: float = Field(description="Seconds since 1970.")
    block_size: int
    num_blocks: int
    limit: int
    state: dict[str, int] = Field(description="Requests and blocks by state.")
    nodes: list[TreeNode]


class SegmentBody(Exact):
    """Consecutive tokens of a prompt in one state."""

    start: int
    end: int
    state: Literal["cached", "in_flight", "evicted", "new"]
    head: str = Field(description="How its text begins.")
    tail: str = Field(description="How its text ends; empty where head is all of it.")


class PartingBody(Exact):
    """Where the prompt leaves the nearest stored branch of its namespace."""

    position: int
    section: str | None = Field(description="Which part of the prompt that is in.")
    before: str = Field(description="What both have right before it.")
    prompt: str = Field(description="How the prompt goes on.")
    stored: str = Field(description="How the stored branch goes on.")


class AtStart(Exact):
    """How it was when the request started."""

    cached_tokens: int
    match_end: MatchEndBody | None


class ExplanationBody(Exact):
    """Why a prompt is served as it is."""

    prompt_tokens: int
    cached_tokens: int = Field(description="What a request for it would be served now.")
    match_end: MatchEndBody
    namespace: NamespaceBody
    section: str | None = Field(description="Which part of the prompt the match ends in.")
    reason: str = Field(description="In a sentence; with request_id, as it was at its start.")
    advice: str = Field(description="What to do about it.")
    segments: list[SegmentBody]
    parting: PartingBody | None
    at_start: AtStart | None = Field(description="With request_id.")


class RequestSummary(Exact):
    """A recent request. Times in milliseconds since it came."""

    id: str
    client_request_id: str | None
    endpoint: str
    tenant: str | None
    state: Literal["open", "ended"]
    status: int | None
    outcome: str | None
    error: str | None
    started_at: float = Field(description="Seconds since 1970.")
    queue_ms: float | None
    ttft_ms: float | None
    total_ms: float | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    match_end: MatchEndBody | None
    finish_reasons: list[str]


class RequestList(Exact):
    """Recent requests, the last one first."""

    object: Literal["list"]
    data: list[RequestSummary]


class RequestLife(RequestSummary):
    """All that has happened to it."""

    session: str | None
    events: list[dict[str, Any]] = Field(
        description="arrived, queued, matched, chunk, preempted, first_token, ended: each with "
        "at_ms, and prompt where the request may have several."
    )


class CurvePoint(Exact):
    """What LRU would have hit with this much memory."""

    multiple: float = Field(description="Of the memory there is.")
    blocks: int
    bytes: int
    hit_rate: float = Field(ge=0, le=1)


class MemoryCurve(Exact):
    """Hit rate against memory."""

    points: list[CurvePoint]
    hit_rate: float | None = Field(description="What was hit; null: no prompts yet.")
    prompt_tokens: int


class DebugEvent(Exact):
    """One update of GET /debug/events."""

    at: float
    number: int
    problem: str | None
    tree: dict[str, Any] = Field(description="full, nodes (all, or the changed ones), gone.")
    state: dict[str, int]
    counters: dict[str, int]
    match_ends: dict[str, int]
    missed_tokens: dict[str, int]
    steps: dict[str, Any]
    active: list[dict[str, Any]]
    log: list[dict[str, Any]]
    curve: dict[str, float]
