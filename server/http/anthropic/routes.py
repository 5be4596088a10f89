"""The routes of Anthropic's API."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from server.http.anthropic.count_tokens import COUNT_TOKENS
from server.http.anthropic.messages import MESSAGES
from server.http.anthropic.request import CountRequest, MessagesRequest
from server.http.anthropic.schemas import Message, MessageEvent, MessagesError, TokensCount
from server.http.description import body_of, stream_of
from server.http.generation import respond
from server.http.service import Service

# Bodies and events, for the OpenAPI description.
ANTHROPIC_BODIES: tuple[type[BaseModel], ...] = (MessagesRequest, CountRequest, MessageEvent)

_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": MessagesError, "description": text}
    for status, text in {
        400: "A field is wrong, or the prompt does not fit.",
        401: "No key, or one that is not known (--api-key-file).",
        404: "Another model than the served one was asked for; see --model-alias.",
        413: "The body is larger than the limit (--max-body-size).",
        429: "The tenant has come to its limit; see Retry-After.",
        500: "The server failed on this request.",
        503: "The server is shutting down, or its engine has stopped.",
        529: "The queue is full (--max-waiting); see Retry-After.",
    }.items()
}


def anthropic_routes(service: Service) -> APIRouter:
    """Routes for messages, and for the count of their tokens."""
    router = APIRouter()

    @router.post(
        "/v1/messages",
        summary="Answer a conversation, in Anthropic's API",
        description="Fields that nobody here knows, or that have no effect, are ignored and named "
        "in the X-Ignored-Fields header.",
        openapi_extra=body_of(MessagesRequest),
        responses={200: {"model": Message, "content": stream_of(MessageEvent)}, **_ERRORS},
    )
    async def messages(request: Request) -> Response:
        return await respond(request, service, MESSAGES)

    @router.post(
        "/v1/messages/count_tokens",
        summary="How many tokens a conversation is",
        openapi_extra=body_of(CountRequest),
        responses={200: {"model": TokensCount}, **_ERRORS},
    )
    async def count_tokens(request: Request) -> Response:
        return await respond(request, service, COUNT_TOKENS)

    return router
