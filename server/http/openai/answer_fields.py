"""The request fields that tell what an answer has to be, and where it may end."""

from __future__ import annotations

from typing import Annotated, TypedDict

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from server.constraint import Constraint
from server.http.errors import ApiError
from server.http.openai.answer_format import (
    MAX_CHOICES,
    ResponseFormat,
    SchemaOrText,
    StructuredOutputs,
    constraints_of,
)

MAX_STOP_TOKENS = 128

# That it is no negative number is told with the field's own words.
TokenId = Annotated[int, WithJsonSchema({"type": "integer", "minimum": 0})]


class AnswerParams(TypedDict):
    """The fields of GenerationParams that come from here."""

    constraint: Constraint | None
    min_tokens: int
    stop_token_ids: tuple[int, ...]
    include_stop: bool


class AnswerFields(BaseModel):
    """The fields of a body."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    response_format: ResponseFormat | None = Field(
        None,
        description="What the answer has to be: {type: text}, {type: json_object}, or {type: "
        "json_schema, json_schema: {name, schema}}. Default: text.",
    )
    structured_outputs: StructuredOutputs | None = Field(
        None,
        description="What the answer has to be, as vLLM has it: an object with one of json, regex, "
        "choice, grammar and json_object.",
    )
    guided_json: SchemaOrText = Field(
        None, description="An older name for structured_outputs.json."
    )
    guided_regex: str | None = Field(
        None, description="An older name for structured_outputs.regex."
    )
    guided_choice: list[str] | None = Field(
        None,
        max_length=MAX_CHOICES,
        description="An older name for structured_outputs.choice.",
    )
    guided_grammar: str | None = Field(
        None, description="An older name for structured_outputs.grammar."
    )
    min_tokens: int | None = Field(
        None,
        ge=0,
        description="So many tokens come before one that ends the answer by itself or by a stop "
        "string, a whole number from 0 to max_tokens; default 0.",
    )
    stop_token_ids: list[TokenId] | None = Field(
        None,
        max_length=MAX_STOP_TOKENS,
        description="Tokens that end the answer besides the model's own, a list of at most "
        f"{MAX_STOP_TOKENS} token ids.",
    )
    include_stop_str_in_output: bool | None = Field(
        None,
        description="true: the stop string that ends the answer, or the text of the token in "
        "stop_token_ids, is part of its text. Default false.",
    )

    def constraint(self) -> Constraint | None:
        """What the answer has to be. Raises ApiError 400 where that is told twice, or not well."""
        found: list[Constraint] = []
        for way in (self.response_format, self.structured_outputs):
            found += [] if way is None else way.constraints()
        found += constraints_of(
            "guided_", self.guided_json, self.guided_regex, self.guided_choice, self.guided_grammar
        )
        if len(found) > 1:
            raise ApiError(
                400,
                f"{found[0].param} and {found[1].param} both tell what the answer has to be. Send "
                "only one of them.",
                param=found[1].param,
                code="invalid_value",
            )
        return found[0] if found else None

    def answer_params(self, max_tokens: int, *, ignore_eos: bool | None) -> AnswerParams:
        """The fields' sense, for an answer of at most so many tokens. Raises ApiError 400."""
        least = self.min_tokens or 0
        if least > max_tokens:
            raise ApiError(
                400,
                f"min_tokens is {least}, but max_tokens is {max_tokens}. Send a smaller min_tokens "
                "or a larger max_tokens.",
                param="min_tokens",
                code="invalid_value",
            )
        ids = self.stop_token_ids or []
        if any(token < 0 for token in ids):
            raise ApiError(
                400,
                "stop_token_ids has a number below 0; token ids are whole numbers from 0.",
                param="stop_token_ids",
                code="invalid_value",
            )
        constraint = self.constraint()
        if constraint is not None and ignore_eos:
            raise ApiError(
                400,
                f"ignore_eos does not go with {constraint.param}, which tells where the answer "
                "ends. Leave ignore_eos out; min_tokens makes an answer longer.",
                param="ignore_eos",
                code="unsupported_parameter",
            )
        return {
            "constraint": constraint,
            "min_tokens": least,
            "stop_token_ids": tuple(ids),
            "include_stop": bool(self.include_stop_str_in_output),
        }

    def ignored_inside(self) -> list[str]:
        """Names of what was sent inside of these fields and has no effect."""
        ways = (self.response_format, self.structured_outputs)
        return [name for way in ways if way is not None for name in way.ignored()]
