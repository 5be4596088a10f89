"""How a generating endpoint answers: read, parse, submit, then one body or a stream of events."""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect

from server.collector import join
from server.errors import RequestRefused
from server.http.body import read_body
from server.http.caller import ANYBODY
from server.http.endpoint import Endpoint, Head, Reply
from server.http.engine_like import EngineLike
from server.http.errors import ApiError, from_refusal, shutting_down, unexpected
from server.http.job import Context, Job
from server.http.openai.fields import ignored_header
from server.http.service import Service
from server.http.sse import EventStream
from server.http.submission import ClientGone, Submission, failure
from server.outputs import Output

logger = logging.getLogger("server.http")

# Never sent, as nobody listens any more; it marks the request in the log.
_CLIENT_CLOSED_REQUEST = 499


class Call:
    """One HTTP request on its way: its id, its answer so far, and its line in the log."""

    def __init__(self, endpoint: Endpoint, service: Service, request: Request) -> None:
        self.id = f"{endpoint.id_prefix}-{secrets.token_hex(12)}"
        self.created = int(time.time())
        self.endpoint = endpoint
        self.caller = ANYBODY
        self.headers = request.headers
        self.text = service.engine.text
        self.model = service.engine.info.model
        self.status = 500
        self.submission = Submission(service.engine, service.bridge)
        self._request = request
        self._began = time.perf_counter()
        self._watcher: asyncio.Task[None] | None = None

    def reply(self, job: Job) -> Reply:
        """Begin the answer."""
        return self.endpoint.reply(job, self.text, Head(self.id, self.created, self.model))

    def refusal(self, error: ApiError, headers: Mapping[str, str]) -> Response:
        """The whole answer, where it is an error."""
        body = self.endpoint.error(error)
        return JSONResponse(body, error.status, {**error.headers, **headers})

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
        response = call.refusal(error, headers)
    except Exception:
        logger.exception("%s failed", call.id)
        response = call.refusal(unexpected(), headers)
    finally:
        if not streaming:
            call.end()
    return response


def _start(body: bytes, engine: EngineLike, call: Call) -> Job:
    """Make a job of the body and submit it. Blocks."""
    field = call.endpoint.prompt_field
    try:
        job = call.endpoint.prepare(body, Context(engine, call.caller, call.headers))
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
    answers = list(map(join, pieces))
    make = functools.partial(call.reply(job).whole, answers, call.submission.usage())
    # With log-probabilities thousands of tokens may be looked up.
    return make() if job.params.logprobs is None else await service.on_text_thread(make)


async def _events(call: Call, job: Job, service: Service) -> AsyncGenerator[bytes, None]:
    """The events of a streamed answer, as many at a time as are there."""
    reply = call.reply(job)
    try:
        running = job.num_choices
        async for batch in call.submission.batches():
            events: list[bytes] = []
            for index, output in batch:
                error = failure(output)
                if error is not None:
                    call.status = error.status
                    yield b"".join([*events, *reply.failed(error)])
                    return
                running -= output.finish_reason is not None
                final = None if running else call.submission.usage()
                show = functools.partial(reply.events, index, output, final)
                if output.prompt_logprobs is None:
                    events += show()
                else:  # thousands of tokens may be looked up
                    events += await service.on_text_thread(show)
            if events:
                yield b"".join(events)
    except ClientGone:
        call.status = _CLIENT_CLOSED_REQUEST
    except Exception:
        call.status = 500
        # The status is sent already: the error has to travel inside the stream.
        logger.exception("%s failed", call.id)
        yield b"".join(reply.failed(unexpected()))
