"""The request fields that both endpoints share, with their ranges."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from radix_engine.model.sampling_params import (
    MAX_LOGIT_BIAS,
    MAX_PENALTY,
    MAX_REPETITION_PENALTY,
    MIN_REPETITION_PENALTY,
    SamplingParams,
)
from server.generation_params import MAX_ANSWERS, MAX_PRIORITY
from server.http.cache_fields import CacheFields
from server.http.model_names import ModelNames
from server.http.openai.answer_fields import AnswerFields
from server.http.openai.unsupported import NEUTRAL, refuse_unsupported

MAX_TOKENS_LIMIT = 2**31 - 1
MAX_STOPS = 16
MAX_TIMEOUT_S = 86_400
MAX_STOP_CHARACTERS = 1000
_TOKEN_DIGITS = 9
_HEADER_NAMES = 32
_HEADER_NAME_CHARACTERS = 64

_SAMPLING_FIELDS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)

# Strict: "16" is not 16 and true is not 1. Extra fields are kept, so that they can be named.
_STRICT = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


def _stops(value: object) -> tuple[str, ...]:
    listed = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(listed, list):
        raise ValueError("stop must be a string or a list of strings.")
    if len(listed) > MAX_STOPS:
        raise ValueError(f"stop has {len(listed)} strings; the limit is {MAX_STOPS}.")
    for index, text in enumerate(listed):
        name = "stop" if isinstance(value, str) else f"stop[{index}]"
        if not isinstance(text, str):
            raise ValueError(f"{name} must be a string.")
        if not 1 <= len(text) <= MAX_STOP_CHARACTERS:
            raise ValueError(
                f"{name} has {len(text)} characters; it must have 1 to {MAX_STOP_CHARACTERS}."
            )
    return tuple(listed)


Stops = Annotated[
    tuple[str, ...],
    PlainValidator(_stops),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1, "maxLength": MAX_STOP_CHARACTERS},
                {
                    "type": "array",
                    "maxItems": MAX_STOPS,
                    "items": {"type": "string", "minLength": 1, "maxLength": MAX_STOP_CHARACTERS},
                },
                {"type": "null"},
            ]
        }
    ),
]


def _logit_bias(value: object) -> dict[int, float]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("logit_bias must be an object.")
    for token, bias in value.items():
        if not (token.isascii() and token.isdigit() and len(token) <= _TOKEN_DIGITS):
            raise ValueError(
                f"logit_bias has the key {token[:60]!r}, which is not a token id (a whole number)."
            )
        if type(bias) not in (int, float) or not -MAX_LOGIT_BIAS <= bias <= MAX_LOGIT_BIAS:
            raise ValueError(
                f"logit_bias[{token!r}] must be a number from -{MAX_LOGIT_BIAS:g} to "
                f"{MAX_LOGIT_BIAS:g}, but {repr(bias)[:60]} was sent."
            )
    return {int(token): bias for token, bias in value.items()}


LogitBias = Annotated[
    dict[int, float],
    PlainValidator(_logit_bias),
    WithJsonSchema(
        {
            "anyOf": [
                {
                    "type": "object",
                    "propertyNames": {"pattern": f"^[0-9]{{1,{_TOKEN_DIGITS}}}$"},
                    "additionalProperties": {
                        "type": "number",
                        "minimum": -MAX_LOGIT_BIAS,
                        "maximum": MAX_LOGIT_BIAS,
                    },
                },
                {"type": "null"},
            ]
        }
    ),
]


class StreamOptions(BaseModel):
    """Options of a streamed answer."""

    model_config = _STRICT

    include_usage: bool | None = Field(
        None,
        description="Send the token counts in a chunk of their own, with no choices, before "
        "[DONE]. Otherwise they are on the chunk that carries the last finish_reason.",
    )


class SharedFields(AnswerFields, CacheFields):
    """What /v1/completions and /v1/chat/completions have in common."""

    model_config = _STRICT

    model: str | None = Field(
        None, description="The served model's name, as GET /v1/models gives it; may be left out."
    )
    max_tokens: int | None = Field(
        None,
        ge=1,
        le=MAX_TOKENS_LIMIT,
        description=f"The most tokens to generate, a whole number from 1 to {MAX_TOKENS_LIMIT}. "
        "What does not fit in the context is cut off with finish_reason length.",
    )
    temperature: float | None = Field(
        None,
        ge=0,
        le=2,
        description="Sampling temperature, a number from 0 (always the likeliest token) to 2; "
        "default: what the model's makers recommend, else 1.",
    )
    top_p: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Sample from the likeliest tokens whose probabilities sum to this, a number "
        "above 0 up to 1 (off); default: what the model's makers recommend, else 1.",
    )
    top_k: int | None = Field(
        None,
        ge=-1,
        le=2**31 - 1,
        description="Sample from this many likeliest tokens, a whole number of at least 1; 0 or "
        "-1: no limit. Default: what the model's makers recommend, else no limit.",
    )
    min_p: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Sample from the tokens with at least this share of the likeliest one's "
        "probability, a number from 0 (off) to 1; default: what the model's makers recommend, "
        "else 0.",
    )
    repetition_penalty: float | None = Field(
        None,
        ge=MIN_REPETITION_PENALTY,
        le=MAX_REPETITION_PENALTY,
        description="Makes tokens of the prompt and the answer less likely: their logits are "
        f"divided by this where above 0, else multiplied; from {MIN_REPETITION_PENALTY:g} to "
        f"{MAX_REPETITION_PENALTY:g}, 1 is off. Default: what the model's makers recommend, else "
        "1.",
    )
    presence_penalty: float | None = Field(
        None,
        ge=-MAX_PENALTY,
        le=MAX_PENALTY,
        description="Subtracted from the logits of tokens that the answer has, a number from "
        f"-{MAX_PENALTY:g} to {MAX_PENALTY:g}; default 0.",
    )
    frequency_penalty: float | None = Field(
        None,
        ge=-MAX_PENALTY,
        le=MAX_PENALTY,
        description="Subtracted from a token's logit as often as the answer has it, a number from "
        f"-{MAX_PENALTY:g} to {MAX_PENALTY:g}; default 0.",
    )
    logit_bias: LogitBias = Field(
        {},
        description="Added to the logits of tokens, an object of token ids (as strings) and "
        f"numbers from -{MAX_LOGIT_BIAS:g} to {MAX_LOGIT_BIAS:g}; default: none.",
    )
    seed: int | None = Field(
        None,
        ge=-(2**63),
        le=2**63 - 1,
        description="Makes sampling repeatable, a whole number of 64 bits (-2**63 to 2**63 - 1); "
        "default: another one for each request.",
    )
    stop: Stops = Field(
        (),
        description=f"A string, or a list of at most {MAX_STOPS} strings, of 1 to "
        f"{MAX_STOP_CHARACTERS} characters. The answer ends before the first that appears.",
    )
    stream: bool | None = Field(
        None, description="true: send the answer as server-sent events while it is generated."
    )
    stream_options: StreamOptions | None = Field(
        None, description="Options for stream: true, an object such as {include_usage: true}."
    )
    n: int | None = Field(
        None,
        ge=1,
        le=MAX_ANSWERS,
        description=f"Answers per prompt, a whole number from 1 to {MAX_ANSWERS} and to the "
        "server's --max-running; default 1. The prompt is computed once for all of them.",
    )
    priority: int | None = Field(
        None,
        ge=-MAX_PRIORITY,
        le=MAX_PRIORITY,
        description="The higher, the earlier the request starts on a server with --order priority, "
        "and the longer its prefix stays cached with --eviction priority; a whole number, default "
        "0.",
    )
    ignore_eos: bool | None = Field(
        None,
        description="true: go on past the model's end-of-text tokens, up to max_tokens; for "
        "measurements. Default false.",
    )
    skip_special_tokens: bool | None = Field(
        None,
        description="false: the answer's text shows the model's special tokens too, but for the "
        "one that ends it. Default true.",
    )
    timeout_s: float | None = Field(
        None,
        gt=0,
        le=MAX_TIMEOUT_S,
        description="Seconds after which the answer ends as long as it got, with finish_reason "
        f"length; more than 0, at most {MAX_TIMEOUT_S}. Default: no limit.",
    )
    user: str | None = Field(None, description="A label of yours, a string. Not used.")
    metadata: dict[str, Any] | None = Field(
        None, description="Labels of yours, an object. Not used."
    )

    def sampling(self, defaults: SamplingParams) -> SamplingParams:
        """How to choose tokens; the model's ``defaults`` stand for what was left out."""
        sent = {name: getattr(self, name) for name in _SAMPLING_FIELDS}
        given = {name: value for name, value in sent.items() if value is not None}
        given["top_k"] = max(given.get("top_k", defaults.top_k), 0)
        return replace(defaults, **given, seed=self.seed, logit_bias=self.logit_bias)

    def include_usage(self) -> bool:
        """Whether a stream ends with a usage chunk of its own."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def check(self, names: ModelNames) -> None:
        """Raise ApiError for another model's name (404) or an unsupported field (400)."""
        names.check(self.model)
        refuse_unsupported(self.model_extra or {})

    def ignored(self) -> tuple[str, ...]:
        """Names of the fields that were sent and have no effect."""
        nested = (self.stream_options.model_extra or {}) if self.stream_options else {}
        names = [name for name in self.model_extra or {} if name not in NEUTRAL]
        nested_names = [f"stream_options.{name}" for name in nested]
        return (*names, *nested_names, *self.ignored_inside())


def ignored_header(names: Iterable[str]) -> dict[str, str]:
    """``X-Ignored-Fields`` for these names, made safe for a header and cut to a sane length."""
    listed = list(names)
    if not listed:
        return {}
    # An empty name shows as "": a header's value must not end with a space.
    quoted = [quote(name, safe="") or '""' for name in listed[:_HEADER_NAMES]]
    shown = [name[:_HEADER_NAME_CHARACTERS] for name in quoted]
    if len(listed) > _HEADER_NAMES:
        shown.append(f"and {len(listed) - _HEADER_NAMES} more")
    return {"X-Ignored-Fields": ", ".join(shown)}
