"""The endpoints that operate the server rather than generate."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, HTTPException, Response
from fastapi.responses import JSONResponse

from server.http.model_names import ModelNames
from server.http.schemas import (
    Audit,
    ErrorBody,
    Freed,
    ModelCard,
    ModelList,
    ServerInfo,
)
from server.http.server_info import server_info
from server.http.service import Service


def operation_routes(service: Service) -> APIRouter:
    """Routes for models, server info and the cache."""
    router = APIRouter()
    started, started_s = int(time.time()), time.monotonic()

    def card() -> dict[str, Any]:
        return {
            "id": service.engine.info.model,
            "object": "model",
            "created": started,
            "owned_by": "radix-engine",
            "max_model_len": service.engine.info.context_length,
            "min_cacheable_tokens": service.engine.info.min_cacheable_tokens,
        }

    @router.get("/v1/models", summary="The served model", responses={200: {"model": ModelList}})
    async def models() -> Response:
        return JSONResponse({"object": "list", "data": [card()]})

    @router.get(
        "/v1/models/{name:path}",
        summary="The served model, by its name",
        responses={200: {"model": ModelCard}, 404: {"model": ErrorBody}},
    )
    async def model(name: str) -> Response:
        if not name:  # leaving a model out means the served one in a body, not in a path
            raise HTTPException(404)
        ModelNames(service.engine.info.model, service.settings.model_aliases).check(name)
        return JSONResponse(card())

    @router.get(
        "/server_info",
        summary="What is served, with which memory, and the counters so far",
        responses={200: {"model": ServerInfo}},
    )
    async def info() -> Response:
        return JSONResponse(server_info(service, started_s))

    @router.get(
        "/debug/audit",
        summary="Check that every block has exactly one owner",
        responses={200: {"model": Audit}, 503: {"model": ErrorBody}},
    )
    async def audit() -> Response:
        return JSONResponse({"problems": await service.between_steps(service.engine.audit)})

    @router.post(
        "/flush_cache",
        summary="Drop everything cached that no running request uses",
        responses={200: {"model": Freed}, 503: {"model": ErrorBody}},
    )
    async def flush_cache() -> Response:
        freed = await service.between_steps(service.engine.flush_cache)
        return JSONResponse({"freed_blocks": freed})

    return router
