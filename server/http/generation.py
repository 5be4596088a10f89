"""How a generating endpoint answers: read, parse, submit, then one body or a stream of events."""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect

from server.collector import join
from server.errors import RequestRefused
from server.http.body import read_body
from server.http.caller import caller_of
from server.http.client_id import client_id, echoed
from server.http.debug.register import Entry
from server.http.door import Visit
from server.http.endpoint import Endpoint, Head, Reply
from server.http.errors import ApiError, from_refusal, shutting_down, unexpected
from server.http.job import SCORE_BYTES, Job
from server.http.long_json import LongResponse
from server.http.openai.fields import ignored_header
from server.http.prompt_facts import diagnosis_of, look_for_near_misses
from server.http.request_log import CLIENT_CLOSED_REQUEST, Ending, record
from server.http.service import Service
from server.http.sse import EventStream
from server.http.submission import ClientGone, Submission, failure
from server.logs import fields
from server.metrics import RequestTimes
from server.outputs import Output

logger = logging.getLogger("server.http")


class Call:
    """One HTTP request on its way: its id, its answer so far, and what came of it."""

    def __init__(self, endpoint: Endpoint, service: Service, request: Request) -> None:
        self.id = endpoint.id_prefix + secrets.token_hex(12)
        self.created = int(time.time())
        self.endpoint = endpoint
        self.caller = caller_of(request)
        self.headers = request.headers
        self.text = service.engine.text
        self.model = service.engine.info.model
        self.status = 500
        self.error: ApiError | None = None
        self.times = RequestTimes(service.metrics.requests)
        self.submission = Submission(service.engine, service.bridge, self.times)
        self._request = request
        self._service = service
        service.begin(self.submission)
        service.register.begin(
            Entry(
                self.id,
                client_id(self.headers),
                request.scope["path"],
                self.caller.tenant,
                self.times,
                self.submission,
            )
        )
        self._watcher: asyncio.Task[None] | None = None
        self.job: Job | None = None  # once its prompts are submitted

    def reply(self, job: Job) -> Reply:
        """Begin the answer."""
        return self.endpoint.reply(job, self.text, Head(self.id, self.created, self.model))

    def note_tool_call(self, reply: Reply, choice: int) -> None:
        """Tell the engine of a choice that has ended to call a tool: its conversation may go on
        soon."""
        if reply.has_called(choice):
            self.submission.note_tool_call(choice)

    def as_error(self, refused: ApiError | RequestRefused) -> ApiError:
        """What the client is told."""
        if isinstance(refused, ApiError):
            return refused
        return from_refusal(refused, param=self.endpoint.prompt_field)

    def refusal(self, error: ApiError, headers: Mapping[str, str]) -> Response:
        """The whole answer, where it is an error."""
        self.fail(error)
        response = self.endpoint.error(error, self.id)
        response.headers.update(headers)
        self.status = response.status_code
        return response

    def fail(self, error: ApiError) -> None:
        """The request ends with an error."""
        self.status, self.error = error.status, error.untraced()

    def watch(self) -> None:
        """From now on (the body is read), abort everything at once when the client hangs up."""
        self._watcher = asyncio.create_task(self._wait_for_hang_up())

    async def _wait_for_hang_up(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self.submission.give_up()

    def end(self) -> None:
        """Abort what still runs; count and log what came of the request."""
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None  # it holds this call: memory in circles stays until long after
        submission = self.submission
        submission.give_up()
        self._service.end(submission)
        ending = Ending(
            self.id,
            client_id(self.headers),
            self.caller.tenant,
            self._request.scope["path"],
            self.status,
            self.error,
            submission.usage(),
            submission.finish_reasons(),
            submission.engine_ids,
            submission.was_aborted,
        )
        record(ending, self.times, self._service.metrics.requests)
        self._service.register.end(ending, self.times.elapsed_s)
        job = self.job
        if job is not None:
            look_for_near_misses(
                self._service.near_misses, job.prompts, job.facts, job.params, ending.usage
            )


async def respond(request: Request, service: Service, endpoint: Endpoint) -> Response:
    """Answer one request to a generating endpoint, whatever happens."""
    call = Call(endpoint, service, request)
    headers = {"X-Request-Id": call.id, **echoed(request.headers)}
    if endpoint.id_header is not None:
        headers[endpoint.id_header] = call.id
    streaming = False
    try:
        service.check_open()
        visit = call.submission.visit = service.door.enter(call.caller.tenant)
        body = await read_body(request, service.settings.max_body_bytes)
        call.watch()
        visit.expect(1)
        job = await service.on_text_thread(lambda: _start(body, service, call, visit), len(body))
        headers |= {**ignored_header(job.ignored), **job.headers}
        response: Response
        if job.stream:
            response = EventStream(_events(call, job, service), call.end, headers)
            streaming = True
        else:
            response = await _whole(call, job, service, headers)
        call.status = 200
    except (ClientGone, ClientDisconnect):
        call.status = CLIENT_CLOSED_REQUEST
        response = Response(status_code=call.status)
    except (ApiError, RequestRefused) as refused:
        response = call.refusal(call.as_error(refused), headers)
    except Exception:
        logger.exception("a request failed", extra=fields(request_id=call.id))
        response = call.refusal(unexpected(), headers)
    finally:
        if not streaming:
            call.end()
    return response


def _start(body: bytes, service: Service, call: Call, visit: Visit) -> Job:
    """Make a job of the body and submit it. Blocks."""
    context = service.context(call.caller, call.headers)
    job = call.endpoint.prepare(body, context)
    job = replace(job, params=service.bounded(job.params))
    visit.expect(len(job.prompts))
    call.submission.remember = job.remember
    call.submission.submit(job.prompts, job.params, param=call.endpoint.prompt_field)
    if len(job.facts) == 1:
        diagnosis = diagnosis_of(job.prompts[0], job.facts[0], job.params, service.recent, call.id)
        job = replace(job, diagnosis=diagnosis)
    call.job = job
    return job


async def _whole(
    call: Call, job: Job, service: Service, headers: Mapping[str, str]
) -> JSONResponse:
    """An answer that is sent at once. Raises ApiError when the engine gave up."""
    pieces: list[list[Output]] = [[] for _ in range(job.num_choices)]
    async for batch in call.submission.batches():
        for index, output in batch:
            if output.finish_reason == "error":
                raise failure(output)  # no name for it: its traceback has this frame
            if output.finish_reason == "abort":  # not by us: the client is still there
                raise shutting_down()
            pieces[index].append(output)
    usage, reply = call.submission.usage(), call.reply(job)

    def make() -> dict[str, Any]:
        body = reply.whole(list(map(join, pieces)), usage)
        for index in range(job.num_choices):
            call.note_tool_call(reply, index)
        return body

    size = job.work(usage)
    if size is None:
        return JSONResponse(make(), headers=dict(headers))
    return await service.on_text_thread(lambda: LongResponse(make(), headers=dict(headers)), size)


async def _events(call: Call, job: Job, service: Service) -> AsyncGenerator[bytes, None]:
    """The events of a streamed answer, as many at a time as are there."""
    reply, ping = call.reply(job), call.endpoint.ping
    try:
        running = job.num_choices
        async for batch in call.submission.batches(service.settings.ping_s if ping else None):
            if not batch:
                yield ping
                continue
            events: list[bytes] = []
            for index, output in batch:
                if output.finish_reason == "error":
                    error = failure(output)
                    call.fail(error)
                    yield b"".join([*events, *reply.failed(error)])
                    return
                running -= output.finish_reason is not None
                final = None if running else call.submission.usage()
                show = functools.partial(reply.events, index, output, final)
                if output.prompt_logprobs is None:
                    events += show()
                else:  # thousands of tokens may be looked up
                    size = SCORE_BYTES * output.usage.prompt_tokens
                    events += await service.on_text_thread(show, size)
                if output.finish_reason is not None:
                    call.note_tool_call(reply, index)
            if events:
                yield b"".join(events)
    except ClientGone:
        call.status = CLIENT_CLOSED_REQUEST
    except ApiError as error:  # the status is sent already: it has to travel inside the stream
        call.fail(error)
        yield b"".join(reply.failed(error))
    except Exception:
        logger.exception("a request failed", extra=fields(request_id=call.id))
        call.fail(unexpected())
        yield b"".join(reply.failed(unexpected()))
