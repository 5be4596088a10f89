"""The endpoints that operate the server rather than generate."""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from server.http.engine_like import EngineLike
from server.http.errors import ApiError
from server.http.schemas import ErrorBody, Freed, Health, ModelCard, ModelList, ServerInfo, Tree
from server.http.service import Service


def operation_routes(service: Service) -> APIRouter:
    """Routes for models, health, server info, the tree and the cache."""
    router = APIRouter()
    started = int(time.time())

    def card() -> dict[str, Any]:
        return {
            "id": service.engine.info.model,
            "object": "model",
            "created": started,
            "owned_by": "radix-engine",
            "max_model_len": service.engine.info.context_length,
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
        served = service.engine.info.model
        if name != served:
            message = f"This server serves {served!r}, not {name[:200]!r}."
            raise ApiError(404, message, param="model", code="model_not_found")
        return JSONResponse(card())

    @router.get(
        "/health",
        summary="Whether the server takes requests (200) or not (503)",
        responses={200: {"model": Health}, 503: {"model": Health}},
    )
    async def health() -> Response:
        # Asks for no request and no step, so a long prefill is not taken for a failure.
        if service.shutdown.begun:
            return JSONResponse({"status": "shutting_down"}, 503)
        if not service.engine.is_alive():
            return JSONResponse({"status": "engine_stopped"}, 503)
        return JSONResponse({"status": "ok"})

    @router.get(
        "/server_info",
        summary="What is served, with which memory, and the counters so far",
        responses={200: {"model": ServerInfo}},
    )
    async def server_info() -> Response:
        return JSONResponse(await service.on_text_thread(lambda: _server_info(service.engine)))

    @router.get(
        "/debug/tree",
        summary="The radix tree as JSON",
        responses={200: {"model": Tree}, 503: {"model": ErrorBody}},
    )
    async def tree() -> Response:
        body = await service.between_steps(lambda: json.dumps(service.engine.tree()))
        return Response(body, media_type="application/json")

    @router.post(
        "/flush_cache",
        summary="Drop everything cached that no running request uses",
        responses={200: {"model": Freed}, 503: {"model": ErrorBody}},
    )
    async def flush_cache() -> Response:
        freed = await service.between_steps(service.engine.flush_cache)
        return JSONResponse({"freed_blocks": freed})

    return router


def _server_info(engine: EngineLike) -> dict[str, Any]:
    info = engine.info
    return {
        "model": info.model,
        "kv": {
            "blocks": info.num_blocks,
            "block_size": info.block_size,
            "tokens": info.kv_tokens,
            "bytes_per_token": info.kv_bytes_per_token,
            "dtype": info.kv_dtype,
        },
        "context_length": info.context_length,
        "weights": info.weights,
        "kernels": info.kernels,
        "exact": info.exact,
        "prefix_cache": info.prefix_cache,
        "scheduling": {"order": info.order, "fair": info.fair, **asdict(info.limits)},
        "counters": engine.counters(),
        "state": engine.state(),
        "memory": {"peak_rss_bytes": _peak_rss_bytes()},
    }


def _peak_rss_bytes() -> int:
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
