"""POST /v1/completions: text or token ids in, text out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema

from server.http.beam_fields import BeamFields
from server.http.body import parse
from server.http.engine_like import EngineLike
from server.http.errors import ApiError
from server.http.generation import Endpoint, Job
from server.outputs import GenerationParams, Output

DEFAULT_MAX_TOKENS = 16
MAX_PROMPTS = 1024

# A prompt is a text or token ids.
Prompt = str | list[int]

_INTEGERS = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}
_TEXT = {"type": "string", "minLength": 1}
_FORMS = "a string, a list of token ids, a list of strings, or a list of lists of token ids"


def _prompts(value: object) -> list[Prompt]:
    """The prompts in any of OpenAI's four forms. Raises ValueError that says where it is wrong."""
    if isinstance(value, str):
        return [_prompt(value, "prompt")]
    if not isinstance(value, list):
        raise ValueError("prompt has the wrong type.")
    if not value or _is_token(value[0]):
        return [_prompt(value, "prompt")]
    if len(value) > MAX_PROMPTS:
        raise ValueError(
            f"prompt has {len(value)} prompts; the limit is {MAX_PROMPTS} in one request. "
            "Send the rest in further requests."
        )
    return [_prompt(each, f"prompt[{index}]", value[0]) for index, each in enumerate(value)]


def _prompt(value: object, name: str, first: object = None) -> Prompt:
    """One prompt, of the same kind as the ``first`` of its list."""
    if first is not None and type(value) is not type(first):
        raise ValueError(f"{name} is not of the same type as prompt[0].")
    if not isinstance(value, (str, list)):
        raise ValueError(f"{name} has the wrong type.")
    if not value:
        raise ValueError(f"{name} is empty.")
    if isinstance(value, list) and not all(map(_is_token, value)):
        wrong = next(index for index, each in enumerate(value) if not _is_token(each))
        raise ValueError(f"{name}[{wrong}] is not a token id (a whole number).")
    return value


def _is_token(value: object) -> bool:
    return type(value) is int  # true is no token


class CompletionRequest(BeamFields):
    """The body of POST /v1/completions."""

    prompt: Annotated[
        list[Prompt],
        PlainValidator(_prompts),
        WithJsonSchema(
            {
                "anyOf": [
                    _TEXT,
                    _INTEGERS,
                    {"type": "array", "minItems": 1, "maxItems": MAX_PROMPTS, "items": _TEXT},
                    {"type": "array", "minItems": 1, "maxItems": MAX_PROMPTS, "items": _INTEGERS},
                ]
            }
        ),
    ] = Field(
        description=f"{_FORMS}; not empty, at most {MAX_PROMPTS} prompts. Each prompt gives "
        "n choices, with their indexes."
    )


def _prepare(body: bytes, engine: EngineLike) -> Job:
    fields = parse(body, CompletionRequest)
    fields.check(engine.info.model)
    answers = fields.n or 1
    if len(fields.prompt) * answers > MAX_PROMPTS:
        raise ApiError(
            400,
            f"n is {answers}, for {len(fields.prompt)} prompts: the limit is {MAX_PROMPTS} answers "
            "in one request. Send the rest in further requests.",
            param="n",
            code="invalid_value",
        )
    beams = bool(fields.use_beam_search)
    return Job(
        prompts=[_ids(prompt, engine) for prompt in fields.prompt],
        params=GenerationParams(
            max_tokens=fields.max_tokens or DEFAULT_MAX_TOKENS,
            sampling=None if beams else fields.sampling(engine.info.sampling),
            stop=fields.stop,
            n=answers,
            use_beam_search=beams,
            best_of=fields.best_of,
            length_penalty=1.0 if fields.length_penalty is None else fields.length_penalty,
            early_stopping=fields.early_stopping or False,
            priority=fields.priority or 0,
            timeout_s=fields.timeout_s,
        ),
        stream=bool(fields.stream),
        include_usage=fields.include_usage(),
        ignored=fields.ignored(),
    )


def _ids(prompt: Prompt, engine: EngineLike) -> Sequence[int]:
    return engine.text.encode(prompt) if isinstance(prompt, str) else prompt


def _choice(index: int, text: str, finish_reason: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}


def _deltas(index: int, output: Output, first: bool) -> list[dict[str, Any]]:
    if not output.text and output.finish_reason is None:
        return []
    return [_choice(index, output.text, output.finish_reason)]


COMPLETIONS = Endpoint(
    id_prefix="cmpl",
    object_whole="text_completion",
    object_chunk="text_completion",
    prompt_field="prompt",
    prepare=_prepare,
    choice=_choice,
    deltas=_deltas,
)
