"""POST /v1/chat/completions: a conversation in, the assistant's next message out."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)

from radix_engine.model.logprobs import MAX_TOP
from server.http.body import parse
from server.http.endpoint import Endpoint, Head
from server.http.engine_like import TextLike
from server.http.errors import ApiError
from server.http.job import Context, Job
from server.http.openai.fields import MAX_TOKENS_LIMIT, SharedFields
from server.http.openai.logprobs import chat_logprobs
from server.http.openai.reply import OpenAIReply
from server.outputs import Completion, GenerationParams, Output


def _content(value: object) -> str | None:
    """A message's text. Parts are joined with nothing between them: no text is ours."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ValueError("content must be a string, null or a list of text parts.")
    texts = []
    for index, part in enumerate(value):
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(kind, str):
            raise ValueError(f"content[{index}] must be an object with a type.")
        if kind != "text":
            raise ValueError(
                f"content[{index}] is of type {kind[:60]!r}, which is not supported. Send only "
                "parts of type 'text'."
            )
        text = part.get("text")
        if not isinstance(text, str):
            raise ValueError(f"content[{index}].text must be a string.")
        texts.append(text)
    return "".join(texts)


Content = Annotated[
    str | None,
    PlainValidator(_content),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["type", "text"],
                        "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
                    },
                },
                {"type": "null"},
            ]
        }
    ),
]


class Message(BaseModel):
    """One message. Fields not listed here (name, tool_call_id, ...) reach the chat template too."""

    model_config = ConfigDict(extra="allow", strict=True)

    role: Literal["system", "developer", "user", "assistant", "tool"] = Field(
        description="Who speaks. developer is another name for system."
    )
    content: Content = Field(
        None,
        description="A string or a list of text parts. null only for an assistant's message "
        "with tool_calls.",
    )
    tool_calls: list[dict[str, Any]] | None = Field(
        None, description="The tool calls that an assistant's message made."
    )

    @model_validator(mode="after")
    def _has_content(self) -> Message:
        if self.content is None and not (self.role == "assistant" and self.tool_calls):
            raise ValueError(
                "content is missing: only an assistant's message with tool_calls may leave it out."
            )
        return self

    def for_template(self) -> dict[str, Any]:
        """What chat templates expect: a string for content, and no field that was not sent."""
        extra = (self.model_extra or {}).items()
        fields = {name: value for name, value in extra if value is not None}
        if self.tool_calls:
            fields["tool_calls"] = self.tool_calls
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": self.content or "", **fields}


class Function(BaseModel):
    """What a tool does and takes."""

    model_config = ConfigDict(extra="allow", strict=True)

    name: str = Field(min_length=1, description="The name that a call uses.")
    description: str | None = Field(None, description="What it does, for the model.")
    parameters: dict[str, Any] | None = Field(None, description="A JSON schema of what it takes.")


class Tool(BaseModel):
    """A tool that the model may call."""

    model_config = ConfigDict(extra="allow", strict=True)

    type: Literal["function"] = Field(description="Only function.")
    function: Function


def _as_sent(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """The tool as it was sent: another order of its keys would be another prompt."""
    check(value)
    return value


class ChatRequest(SharedFields):
    """The body of POST /v1/chat/completions."""

    messages: list[Message] = Field(
        min_length=1,
        description="The conversation so far, a list of at least one message.",
    )
    max_completion_tokens: int | None = Field(
        None,
        ge=1,
        le=MAX_TOKENS_LIMIT,
        description="Another name for max_tokens; default: as many as fit in the context.",
    )
    logprobs: bool | None = Field(
        None, description="true: give the log-probability of each token of the answer."
    )
    top_logprobs: int | None = Field(
        None,
        ge=0,
        le=MAX_TOP,
        description="With logprobs: also give those of so many likeliest tokens in each one's "
        f"place, a whole number from 0 to {MAX_TOP}; default 0.",
    )
    tools: list[Annotated[Tool, WrapValidator(_as_sent)]] | None = Field(
        None, description="The tools that the model may call, a list; given to the chat template."
    )

    def check(self, served: str) -> None:
        """As in `SharedFields`, and that the fields go together."""
        super().check(served)
        if self.top_logprobs and not self.logprobs:
            raise ApiError(
                400,
                f"top_logprobs is {self.top_logprobs}, which goes with logprobs: true. Send that "
                "too, or leave top_logprobs out.",
                param="top_logprobs",
                code="invalid_value",
            )

    def token_limit(self, fitting: int) -> int:
        """The most tokens to generate; ``fitting`` if the request does not say."""
        first, second = self.max_tokens, self.max_completion_tokens
        if first is not None and second is not None and first != second:
            raise ApiError(
                400,
                f"max_tokens is {first} and max_completion_tokens is {second}, but they mean the "
                "same. Send only one of them.",
                param="max_completion_tokens",
                code="invalid_value",
            )
        return first or second or fitting


def _prepare(body: bytes, context: Context) -> Job:
    engine = context.engine
    fields = parse(body, ChatRequest)
    fields.check(engine.info.model)
    params = GenerationParams(
        max_tokens=fields.token_limit(engine.info.context_length),
        sampling=fields.sampling(engine.info.sampling),
        stop=fields.stop,
        n=fields.n or 1,
        priority=fields.priority or 0,
        timeout_s=fields.timeout_s,
        ignore_eos=bool(fields.ignore_eos),
        logprobs=(fields.top_logprobs or 0) if fields.logprobs else None,
    )
    messages = [message.for_template() for message in fields.messages]
    tools = cast("list[dict[str, Any]]", fields.tools)
    unused_tools = ("tools",) if tools and not engine.text.takes_tools else ()
    return Job(
        prompts=[engine.text.render_chat(messages, tools or None)],
        params=params,
        stream=bool(fields.stream),
        include_usage=fields.include_usage(),
        ignored=(*fields.ignored(), *unused_tools),
    )


class ChatChoice:
    """A choice of a chat's answer."""

    def __init__(self, job: Job, text: TextLike, index: int) -> None:
        self._index = index
        self._text = text
        self._has_begun = False

    def whole(self, answer: Completion) -> dict[str, Any]:
        """All of it at once."""
        logprobs = answer.logprobs
        return {
            "index": self._index,
            "message": {"role": "assistant", "content": answer.text, "refusal": None},
            "logprobs": None if logprobs is None else chat_logprobs(logprobs, self._text),
            "finish_reason": answer.finish_reason,
        }

    def chunks(self, output: Output) -> list[dict[str, Any]]:
        """The role first, then text as it comes, and at the end the reason for it."""
        chunks: list[dict[str, Any]] = []
        if not self._has_begun:
            chunks.append(self._chunk({"role": "assistant", "content": ""}))
        self._has_begun = True
        if output.text or output.logprobs:
            logprobs = chat_logprobs(output.logprobs, self._text) if output.logprobs else None
            chunks.append(self._chunk({"content": output.text}, logprobs))
        if output.finish_reason is not None:
            chunks.append(self._chunk({}, finish_reason=output.finish_reason))
        return chunks

    def _chunk(
        self,
        delta: dict[str, str],
        logprobs: dict[str, Any] | None = None,
        finish_reason: str | None = None,
    ) -> dict[str, Any]:
        return {
            "index": self._index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        }


def _reply(job: Job, text: TextLike, head: Head) -> OpenAIReply:
    return OpenAIReply(job, text, head, "chat.completion", "chat.completion.chunk", ChatChoice)


CHAT = Endpoint(
    id_prefix="chatcmpl",
    prompt_field="messages",
    prepare=_prepare,
    reply=_reply,
)
