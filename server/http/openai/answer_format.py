"""What an answer has to be, in OpenAI's words and in vLLM's."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from server.constraint import Constraint, one_of
from server.http.errors import ApiError

MAX_CHOICES = 10_000

_OPEN = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


def _schema(value: object) -> object:
    if not isinstance(value, (dict, bool)):
        raise ValueError("a JSON schema must be an object, true or false.")
    return value


def _schema_or_text(value: object) -> object:
    return value if value is None or isinstance(value, str) else _schema(value)


_FORMS: list[dict[str, Any]] = [{"type": "object"}, {"type": "boolean"}]
Schema = Annotated[
    dict[str, Any] | bool, PlainValidator(_schema), WithJsonSchema({"anyOf": _FORMS})
]
SchemaOrText = Annotated[
    dict[str, Any] | bool | str | None,
    PlainValidator(_schema_or_text),
    WithJsonSchema({"anyOf": [*_FORMS, {"type": "string"}, {"type": "null"}]}),
]

# Of vLLM's structured_outputs: what would change the answer, and is not there.
_NOT_SUPPORTED = {
    "structural_tag": "write it as a grammar",
    "whitespace_pattern": 'put "x-guidance": {"whitespace_pattern": ...} into the schema',
    "disable_any_whitespace": 'put "x-guidance": {"whitespace_flexible": false} into the schema',
    "disable_additional_properties": "put additionalProperties: false into the schema",
}


class JsonSchemaFormat(BaseModel):
    """The JSON schema of an answer."""

    model_config = _OPEN

    name: str | None = Field(None, description="A label of yours, a string. Not used.")
    description: str | None = Field(None, description="For people, a string. Not used.")
    schema_: Schema = Field(
        alias="schema",
        description="A JSON schema, an object. Keywords that cannot be kept to are refused.",
    )
    strict: bool | None = Field(
        None, description="false: keywords that cannot be kept to are passed over. Default true."
    )


class ResponseFormat(BaseModel):
    """What an answer has to be, as OpenAI has it."""

    model_config = _OPEN

    type: Literal["text", "json_object", "json_schema"] = Field(
        description="text: anything; json_object: any JSON object; json_schema: JSON that the "
        "schema in json_schema describes."
    )
    json_schema: JsonSchemaFormat | None = Field(None, description="With type json_schema.")

    def constraints(self) -> list[Constraint]:
        """What is asked for: nothing, or one thing. Raises ApiError 400."""
        name = "response_format"
        if self.type == "text":
            return []
        if self.type == "json_object":
            return [of_schema({"type": "object"}, name)]
        if self.json_schema is None:
            raise ApiError(
                400,
                f"{name}.json_schema is required with type json_schema: an object such as "
                "{name: ..., schema: {...}}.",
                param=f"{name}.json_schema",
                code="missing_required_parameter",
            )
        schema = self.json_schema.schema_
        if self.json_schema.strict is False and isinstance(schema, dict):
            own = schema.get("x-guidance", {})
            if isinstance(own, dict):
                schema = schema | {"x-guidance": {"lenient": True, **own}}
        return [of_schema(schema, name)]

    def ignored(self) -> list[str]:
        """Names of what was sent inside and has no effect."""
        inside = self.json_schema.model_extra if self.json_schema is not None else {}
        names = [f"response_format.{name}" for name in self.model_extra or {}]
        return [*names, *(f"response_format.json_schema.{name}" for name in inside or {})]


class StructuredOutputs(BaseModel):
    """What an answer has to be, as vLLM has it: one of these."""

    model_config = _OPEN

    json_: SchemaOrText = Field(
        None, alias="json", description="JSON that this schema, an object or its text, describes."
    )
    json_object: bool | None = Field(None, description="true: any JSON object.")
    regex: str | None = Field(
        None, description="A text that matches all of this regular expression (Rust's syntax)."
    )
    choice: list[str] | None = Field(
        None, max_length=MAX_CHOICES, description="One of these texts, a list of strings."
    )
    grammar: str | None = Field(
        None, description="A text that this grammar (llguidance's Lark, or GBNF) describes."
    )

    def constraints(self) -> list[Constraint]:
        """What is asked for: nothing, one thing, or several. Raises ApiError 400."""
        name = "structured_outputs"
        for field, value in (self.model_extra or {}).items():
            if field in _NOT_SUPPORTED and value not in (None, False):
                raise ApiError(
                    400,
                    f"{name}.{field} is not supported by this server. Leave it out; "
                    f"{_NOT_SUPPORTED[field]}.",
                    param=f"{name}.{field}",
                    code="unsupported_parameter",
                )
        found = constraints_of(f"{name}.", self.json_, self.regex, self.choice, self.grammar)
        if self.json_object:
            found.append(of_schema({"type": "object"}, f"{name}.json_object"))
        return found

    def ignored(self) -> list[str]:
        """Names of what was sent inside and has no effect."""
        extra = [name for name in self.model_extra or {} if name not in _NOT_SUPPORTED]
        return [f"structured_outputs.{name}" for name in extra]


def constraints_of(
    prefix: str,
    schema: SchemaOrText,
    regex: str | None,
    choice: list[str] | None,
    grammar: str | None,
) -> list[Constraint]:
    """What vLLM's four ways ask for; the ``prefix`` and the way give the field's name. Raises
    ApiError 400."""
    found: list[Constraint] = []
    if schema is not None:
        found.append(of_schema(schema, f"{prefix}json"))
    if regex is not None:
        found.append(Constraint("regex", regex, f"{prefix}regex"))
    if choice is not None:
        found.append(_one_of(choice, f"{prefix}choice"))
    if grammar is not None:
        found.append(Constraint("lark", grammar, f"{prefix}grammar"))
    return found


def of_schema(schema: dict[str, Any] | bool | str, param: str) -> Constraint:
    """JSON that a schema, or a schema's text, describes."""
    source = schema if isinstance(schema, str) else json.dumps(schema)
    return Constraint("json_schema", source, param)


def _one_of(texts: list[str], param: str) -> Constraint:
    try:
        return one_of(texts, param)
    except ValueError as error:
        raise ApiError(
            400, f"{param} cannot be used: {error}.", param=param, code="invalid_value"
        ) from None
