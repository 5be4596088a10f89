"""POST /v1/completions: text or token ids in, text out."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema, field_validator

from server.generation_params import GenerationParams
from server.http.body import parse
from server.http.endpoint import Endpoint, Head
from server.http.engine_like import EngineLike, TextLike
from server.http.errors import ApiError
from server.http.job import Context, Job
from server.http.model_names import ModelNames
from server.http.openai.beam_fields import BeamFields, not_with_beams
from server.http.openai.fields import MAX_TOKENS_LIMIT
from server.http.openai.logprobs import TextLogprobs
from server.http.openai.reply import OpenAIReply
from server.http.prompt_facts import PromptFacts
from server.near_miss import PromptSource
from server.outputs import Completion, Output

DEFAULT_MAX_TOKENS = 16
MAX_PROMPTS = 1024
MAX_LOGPROBS = 5

# A prompt is a text or token ids; those of a long body come as an array.
Prompt = str | Sequence[int]

_INTEGERS = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}
_TEXT = {"type": "string", "minLength": 1}
_FORMS = "a string, a list of token ids, a list of strings, or a list of lists of token ids"


def _prompts(value: object) -> list[Prompt]:
    """The prompts in any of OpenAI's four forms. Raises ValueError that says where it is wrong."""
    if isinstance(value, str):
        return [_prompt(value, "prompt")]
    if isinstance(value, array):
        return [value]
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
    if isinstance(value, array):
        return value
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

    max_tokens: int | None = Field(
        None,
        ge=0,
        le=MAX_TOKENS_LIMIT,
        description=f"The most tokens to generate, a whole number from 1 to {MAX_TOKENS_LIMIT}, or "
        f"0 with echo; default {DEFAULT_MAX_TOKENS}. What does not fit in the context is cut off "
        "with finish_reason length.",
    )
    logprobs: int | None = Field(
        None,
        ge=0,
        le=MAX_LOGPROBS,
        description="Give each token's log-probability and those of so many likeliest tokens in "
        f"its place, a whole number from 0 to {MAX_LOGPROBS}; default: none.",
    )
    echo: bool | None = Field(
        None,
        description="true: the prompt comes back before its answer, with logprobs also its "
        "tokens'. Those of its own tokens are kept in the cache; for likeliest ones all of it is "
        "computed, whatever is cached.",
    )

    @field_validator("logprobs", mode="before")
    @classmethod
    def _false_is_none(cls, value: object) -> object:
        return None if value is False else value

    def check(self, names: ModelNames) -> None:
        """As in `BeamFields`, and that the fields go together."""
        super().check(names)
        if self.use_beam_search and self.logprobs is not None:
            raise not_with_beams("logprobs")
        if self.max_tokens == 0 and (self.use_beam_search or not self.echo):
            reason = "with use_beam_search" if self.use_beam_search else "without echo"
            raise ApiError(
                400,
                f"max_tokens is 0, but {reason} it must be a whole number from 1. Send 1 or more, "
                "or echo: true to get the prompt back.",
                param="max_tokens",
                code="invalid_value",
            )


def _prepare(body: bytes, context: Context) -> Job:
    engine = context.engine
    fields = parse(body, CompletionRequest, arrays=True)
    fields.check(context.names)
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
    caching = fields.caching(context)
    most = DEFAULT_MAX_TOKENS if fields.max_tokens is None else fields.max_tokens
    return Job(
        prompts=[_ids(prompt, engine) for prompt in fields.prompt],
        params=GenerationParams(
            max_tokens=most,
            sampling=None if beams else fields.sampling(engine.info.sampling),
            stop=fields.stop,
            n=answers,
            use_beam_search=beams,
            best_of=fields.best_of,
            length_penalty=1.0 if fields.length_penalty is None else fields.length_penalty,
            early_stopping=fields.early_stopping or False,
            priority=fields.priority or 0,
            timeout_s=fields.timeout_s,
            ignore_eos=bool(fields.ignore_eos),
            skip_special_tokens=fields.skip_special_tokens is not False,
            logprobs=fields.logprobs,
            prompt_logprobs=fields.logprobs if fields.echo else None,
            namespace=caching.namespace,
            cache_mode=caching.mode,
            retain=caching.retain,
            session=caching.session,
            **fields.answer_params(most, ignore_eos=fields.ignore_eos),
        ),
        stream=bool(fields.stream),
        include_usage=fields.include_usage(),
        ignored=(*fields.ignored(), *caching.ignored, *_of_chats(fields)),
        echo=[_shown(prompt, engine) for prompt in fields.prompt] if fields.echo else (),
        facts=tuple(PromptFacts(_source(prompt)) for prompt in fields.prompt),
    )


def _ids(prompt: Prompt, engine: EngineLike) -> Sequence[int]:
    return engine.text.encode(prompt) if isinstance(prompt, str) else prompt


def _of_chats(fields: CompletionRequest) -> list[str]:
    """Names of what has an effect in chats only."""
    is_sent = fields.compared_with is not None
    return ["prompt_cache_options.comparison_response_id"] if is_sent else []


def _source(prompt: Prompt) -> PromptSource:
    return PromptSource(prompt if isinstance(prompt, str) else "")


def _shown(prompt: Prompt, engine: EngineLike) -> str:
    return prompt if isinstance(prompt, str) else engine.text.decode(prompt, special=True)


class TextChoice:
    """A choice of a completion: its text, after the prompt's where that is echoed."""

    has_called = False

    def __init__(self, job: Job, text: TextLike, index: int) -> None:
        self._index = index
        self._prompt = job.prompts[index // job.params.n]
        self._echo = job.echo[index // job.params.n] if job.echo else ""
        self._has_begun = False
        shows_special = not job.params.skip_special_tokens
        self._logprobs = None if job.params.logprobs is None else TextLogprobs(text, shows_special)

    def whole(self, answer: Completion) -> dict[str, Any]:
        """All of it at once."""
        return self._next(answer, answer.finish_reason)

    def chunks(self, output: Output) -> list[dict[str, Any]]:
        """The text so far not sent, or the end."""
        is_first_echo = self._echo and not self._has_begun
        if output.text or output.finish_reason is not None or output.logprobs or is_first_echo:
            return [self._next(output, output.finish_reason)]
        return []

    def _next(self, piece: Output | Completion, finish_reason: str | None) -> dict[str, Any]:
        echo = "" if self._has_begun else self._echo
        self._has_begun = True
        logprobs = None
        if self._logprobs is not None:
            scores = piece.prompt_logprobs
            logprobs = self._logprobs.of(
                piece.logprobs or (), self._prompt if scores else (), scores or (), echo
            )
        return {
            "index": self._index,
            "text": echo + piece.text,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
            "stop_reason": piece.stop_reason,
        }


def _reply(job: Job, text: TextLike, head: Head) -> OpenAIReply:
    return OpenAIReply(job, text, head, "text_completion", "text_completion", TextChoice)


COMPLETIONS = Endpoint(
    id_prefix="cmpl-",
    prompt_field="prompt",
    prepare=_prepare,
    reply=_reply,
)
