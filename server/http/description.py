"""The request bodies in the OpenAPI description.

The endpoints read their bodies themselves (bounded, off the event loop), so FastAPI does not know
the models of these bodies; here they are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

_REF = "#/components/schemas/{model}"


def body_of(*models: type[BaseModel]) -> dict[str, Any]:
    """``openapi_extra`` for a route whose body is one of the ``models``."""
    schema = _one_of(models)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def stream_of(model: type[BaseModel], error: type[BaseModel] | None = None) -> dict[str, Any]:
    """The content of a 200 response that is a stream of ``model`` events when asked for. ``error``:
    what the last event may be in its place."""
    return {"text/event-stream": {"schema": _one_of([each for each in (model, error) if each])}}


def without_422(schema: dict[str, Any]) -> dict[str, Any]:
    """``schema`` without the 422 that FastAPI gives every route with parameters: ours is a 400."""
    for operations in schema["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(name, None)
    return schema


def _one_of(models: Sequence[type[BaseModel]]) -> dict[str, Any]:
    found = [{"$ref": _REF.format(model=each.__name__)} for each in models]
    return found[0] if len(found) == 1 else {"anyOf": found}


def add_models(schema: dict[str, Any], models: list[type[BaseModel]]) -> dict[str, Any]:
    """``schema`` with the components that ``body_of`` and ``stream_of`` refer to."""
    _, definitions = models_json_schema(
        [(model, "validation") for model in models], ref_template=_REF
    )
    components = schema.setdefault("components", {}).setdefault("schemas", {})
    for name, each in definitions["$defs"].items():
        components.setdefault(name, each)
    return schema
