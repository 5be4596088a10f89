"""How a generating endpoint answers: read, parse, submit, then one body or a stream of events."""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect

from server.collector import join
from server.errors import RequestRefused
from server.http.body import read_body
from server.http.engine_like import EngineLike, TextLike
from server.http.errors import ApiError, from_refusal, shutting_down, unexpected
from server.http.fields import ignored_header
from server.http.service import Service
from server.http.sse import DONE, EventStream, event
from server.http.submission import ClientGone, Submission, failure
from server.outputs import Completion, GenerationParams, Output, Usage

logger = logging.getLogger("server.http")

# Never sent, as nobody listens any more; it marks the request in the log.
_CLIENT_CLOSED_REQUEST = 499


@dataclass(frozen=True, slots=True)
class Job:
    """A checked request: token ids and how to answer. ``echo``: the prompts as text, where they are
    to come back before their answers."""

    prompts: Sequence[Sequence[int]]
    params: GenerationParams
    stream: bool
    include_usage: bool
    ignored: tuple[str, ...] = ()
    echo: Sequence[str] = ()

    @property
    def num_choices(self) -> int:
        """Answers to all prompts."""
        return len(self.prompts) * self.params.n


class Choice(Protocol):
    """One choice of an answer on its way to JSON."""

    def whole(self, answer: Completion) -> dict[str, Any]:
        """All of it at once."""

    def chunks(self, output: Output) -> list[dict[str, Any]]:
        """What a stream shows of the next output; may be nothing."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What sets one generating endpoint apart from the other.

    ``prepare`` makes a job of the body; it blocks and raises ApiError or RequestRefused.
    ``choice`` begins a choice, from (job, the tokenizer, its index).
    """

    id_prefix: str
    object_whole: str
    object_chunk: str
    prompt_field: str
    prepare: Callable[[bytes, EngineLike], Job]
    choice: Callable[[Job, TextLike, int], Choice]


class Call:
    """One HTTP request on its way: its id, its answer so far, and its line in the log."""

    def __init__(self, endpoint: Endpoint, service: Service, request: Request) -> None:
        self.id = f"{endpoint.id_prefix}-{secrets.token_hex(12)}"
        self.created = int(time.time())
        self.endpoint = endpoint
        self.model = service.engine.info.model
        self.status = 500
        self.submission = Submission(service.engine, service.bridge)
        self._request = request
        self._began = time.perf_counter()
        self._watcher: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """From now on (the body is read), abort everything at once when the client hangs up."""
        self._watcher = asyncio.create_task(self._wait_for_hang_up())

    async def _wait_for_hang_up(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self.submission.give_up()

    def end(self) -> None:
        """Abort what still runs, and log the request in one line that shows no text of it."""
        if self._watcher is not None:
            self._watcher.cancel()
        self.submission.give_up()
        usage = self.submission.usage()
        logger.info(
            "%s %d prompt=%d cached=%d completion=%d tokens %.0f ms",
            self.id,
            self.status,
            usage.prompt_tokens,
            usage.cached_tokens,
            usage.completion_tokens,
            1e3 * (time.perf_counter() - self._began),
        )


async def respond(request: Request, service: Service, endpoint: Endpoint) -> Response:
    """Answer one request to a generating endpoint, whatever happens."""
    call = Call(endpoint, service, request)
    headers = {"X-Request-Id": call.id}
    streaming = False
    try:
        service.check_open()
        body = await read_body(request, service.max_body_bytes)
        call.watch()
        job = await service.on_text_thread(lambda: _start(body, service.engine, call))
        headers |= ignored_header(job.ignored)
        response: Response
        if job.stream:
            response = EventStream(_events(call, job, service), call.end, headers)
            streaming = True
        else:
            response = JSONResponse(await _whole(call, job, service), headers=headers)
        call.status = 200
    except (ClientGone, ClientDisconnect):
        call.status = _CLIENT_CLOSED_REQUEST
        response = Response(status_code=call.status)
    except ApiError as error:
        call.status = error.status
        response = error.response(headers)
    except Exception:
        logger.exception("%s failed", call.id)
        response = unexpected().response(headers)
    finally:
        if not streaming:
            call.end()
    return response


def _start(body: bytes, engine: EngineLike, call: Call) -> Job:
    """Make a job of the body and submit it. Blocks."""
    field = call.endpoint.prompt_field
    try:
        job = call.endpoint.prepare(body, engine)
    except RequestRefused as refusal:
        raise from_refusal(refusal, param=field) from refusal
    call.submission.submit(job.prompts, job.params, param=field)
    return job


async def _whole(call: Call, job: Job, service: Service) -> dict[str, Any]:
    """The body of an answer that is sent at once. Raises ApiError when the engine gave up."""
    pieces: list[list[Output]] = [[] for _ in range(job.num_choices)]
    async for batch in call.submission.batches():
        for index, output in batch:
            error = failure(output)
            if error is not None:
                raise error
            if output.finish_reason == "abort":  # not by us: the client is still there
                raise shutting_down()
            pieces[index].append(output)

    def choices() -> list[dict[str, Any]]:
        return [
            call.endpoint.choice(job, service.engine.text, index).whole(join(own))
            for index, own in enumerate(pieces)
        ]

    if job.params.logprobs is None:
        listed = choices()
    else:  # thousands of tokens may be looked up
        listed = await service.on_text_thread(choices)
    usage = usage_body(call.submission.usage())
    return {**_head(call, call.endpoint.object_whole), "choices": listed, "usage": usage}


async def _events(call: Call, job: Job, service: Service) -> AsyncGenerator[bytes, None]:
    """The events of a streamed answer, as many at a time as are there."""
    try:
        head = _head(call, call.endpoint.object_chunk)
        running = job.num_choices
        choices: dict[int, Choice] = {}
        async for batch in call.submission.batches():
            events: list[bytes] = []
            for index, output in batch:
                error = failure(output)
                if error is not None:
                    call.status = error.status
                    yield b"".join([*events, event(error.body()), DONE])
                    return
                running -= output.finish_reason is not None
                usage = None if running or job.include_usage else call.submission.usage()
                if index not in choices:
                    choices[index] = call.endpoint.choice(job, service.engine.text, index)
                show = functools.partial(_chunks, choices[index], head, output, job, usage)
                if output.prompt_logprobs is None:
                    events += show()
                else:  # thousands of tokens may be looked up
                    events += await service.on_text_thread(show)
            if not running:
                if job.include_usage:
                    counts = usage_body(call.submission.usage())
                    events.append(event({**head, "choices": [], "usage": counts}))
                events.append(DONE)
            if events:
                yield b"".join(events)
    except ClientGone:
        call.status = _CLIENT_CLOSED_REQUEST
    except Exception:
        call.status = 500
        # The status is sent already: the error has to travel inside the stream.
        logger.exception("%s failed", call.id)
        yield event(unexpected().body()) + DONE


def _chunks(
    choice: Choice, head: Mapping[str, Any], output: Output, job: Job, final: Usage | None
) -> list[bytes]:
    """The events for one output. ``final`` counts go on the last of them."""
    chunks = [
        {**head, "choices": [shown], **({"usage": None} if job.include_usage else {})}
        for shown in choice.chunks(output)
    ]
    if final is not None and chunks:
        chunks[-1]["usage"] = usage_body(final)
    return [event(chunk) for chunk in chunks]


def _head(call: Call, kind: str) -> dict[str, Any]:
    return {"id": call.id, "object": kind, "created": call.created, "model": call.model}


def usage_body(usage: Usage) -> dict[str, Any]:
    """Token counts in OpenAI's form; ``cached_tokens`` is always there, 0 on a miss."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
