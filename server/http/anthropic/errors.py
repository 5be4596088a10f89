"""Errors in Anthropic's form: ``{"type": "error", "error": {"type", "message"}, "request_id"}``."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse

from server.http.errors import ApiError

# The header that tells a request's id to this API's clients.
ID_HEADER = "request-id"

_OVERLOADED = 529
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    _OVERLOADED: "overloaded_error",
}
# 429 is for what a client has sent too much of. The server's own queue is for all.
_OF_THE_SERVER = "queue_full"
# By these words clients such as Claude Code know that they have to shorten the conversation.
_TOO_LONG = "prompt is too long"


def anthropic_form(error: ApiError, request_id: str | None) -> JSONResponse:
    """An error as this API's clients read it."""
    return JSONResponse(error_body(error, request_id), _status(error), error.headers)


def error_body(error: ApiError, request_id: str | None) -> dict[str, Any]:
    """The JSON of an error. ``details`` has our own code and the field, where there are any."""
    told: dict[str, Any] = {"type": _type(_status(error)), "message": _message(error)}
    named = {"error_code": error.code, "param": error.param}
    details = {name: value for name, value in named.items() if value is not None}
    if details:
        told["details"] = details
    return {"type": "error", "error": told, "request_id": request_id}


def _status(error: ApiError) -> int:
    return _OVERLOADED if error.code == _OF_THE_SERVER else error.status


def _type(status: int) -> str:
    return _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")


def _message(error: ApiError) -> str:
    """What is wrong, with the field: this API's errors have none of their own for that."""
    if error.code == "context_length_exceeded":
        return f"{_TOO_LONG}: {error.message}"
    if error.param is None or error.message.startswith(error.param):
        return error.message
    return f"{error.param}: {error.message}"
