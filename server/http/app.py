"""The HTTP application: routes, limits and what holds for every request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from pydantic import BaseModel
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.http.access import Access
from server.http.anthropic.errors import ID_HEADER
from server.http.anthropic.routes import ANTHROPIC_BODIES, anthropic_routes
from server.http.cache_routes import CACHE_BODIES, cache_routes
from server.http.chat_schemas import ChatCompletion, ChatCompletionChunk
from server.http.client_id import ECHO
from server.http.debug.routes import DEBUG_BODIES, debug_routes
from server.http.description import add_models, body_of, stream_of, without_422
from server.http.engine_like import EngineLike
from server.http.error_forms import error_form
from server.http.errors import install_handlers, unexpected
from server.http.gate import Gate
from server.http.generation import respond
from server.http.health import health_routes
from server.http.near_miss_routes import near_miss_routes
from server.http.noise import NOISE_HEADER
from server.http.openai.chat import CHAT
from server.http.openai.chat_request import ChatRequest
from server.http.openai.completions import COMPLETIONS, CompletionRequest
from server.http.openai.unsupported import NEUTRAL
from server.http.operations import operation_routes
from server.http.schemas import ErrorBody, TextCompletion
from server.http.service import Service
from server.http.settings import MAX_BODY_BYTES, HttpSettings
from server.http.shutdown import Shutdown
from server.http.tokenize import TOKEN_BODIES, token_routes
from server.http.watchdog import watch

logger = logging.getLogger("server.http")

# What pages of other origins may read of an answer, besides its body.
_SHOWN_HEADERS = (
    "X-Request-Id",
    ID_HEADER,
    ECHO,
    "X-Ignored-Fields",
    NOISE_HEADER,
    "Retry-After",
    "WWW-Authenticate",
)


def create_app(
    engine: EngineLike,
    *,
    shutdown: Shutdown | None = None,
    settings: HttpSettings | None = None,
) -> FastAPI:
    """The application for one engine. ``shutdown``: once it has begun, new requests get 503."""
    shutdown, settings = shutdown or Shutdown(), settings or HttpSettings()
    service = Service(engine, shutdown, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(watch(engine, service.readiness))
        yield
        watching.cancel()
        service.close()

    # No pages that load scripts from elsewhere; the description itself is at /openapi.json.
    app = _App(
        title="Radix engine",
        description="An LLM server with a radix-tree prefix cache. It speaks OpenAI's API and "
        "Anthropic's.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    app.include_router(_generation_routes(service))
    app.include_router(anthropic_routes(service))
    app.include_router(operation_routes(service))
    app.include_router(cache_routes(service))
    app.include_router(token_routes(service))
    app.include_router(debug_routes(service))
    app.include_router(near_miss_routes(service))
    app.include_router(health_routes(service))
    install_handlers(app, tuple(app.openapi()["paths"]), error_form)
    access = Access(settings.keys, settings.hosts, settings.cors_origins)
    app.add_middleware(  # the last one is outermost
        Gate,
        access=access,
        form_of=error_form,
        on_refused=service.metrics.requests.refused,
    )
    app.add_middleware(_Guard, shutdown=shutdown)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            allow_private_network=True,
            expose_headers=_SHOWN_HEADERS,
        )
    return app


def _generation_routes(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post(
        "/v1/completions",
        summary="Continue a text or token ids",
        description=_about_fields(CompletionRequest),
        **_documented(CompletionRequest, TextCompletion, TextCompletion),
    )
    async def completions(request: Request) -> Response:
        return await respond(request, service, COMPLETIONS)

    @router.post(
        "/v1/chat/completions",
        summary="Answer a conversation",
        description=_about_fields(ChatRequest),
        **_documented(ChatRequest, ChatCompletion, ChatCompletionChunk),
    )
    async def chat_completions(request: Request) -> Response:
        return await respond(request, service, CHAT)

    return router


def _about_fields(body: type[BaseModel]) -> str:
    refused = ", ".join(name for name in NEUTRAL if name not in body.model_fields)
    return (
        "Fields that nobody here knows, or that are only hints, are ignored and named in the "
        f"X-Ignored-Fields header. Refused by name unless they ask for nothing: {refused}."
    )


def _documented(
    body: type[BaseModel], whole: type[BaseModel], chunk: type[BaseModel]
) -> dict[str, Any]:
    """Route arguments that describe a generating endpoint."""
    errors = {
        400: "A field is wrong, or the prompt does not fit.",
        401: "No key, or one that is not known (--api-key-file).",
        404: "Another model than the served one was asked for.",
        413: f"The body is larger than the limit (by default {MAX_BODY_BYTES} bytes).",
        500: "The server failed on this request.",
        429: "The queue is full (--max-waiting), or the tenant has come to its limit; see "
        "Retry-After.",
        503: "The server is shutting down, or its engine has stopped.",
    }
    return {
        "openapi_extra": body_of(body),
        "responses": {
            200: {"model": whole, "content": stream_of(chunk, ErrorBody)},
            **{
                status: {"model": ErrorBody, "description": text} for status, text in errors.items()
            },
        },
    }


class _App(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """The OpenAPI description, with the models that FastAPI cannot see."""
        models: list[type[BaseModel]] = [CompletionRequest, ChatRequest, ChatCompletionChunk]
        models += [*TOKEN_BODIES, *CACHE_BODIES, *ANTHROPIC_BODIES, *DEBUG_BODIES]
        return add_models(without_422(super().openapi()), models)


class _Guard:
    """Outermost: one failed request is answered, logged, and never takes others along."""

    def __init__(self, app: ASGIApp, shutdown: Shutdown) -> None:
        self._app = app
        self._shutdown = shutdown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def noting_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, noting_send)
        except asyncio.CancelledError:
            # The grace period is over and the client has not taken its answer; not a fault.
            if not self._shutdown.begun:
                raise
        except Exception:
            if scope["type"] != "http":
                raise
            logger.exception("%s %s failed", scope["method"], scope["path"])
            if not started:
                told = error_form(scope["path"])(unexpected(), None)
                await told(scope, receive, send)
