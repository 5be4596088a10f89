"""The endpoints that steer the cache: prewarm, retained prefixes, public prefixes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from radix_engine.cache import ALL, Everything
from server.cache_control import CacheControl
from server.errors import RequestRefused
from server.http.body import parse, read_body
from server.http.cache_schemas import (
    Prewarmed,
    PublicList,
    PublicPrefixBody,
    Released,
    RetainedList,
)
from server.http.caller import caller_of
from server.http.description import body_of
from server.http.errors import ApiError, from_refusal
from server.http.generation import respond
from server.http.job import Context
from server.http.noise import CleanHead
from server.http.prewarm import PREWARM, HeadFields, PrewarmRequest
from server.http.schemas import ErrorBody, Freed
from server.http.service import Service

Result = TypeVar("Result")

_REFUSED: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorBody, "description": "A field is wrong."},
    403: {"model": ErrorBody, "description": "It is for operators."},
    404: {"model": ErrorBody, "description": "There is none, or the server cannot keep any."},
    503: {"model": ErrorBody, "description": "The server is shutting down, or its engine is."},
}


class PublicRequest(HeadFields):
    """The body of POST /v1/cache/public."""


CACHE_BODIES = (PrewarmRequest, PublicRequest)
"""The bodies that the API description has to know."""


def cache_routes(service: Service) -> APIRouter:
    """Routes for what may be done with the cache besides filling it."""
    router = APIRouter()
    control = service.engine.cache_control

    @router.post(
        "/v1/cache/prewarm",
        summary="Compute and store what later prompts begin with, and answer nothing",
        openapi_extra=body_of(PrewarmRequest),
        responses={200: {"model": Prewarmed}, **_REFUSED},
    )
    async def prewarm(request: Request) -> Response:
        return await respond(request, service, PREWARM)

    @router.get(
        "/v1/cache/retained",
        summary="The prefixes that are kept for a time: the caller's, for operators all",
        responses={200: {"model": RetainedList}, **_REFUSED},
    )
    async def retained(request: Request) -> Response:
        scope = _scope(request)
        found = await _asked(service, lambda: control.retained(scope))
        return _listed([asdict(each) for each in found])

    @router.delete(
        "/v1/cache/retained",
        summary="Let all of them go",
        responses={200: {"model": Released}, **_REFUSED},
    )
    async def release_all(request: Request) -> Response:
        scope = _scope(request)
        return JSONResponse({"released": await _asked(service, lambda: control.release(scope))})

    @router.delete(
        "/v1/cache/retained/{prefix_id}",
        summary="Let one of them go",
        responses={200: {"model": Released}, **_REFUSED},
    )
    async def release(request: Request, prefix_id: str) -> Response:
        scope = _scope(request)
        released = await _asked(service, lambda: control.release(scope, prefix_id))
        if not released:
            raise _none_of(prefix_id, "/v1/cache/retained")
        return JSONResponse({"released": released})

    @router.post(
        "/v1/cache/public",
        summary="Let all tenants share a prefix (operators)",
        openapi_extra=body_of(PublicRequest),
        responses={200: {"model": PublicPrefixBody}, **_REFUSED},
    )
    async def mark_public(request: Request) -> Response:
        _check_operator(request)
        body = await read_body(request, service.settings.max_body_bytes)
        context = service.context(caller_of(request), request.headers)
        mark = await service.on_text_thread(lambda: _mark(body, context, control), len(body))
        return JSONResponse(asdict(await _asked(service, mark)))

    @router.get(
        "/v1/cache/public",
        summary="The prefixes that all tenants share (operators)",
        responses={200: {"model": PublicList}, **_REFUSED},
    )
    async def public(request: Request) -> Response:
        _check_operator(request)
        return _listed([asdict(each) for each in await _asked(service, control.public)])

    @router.delete(
        "/v1/cache/public/{prefix_id}",
        summary="Share a prefix no longer (operators)",
        responses={200: {"model": Released}, **_REFUSED},
    )
    async def unmark_public(request: Request, prefix_id: str) -> Response:
        _check_operator(request)
        if not await _asked(service, lambda: control.unmark_public(prefix_id)):
            raise _none_of(prefix_id, "/v1/cache/public")
        return JSONResponse({"released": 1})

    @router.post(
        "/reset_prefix_cache",
        summary="Another name for /flush_cache, as vLLM has it",
        responses={200: {"model": Freed}, 503: {"model": ErrorBody}},
    )
    async def reset_prefix_cache() -> Response:
        freed = await service.between_steps(service.engine.flush_cache)
        return JSONResponse({"freed_blocks": freed})

    return router


def _mark(body: bytes, context: Context, control: CacheControl) -> Callable[[], Any]:
    """What marks the prefix that a body names, in the engine. Blocks: tokenises."""
    fields = parse(body, PublicRequest, CleanHead(context.noise).strip)
    fields.check(context.names)
    try:
        ids = fields.head(context).ids
    except RequestRefused as refusal:
        raise from_refusal(refusal, param="prompt") from refusal
    return lambda: control.mark_public(ids, fields.name)


async def _asked(service: Service, work: Callable[[], Result]) -> Result:
    """What the engine says between two steps. Raises ApiError."""
    try:
        return await service.between_steps(work)
    except RequestRefused as refusal:
        raise from_refusal(refusal, param="prompt") from refusal


def _listed(data: list[dict[str, Any]]) -> Response:
    return JSONResponse({"object": "list", "data": data})


def _scope(request: Request) -> str | Everything | None:
    """What a caller may know of."""
    caller = caller_of(request)
    return ALL if caller.is_operator else caller.tenant


def _check_operator(request: Request) -> None:
    if not caller_of(request).is_operator:
        raise ApiError(
            403,
            f"{request.url.path} is for operators: send an operator's key or, where no keys are "
            "given out, the request from the server's own machine.",
            code="operators_only",
        )


def _none_of(prefix_id: str, path: str) -> ApiError:
    return ApiError(
        404,
        f"There is no prefix {prefix_id[:100]!r}, or not any more. GET {path} lists them.",
        param="prefix_id",
        code="unknown_prefix",
    )
