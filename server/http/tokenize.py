"""POST /tokenize and /detokenize: the model's tokens, in vLLM's form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from server.generation_params import GenerationParams
from server.http.body import checked, parse, read_object
from server.http.cache_fields import namespace_of
from server.http.description import body_of
from server.http.endpoint import Endpoint, Head
from server.http.engine_like import TextLike
from server.http.errors import ApiError
from server.http.generation import respond
from server.http.job import Context, Job
from server.http.noise import CleanHead
from server.http.openai.chat_request import ChatRequest
from server.http.schemas import ErrorBody, Exact
from server.http.service import Service
from server.http.sse import event
from server.outputs import Completion, Output, Usage
from server.tokens import MOST_TOKENS

_MAX_TOKEN = 2**31 - 1
_TOKEN_BYTES = 16  # of an answer, about, for each token
_STRICT = ConfigDict(extra="allow", strict=True)

Model = Annotated[
    str | None, Field(description="May be left out; another name than a served one is a 404.")
]
Special = Annotated[
    bool | None,
    Field(
        description="Whether the tokens that the tokenizer adds to a text, such as one for its "
        "beginning, are among them; default: with prompt true, with messages false, since the chat "
        "template writes its own. There are never two for the beginning."
    ),
]
Strings = Annotated[
    bool | None,
    Field(description="true: token_strs has each token as the vocabulary writes it."),
]


class TokenizeTextRequest(BaseModel):
    """The body of POST /tokenize, with a text."""

    model_config = _STRICT

    prompt: str = Field(description="A text, as in a completion; may be empty.")
    model: Model = None
    add_special_tokens: Special = None
    return_token_strs: Strings = None


class TokenizeChatRequest(ChatRequest):
    """The body of POST /tokenize, with a conversation: that of a chat. Fields that say how to
    answer change nothing."""

    add_special_tokens: Special = None
    return_token_strs: Strings = None


def _token_ids(value: object) -> Sequence[int]:
    """Raises ValueError that says where it is wrong."""
    if isinstance(value, list):
        for index, token in enumerate(value):
            if type(token) is not int or not 0 <= token <= _MAX_TOKEN:
                raise ValueError(f"tokens[{index}] is not a token id (a whole number from 0).")
    elif not isinstance(value, Sequence) or isinstance(value, str):
        raise ValueError("tokens must be a list.")
    return value


class DetokenizeRequest(BaseModel):
    """The body of POST /detokenize."""

    model_config = _STRICT

    tokens: Annotated[
        Sequence[int],
        PlainValidator(_token_ids),
        WithJsonSchema({"type": "array", "items": {"type": "integer", "minimum": 0}}),
    ] = Field(description="Token ids, a list.")
    model: Model = None


class Tokenized(Exact):
    """The tokens of a text or a conversation."""

    count: int = Field(ge=0, description="How many they are.")
    max_model_len: int = Field(ge=1, description="How many the model's context holds.")
    tokens: list[int]
    token_strs: list[str] | None = Field(description="With return_token_strs; else null.")


class Detokenized(Exact):
    """The text of tokens."""

    prompt: str


TOKEN_BODIES = (TokenizeTextRequest, TokenizeChatRequest, DetokenizeRequest)
"""The bodies that the API description has to know."""


@dataclass(frozen=True, slots=True)
class _TextJob(Job):
    """Has no prompt to be submitted: its ``answer`` is there already."""

    answer: dict[str, Any] = field(default_factory=dict)
    tokens: int = 0

    def work(self, usage: Usage) -> int:
        """The answer is written on a thread."""
        return _TOKEN_BYTES * self.tokens


class _TextReply:
    """The answer, as it is."""

    def __init__(self, job: Job, text: TextLike, head: Head) -> None:
        assert isinstance(job, _TextJob)
        self._answer = job.answer

    def whole(self, answers: Sequence[Completion], usage: Usage) -> dict[str, Any]:
        """It."""
        return self._answer

    def events(self, choice: int, output: Output, final: Usage | None) -> list[bytes]:
        """No output ever comes."""
        return []

    def has_called(self, choice: int) -> bool:
        """No answer, no call."""
        return False

    def failed(self, error: ApiError) -> list[bytes]:
        """The error as an event."""
        return [event(error.body())]


def token_routes(service: Service) -> APIRouter:
    """Routes between texts and tokens."""
    router = APIRouter()
    refused: dict[int | str, dict[str, Any]] = {
        400: {"model": ErrorBody, "description": "A field is wrong, or the text is too long."},
        404: {"model": ErrorBody, "description": "Another model than the served one."},
        413: {"model": ErrorBody, "description": "The body is too large (--max-body-size)."},
        429: {"model": ErrorBody, "description": "The tenant has come to its limit."},
        503: {"model": ErrorBody, "description": "The server is shutting down."},
    }

    @router.post(
        "/tokenize",
        summary="The tokens of a text, or of a conversation",
        openapi_extra=body_of(TokenizeTextRequest, TokenizeChatRequest),
        responses={200: {"model": Tokenized}, **refused},
    )
    async def tokenize(request: Request) -> Response:
        return await respond(request, service, TOKENIZE)

    @router.post(
        "/detokenize",
        summary="The text of tokens",
        openapi_extra=body_of(DetokenizeRequest),
        responses={200: {"model": Detokenized}, **refused},
    )
    async def detokenize(request: Request) -> Response:
        return await respond(request, service, DETOKENIZE)

    return router


def _prepare_tokens(body: bytes, context: Context) -> Job:
    data = read_object(body)
    if ("messages" in data) == ("prompt" in data):
        raise ApiError(
            400,
            "Send either prompt (a text) or messages (a conversation).",
            param="prompt",
            code="missing_required_parameter",
        )
    if "messages" in data:
        return _of_chat(data, context)
    fields = checked(data, TokenizeTextRequest)
    context.names.check(fields.model)
    ids = context.engine.text.encode(fields.prompt, special=fields.add_special_tokens is not False)
    return _tokens_job(ids, fields.return_token_strs, context, ignored=_unknown(fields))


def _of_chat(data: dict[str, Any], context: Context) -> Job:
    text, head = context.engine.text, CleanHead(context.noise)
    head.strip(data)
    fields = checked(data, TokenizeChatRequest)
    fields.check(context.names)
    messages = [message.for_template() for message in fields.messages]
    definitions, options = fields.tool_use().for_template, fields.chat_options(text)
    if fields.add_special_tokens:
        ids = text.encode(text.chat_text(messages, definitions, options=options))
    else:
        namespace = namespace_of(context.caller, fields.cache_salt)
        prompt = text.chat_prompt(messages, definitions, options=options, namespace=namespace)
        ids = prompt.ids
    return _tokens_job(
        ids,
        fields.return_token_strs,
        context,
        ignored=(*fields.ignored(), *fields.without_effect(text)),
        headers=head.header(),
    )


def _tokens_job(
    ids: Sequence[int], with_strings: bool | None, context: Context, **fields: Any
) -> Job:
    names = context.engine.text.token_names(ids) if with_strings else None
    answer = {
        "count": len(ids),
        "max_model_len": context.engine.info.context_length,
        "tokens": list(ids),
        "token_strs": None if names is None else [name or "" for name in names],
    }
    return _job(answer, len(ids), **fields)


def _prepare_text(body: bytes, context: Context) -> Job:
    fields = parse(body, DetokenizeRequest, arrays=True)
    context.names.check(fields.model)
    text, tokens = context.engine.text, fields.tokens
    most = max(MOST_TOKENS, context.engine.info.context_length)
    if len(tokens) > most:
        raise ApiError(
            400,
            f"tokens has {len(tokens)} token ids; the limit is {most}. Send the rest in further "
            "requests.",
            param="tokens",
            code="invalid_value",
        )
    names = text.token_names(tokens)
    if None in names:
        index = names.index(None)
        raise ApiError(
            400,
            f"tokens[{index}] is {tokens[index]}, which the tokenizer has not. Send ids of its "
            "vocabulary, as /tokenize gives them.",
            param=f"tokens[{index}]",
            code="invalid_value",
        )
    answer = {"prompt": text.decode(tokens, special=True)}
    return _job(answer, len(tokens), ignored=_unknown(fields))


def _job(answer: dict[str, Any], tokens: int, **fields: Any) -> Job:
    return _TextJob(
        prompts=(),
        params=GenerationParams(),
        stream=False,
        include_usage=False,
        answer=answer,
        tokens=tokens,
        **fields,
    )


def _unknown(fields: BaseModel) -> tuple[str, ...]:
    return tuple(fields.model_extra or ())


TOKENIZE = Endpoint(
    id_prefix="tok-", prompt_field="prompt", prepare=_prepare_tokens, reply=_TextReply
)
DETOKENIZE = Endpoint(
    id_prefix="detok-", prompt_field="tokens", prepare=_prepare_text, reply=_TextReply
)
