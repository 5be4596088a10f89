"""Whether the process lives, whether it takes requests, and its metrics.

Nothing here makes a request or waits for the engine: all of it answers during a long step, and when
the engine hangs.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from server.http.schemas import Health, Ready
from server.http.service import Service


def health_routes(service: Service) -> APIRouter:
    """Routes for probes and for Prometheus."""
    router = APIRouter()

    @router.get(
        "/health",
        summary="Whether the process lives (200), or has to be started anew (503)",
        responses={200: {"model": Health}, 503: {"model": Health}},
    )
    async def health() -> Response:
        # Not while it ends: its engine's thread is gone then because it was told to go.
        if not service.shutdown.begun and not service.engine.is_alive():
            return JSONResponse({"status": "engine_stopped"}, 503)
        return JSONResponse({"status": "ok"})

    @router.get(
        "/ready",
        summary="Whether requests are taken (200) or not (503), and why not",
        responses={200: {"model": Ready}, 503: {"model": Ready}},
    )
    async def ready() -> Response:
        problem = service.readiness.problem()
        if problem is None:
            return JSONResponse({"status": "ready", "reason": None})
        body = {"status": problem.status, "reason": problem.refusal.message}
        return JSONResponse(body, 503)

    @router.get(
        "/metrics",
        summary="Counts and times for Prometheus",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}, "application/openmetrics-text": {}}}},
    )
    async def metrics(request: Request) -> Response:
        text, content_type = service.metrics.render(request.headers.get("accept", ""))
        return Response(text, headers={"Content-Type": content_type})

    return router
