"""Values that a model writes as plain text, as JSON of the type that a tool's schema wants."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_MAX_REFERENCES = 20
_KINDS: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
    type(None): "null",
}


def parameters_of(definitions: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The schema of what each tool takes, by the tool's name."""
    schemas = {}
    for definition in definitions:
        function = definition.get("function", definition)
        name, schema = function.get("name"), function.get("parameters")
        if isinstance(name, str) and isinstance(schema, dict):
            schemas[name] = schema
    return schemas


def types_of(schema: Any, whole: Mapping[str, Any], depth: int = 0) -> frozenset[str]:
    """The JSON types that a value may have; ``whole`` is the schema that holds its references. None
    at all where the schema does not say."""
    if not isinstance(schema, Mapping) or depth > _MAX_REFERENCES:
        return frozenset()
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return types_of(_referred(reference, whole), whole, depth + 1)
    declared = schema.get("type")
    types = {declared} if isinstance(declared, str) else set()
    if isinstance(declared, list):
        types.update(each for each in declared if isinstance(each, str))
    for name in ("anyOf", "oneOf", "allOf"):
        choices = schema.get(name)
        for choice in choices if isinstance(choices, list) else ():
            types |= types_of(choice, whole, depth + 1)
    if not types:
        values = schema.get("enum")
        listed = (
            values if isinstance(values, list) else [schema["const"]] if "const" in schema else []
        )
        types = {_KINDS[type(value)] for value in listed if type(value) in _KINDS}
        types |= {"object"} if "properties" in schema else set()
        types |= {"array"} if "items" in schema else set()
    return frozenset(types | ({"null"} if schema.get("nullable") is True else set()))


def to_json(text: str, types: frozenset[str]) -> str:
    """JSON of a value's text. A text that is of none of the types is a string; so is any other,
    where one may stand there."""
    value = text.strip()
    if "null" in types and value in ("null", "None"):
        return "null"
    if "string" not in types:
        for kind in sorted(types):
            found = _READERS[kind](value) if kind in _READERS else None
            if found is not None:
                return found
    return json.dumps(text, ensure_ascii=False)


def _referred(reference: str, whole: Mapping[str, Any]) -> Any:
    """What a reference inside of the schema stands for."""
    place: Any = whole
    for part in reference.removeprefix("#").strip("/").split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        place = place.get(name) if isinstance(place, Mapping) else None
    return place


def _boolean(value: str) -> str | None:
    return value.lower() if value in ("true", "false", "True", "False") else None


def _number(value: str) -> str | None:
    return value if _NUMBER.fullmatch(value) else None


def _parsed(kind: type) -> Callable[[str], str | None]:
    def read(value: str) -> str | None:
        try:
            return value if isinstance(json.loads(value, parse_constant=_refuse), kind) else None
        except (ValueError, RecursionError):
            return None

    return read


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


_READERS: dict[str, Callable[[str], str | None]] = {
    "boolean": _boolean,
    "integer": _number,
    "number": _number,
    "object": _parsed(dict),
    "array": _parsed(list),
}
