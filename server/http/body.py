"""From the bytes of a request to a checked request model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from server.http.errors import ApiError
from server.http.json_values import MAX_VALUES, TooManyValues, read_json

_SHOWN_CHARACTERS = 60

Model = TypeVar("Model", bound=BaseModel)


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body, at most ``limit`` bytes. Raises ApiError 413, or ClientDisconnect.

    A body announced as too long is refused before it is read.
    """
    announced = request.headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and int(announced) > limit:
        raise _too_large(limit)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise _too_large(limit)
    return bytes(body)


def parse(
    body: bytes,
    model: type[Model],
    before: Callable[[dict[str, Any]], None] | None = None,
    *,
    arrays: bool = False,
) -> Model:
    """The body as ``model``. Raises ApiError 400 that names the field. Blocks; any thread.
    ``before`` may change the parsed JSON object, of which nothing is checked yet. ``arrays``: as
    `read_object`.
    """
    data = read_object(body, arrays=arrays)
    if before is not None:
        before(data)
    return checked(data, model)


def read_object(body: bytes, *, arrays: bool = False) -> dict[str, Any]:
    """The body's JSON object, of which nothing is checked. Raises ApiError 400. Blocks; any thread.

    Strict JSON in UTF-8: NaN, Infinity, lone surrogates and nesting beyond 200 levels are refused.
    ``arrays``: token ids of a long body come as arrays, see `read_json`; else as lists.
    """
    try:
        data = read_json(body, arrays=arrays)
    except TooManyValues:
        raise ApiError(
            400,
            f"The body has more than {MAX_VALUES} JSON values besides the token ids of a prompt. "
            "Send fewer of them, or in several requests.",
            code="too_many_values",
        ) from None
    except ValueError as error:
        raise ApiError(
            400,
            f"The body is not valid JSON: {error}. Send one JSON object in UTF-8 "
            "(NaN and Infinity are not JSON).",
            code="invalid_json",
        ) from None
    if not isinstance(data, dict):
        raise ApiError(
            400,
            f"The body must be a JSON object, not {_kind(data)}.",
            code="invalid_type",
        )
    return data


def checked(data: dict[str, Any], model: type[Model]) -> Model:
    """A JSON object as ``model``. Raises ApiError 400 that names the field."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _invalid(error.errors(include_url=False)[0], model) from None


def _too_large(limit: int) -> ApiError:
    return ApiError(
        413,
        f"The body is larger than the limit of {limit} bytes. Send a shorter prompt, or fewer "
        "prompts in one request; or start the server with a larger --max-body-size.",
        code="body_too_large",
    )


def _invalid(problem: ErrorDetails, model: type[BaseModel]) -> ApiError:
    """The first problem that pydantic found, in words that name field, limit and remedy."""
    path = problem["loc"]
    name = _path(path)
    kind = problem["type"]
    inside = any(isinstance(part, int) for part in path)
    if kind == "missing":
        message, code = f"{name} is required.", "missing_required_parameter"
    elif kind == "value_error":
        # Our own validators know the exact place inside the field and say it themselves.
        message, code = str(problem["ctx"]["error"]), "invalid_value"
        if inside and not message.startswith(name):
            message = f"{name}: {message}"
    elif kind in ("too_short", "too_long"):
        rule = problem["msg"].partition(" ")[2].replace(" after validation", "")
        message, code = f"{name} {rule}.", "invalid_value"
    else:
        shown = _shown(problem["input"])
        rule = problem["msg"].removeprefix("Input ").removeprefix("String ")
        message, code = f"{name} {rule}, but {shown} was sent.", "invalid_value"
        if kind.endswith("_type"):
            code = "invalid_type"
    field = model.model_fields.get(str(path[0])) if path else None
    # Of a part of a list's item it would say what the list is, which was not the problem.
    is_of_item = inside and (kind == "value_error" or isinstance(path[-1], str))
    if field is not None and field.description and not is_of_item:
        message += f" Expected: {field.description}"
    return ApiError(400, message, param=name or None, code=code)


def _path(location: tuple[int | str, ...]) -> str:
    """``("messages", 0, "role")`` as ``messages[0].role``."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _kind(value: object) -> str:
    """A JSON value's type, in JSON's words."""
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string"}
    return names.get(type(value), "an array" if isinstance(value, list) else "an object")


def _shown(value: object) -> str:
    """A value for a message: short ones as they are, long ones by their type."""
    if isinstance(value, (list, dict)):
        return _kind(value)
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
