"""Errors in OpenAI's form: ``{"error": {"message", "type", "param", "code"}}``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from server.errors import RequestRefused

_SHOWN = 100  # characters of a path, in a message
# How alike a path has to be to one that exists, to be taken for it: more than another API's
# /v1/responses is to /v1/messages (0.72).
_ALIKE = 0.75


class ApiError(Exception):
    """An answer other than 200.

    ``status`` is the HTTP status, ``message`` says what is wrong and what to do, ``param`` names
    the field, ``code`` is a stable word for programs.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def untraced(self) -> ApiError:
        """The same without a traceback, whose frames hold the request's body: for keeping."""
        return ApiError(
            self.status, self.message, param=self.param, code=self.code, headers=self.headers
        )

    def body(self) -> dict[str, Any]:
        """The JSON body that clients read."""
        return {
            "error": {
                "message": self.message,
                "type": _type_of(self.status),
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self, headers: Mapping[str, str] | None = None) -> JSONResponse:
        """The whole HTTP response, with ``headers`` added."""
        return JSONResponse(self.body(), self.status, {**self.headers, **(headers or {})})


# An API's way to tell an error, and the id of its request, where that has one.
ErrorForm = Callable[[ApiError, str | None], Response]


def openai_form(error: ApiError, request_id: str | None) -> Response:
    """An error in OpenAI's form, which does not tell the id."""
    return error.response()


def _type_of(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"


def from_refusal(refusal: RequestRefused, *, param: str | None, where: str = "") -> ApiError:
    """The HTTP error for what the engine refused.

    ``param`` replaces the engine's word "prompt" by the endpoint's own field; ``where`` names the
    prompt, when a request has several.
    """
    name = param if refusal.param == "prompt" else refusal.param
    message = f"{where}: {refusal.message}" if where else refusal.message
    headers = {"Retry-After": "1"} if refusal.status in (429, 503) else {}
    return ApiError(refusal.status, message, param=name, code=refusal.code, headers=headers)


def shutting_down() -> ApiError:
    """The refusal of new work while the server ends."""
    return ApiError(
        503,
        "The server is shutting down and takes no new requests. Send the request to another "
        "server, or again once this one is back.",
        code="server_shutting_down",
        headers={"Connection": "close", "Retry-After": "1"},
    )


def engine_stopped() -> ApiError:
    """The refusal of work that needs the engine after the engine's thread has died."""
    return ApiError(
        503,
        "The engine has stopped and cannot answer. Restart the server; its log says why.",
        code="engine_stopped",
        headers={"Retry-After": "10"},
    )


def engine_wedged(stalled_s: float, limit_s: float) -> ApiError:
    """The refusal of work while the engine does not get on."""
    return ApiError(
        503,
        f"The engine has not ended a step for {stalled_s:.0f} s; the limit is {limit_s:g} s "
        "(--wedged-after). Send the request to another server, or again later: it is taken as soon "
        "as the engine gets on. The server's log says where it hangs.",
        code="engine_wedged",
        headers={"Retry-After": "10"},
    )


def engine_lost() -> ApiError:
    """What those hear whose answers an engine owes that hangs when the server ends."""
    return ApiError(
        503,
        "The server is shutting down, and its engine hangs: the rest of the answer is lost. Send "
        "the request to another server.",
        code="server_shutting_down",
    )


def unexpected() -> ApiError:
    """What a client sees of a fault of ours. The details are in the log."""
    return ApiError(
        500,
        "The server failed on this request; others are not affected. Its log has the details.",
        code="internal_error",
    )


def install_handlers(
    app: FastAPI, paths: Collection[str], form_of: Callable[[str], ErrorForm]
) -> None:
    """Make the app answer unknown paths, wrong methods and ApiError in the form that the path has.

    ``paths``: those that exist, one of which the client of another may have meant.
    """

    async def api_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        return form_of(request.url.path)(error, None)

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path, method = request.url.path, request.method
        headers = dict(error.headers or {})
        if error.status_code == 404:
            message, code = _no_path(path, paths), "unknown_path"
        elif error.status_code == 405:
            allowed = headers.get("Allow", "another method")
            message, code = f"{path} does not take {method}. Use {allowed}.", "method_not_allowed"
        else:
            message, code = str(error.detail), "http_error"
        told = ApiError(error.status_code, message, code=code, headers=headers)
        return form_of(path)(told, None)

    async def query_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        problem = error.errors()[0]
        name, rule = str(problem["loc"][-1]), str(problem["msg"]).removeprefix("Input ")
        rule = rule.partition(", unable")[0]
        message = f"{name} {rule}, but {str(problem['input'])[:60]!r} was sent."
        told = ApiError(400, message, param=name, code="invalid_value")
        return form_of(request.url.path)(told, None)

    app.add_exception_handler(ApiError, api_error)
    app.add_exception_handler(RequestValidationError, query_error)
    app.add_exception_handler(HTTPException, http_error)


def _no_path(path: str, paths: Collection[str]) -> str:
    near = get_close_matches(path[:_SHOWN], paths, n=1, cutoff=_ALIKE)
    if path == "/":  # of somebody with a browser
        near = ["/debug"]
    meant = f" Did you mean {near[0]}?" if near else ""
    return f"There is no {path[:_SHOWN]} here.{meant} GET /openapi.json lists all that there is."
