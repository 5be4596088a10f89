"""The debug page and the API behind it: operators only, but for the page's own files."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from server.debug.tree_query import DEFAULT_LIMIT, MOST_NODES, TreeQuery
from server.debug.tree_text import as_dot, as_text
from server.errors import RequestRefused
from server.http.body import read_body
from server.http.caller import caller_of
from server.http.debug.explain import explained
from server.http.debug.explain_request import ExplainMessages, ExplainRequest
from server.http.debug.feed import Feed
from server.http.debug.life_json import life, summary
from server.http.debug.page import Page
from server.http.debug.schemas import (
    DebugEvent,
    ExplanationBody,
    MemoryCurve,
    RequestLife,
    RequestList,
    TreeBody,
)
from server.http.debug.writing import written
from server.http.description import body_of, stream_of
from server.http.errors import ApiError, from_refusal
from server.http.schemas import ErrorBody
from server.http.service import Service
from server.http.sse import EventStream

Result = TypeVar("Result")

DEBUG_BODIES = (ExplainRequest, ExplainMessages, DebugEvent)
"""The bodies that the API description has to know."""

_REFUSED: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorBody, "description": "A field is wrong."},
    403: {"model": ErrorBody, "description": "It is for operators."},
    404: {"model": ErrorBody, "description": "There is none, or the server has no tree."},
    429: {"model": ErrorBody, "description": "Too many pages are open."},
    503: {"model": ErrorBody, "description": "The server is shutting down, or its engine is."},
}


def debug_routes(service: Service) -> APIRouter:
    """Routes for looking into the engine."""
    router = APIRouter()
    page, feed = Page(), Feed(service)
    inspector, register = service.engine.inspector, service.register

    @router.get("/debug", summary="The debug page, for a browser", response_class=Response)
    async def index(request: Request) -> Response:
        return page.response("index.html", request)

    @router.get(
        "/debug/static/{name}",
        summary="The debug page's files",
        response_class=Response,
        responses={404: {"model": ErrorBody, "description": "There is none of this name."}},
    )
    async def static(name: str, request: Request) -> Response:
        return page.response(name, request)

    @router.get(
        "/debug/tree",
        summary="The cached prefixes in outline: the most recently used, the largest and those "
        "evicted next",
        responses={
            200: {"model": TreeBody, "content": {"text/plain": {}, "text/vnd.graphviz": {}}},
            **_REFUSED,
        },
    )
    async def tree(
        limit: Annotated[int, Query(ge=1, le=MOST_NODES)] = DEFAULT_LIMIT,
        depth: Annotated[int | None, Query(ge=1)] = None,
        namespace: Annotated[
            str | None, Query(description="Only this tenant's; empty: of nobody in particular.")
        ] = None,
        text: bool = True,
        root: Annotated[
            str | None,
            Query(min_length=1, description="Only from the node of this id on, and what is above."),
        ] = None,
        format: Literal["json", "text", "dot"] = "json",
    ) -> Response:
        query = TreeQuery(limit, depth, namespace, text, root)
        return await _asked(service, lambda: _tree(service, query, format), looks=True)

    @router.get(
        "/debug/events",
        summary="An update about every second: the tree and its changes, blocks, requests, log",
        responses={200: {"content": stream_of(DebugEvent)}, **_REFUSED},
    )
    async def events(request: Request) -> Response:
        service.check_open()
        listener = feed.listen(request.receive)
        return EventStream(feed.updates(listener), functools.partial(feed.leave, listener), {})

    @router.post(
        "/debug/explain",
        summary="Why no more of a prompt is cached, and what to do about it",
        openapi_extra=body_of(ExplainRequest, ExplainMessages),
        responses={200: {"model": ExplanationBody}, **_REFUSED},
    )
    async def explain(request: Request) -> Response:
        body = await read_body(request, service.settings.max_body_bytes)
        context = service.context(caller_of(request), request.headers)
        work = functools.partial(explained, body, context, register)
        return JSONResponse(await _asked(service, work, blocks=True))

    @router.get(
        "/debug/requests",
        summary="Recent requests for answers, the last one first",
        responses={200: {"model": RequestList}, **_REFUSED},
    )
    async def requests(limit: Annotated[int, Query(ge=1, le=1024)] = 100) -> Response:
        recent = [entry for entry, _ in zip(register, range(limit), strict=False)]
        data = [summary(each, inspector.to_unix_s) for each in recent]
        return JSONResponse({"object": "list", "data": data})

    @router.get(
        "/debug/requests/{request_id}",
        summary="All that has happened to a recent request",
        responses={200: {"model": RequestLife}, **_REFUSED},
    )
    async def request_life(request_id: str) -> Response:
        entry = register.get(request_id)
        if entry is None:
            raise ApiError(
                404,
                f"Request {request_id[:80]!r} is not among the recent ones. GET /debug/requests "
                "lists them.",
                code="unknown_request",
            )
        ids = entry.engine_ids
        found = await _asked(service, lambda: [inspector.life(each) for each in ids])
        return JSONResponse(life(entry, found, inspector.to_unix_s))

    @router.get(
        "/debug/memory-curve",
        summary="What LRU would have hit with less memory or more",
        responses={200: {"model": MemoryCurve}, **_REFUSED},
    )
    async def memory_curve() -> Response:
        return JSONResponse(_curve(service))

    return router


def _tree(service: Service, query: TreeQuery, form: str) -> Response:
    """Blocks for some steps, and then writes."""
    nodes = service.engine.inspector.tree(query)
    if form == "text":
        return PlainTextResponse(as_text(nodes))
    if form == "dot":
        return Response(as_dot(nodes), media_type="text/vnd.graphviz; charset=utf-8")
    info = service.engine.info
    body = {
        "at": round(time.time(), 3),
        "block_size": info.block_size,
        "num_blocks": info.num_blocks,
        "limit": query.limit,
        "state": service.engine.state(),
        "nodes": nodes,
    }
    return Response(written(body), media_type="application/json")


def _curve(service: Service) -> dict[str, Any]:
    info, readings = service.engine.info, service.engine.readings()
    prompts = readings.counters.get("prompt_tokens", 0)
    cached = readings.counters.get("cached_tokens", 0)
    return {
        "points": [
            {
                "multiple": size,
                "blocks": int(size * info.num_blocks),
                "bytes": int(size * info.num_blocks) * info.block_size * info.kv_bytes_per_token,
                "hit_rate": share,
            }
            for size, share in readings.hit_rate_curve.items()
        ],
        "hit_rate": cached / prompts if prompts else None,
        "prompt_tokens": prompts,
    }


async def _asked(
    service: Service, work: Callable[[], Result], *, blocks: bool = False, looks: bool = False
) -> Result:
    """What the engine says between two steps; with ``blocks`` the work tokenises, too; with
    ``looks`` it waits for many steps. Raises ApiError."""
    try:
        if blocks:
            service.check_open()
            return await service.on_text_thread(work)
        return await (service.over_steps if looks else service.between_steps)(work)
    except RequestRefused as refusal:
        raise from_refusal(refusal, param="prompt") from refusal
