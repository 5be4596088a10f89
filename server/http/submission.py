"""The engine requests of one HTTP request, from submission to the last output."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Sequence

from server.errors import RequestRefused
from server.http.bridge import Bridge
from server.http.engine_like import EngineLike
from server.http.errors import ApiError, from_refusal
from server.outputs import GenerationParams, Output, Usage

# An output, with the index of its choice.
Piece = tuple[int, Output]


class ClientGone(Exception):
    """The client has hung up; nobody reads what would be sent."""


class Submission:
    """One engine request per prompt, and their outputs in one queue.

    The choices of a request with ``n`` answers per prompt are numbered as OpenAI does: answer ``j``
    to prompt ``i`` is choice ``i * n + j``. Made, read and given up on the event loop; ``submit``
    runs on another thread, since checking a long prompt takes a while.
    """

    def __init__(self, engine: EngineLike, bridge: Bridge[Piece]) -> None:
        bridge.attach()
        self._engine = engine
        self._bridge = bridge
        self._queue: asyncio.Queue[Piece | None] = asyncio.Queue()
        self._ids: list[int] = []
        self._answers = 1  # to each prompt
        self._usage: dict[int, Usage] = {}
        self._finished: set[int] = set()
        self._given_up = False

    def submit(
        self, prompts: Sequence[Sequence[int]], params: GenerationParams, *, param: str
    ) -> None:
        """Queue all prompts. Raises ApiError for the first that is refused, or ClientGone.

        ``param`` is the request's field that holds the prompts. Those before the refused one run
        until ``give_up``.
        """
        self._answers = params.n
        for index, prompt in enumerate(prompts):
            if self._given_up:
                raise ClientGone
            try:
                request_id = self._engine.submit(
                    prompt, params, functools.partial(self._on_output, index)
                )
            except RequestRefused as refusal:
                where = f"{param}[{index}]" if len(prompts) > 1 else ""
                raise from_refusal(refusal, param=param, where=where) from refusal
            self._ids.append(request_id)
            if self._given_up:  # given up during the call, so give_up() has not seen this one
                self._engine.abort(request_id)

    async def batches(self) -> AsyncIterator[list[Piece]]:
        """All outputs that have arrived, again and again until every request has ended.

        Raises ClientGone after a hang-up.
        """
        running = len(self._ids) * self._answers
        while running:
            arrived = [await self._queue.get()]
            while not self._queue.empty():
                arrived.append(self._queue.get_nowait())
            if self._given_up:
                raise ClientGone
            pieces = [piece for piece in arrived if piece is not None]
            running -= sum(output.finish_reason is not None for _, output in pieces)
            yield pieces

    def usage(self) -> Usage:
        """Token counts of all requests together, as far as they have come: each prompt once."""
        prompts = {choice // self._answers: usage for choice, usage in self._usage.items()}
        return Usage(
            prompt_tokens=sum(each.prompt_tokens for each in prompts.values()),
            completion_tokens=sum(each.completion_tokens for each in self._usage.values()),
            cached_tokens=sum(each.cached_tokens for each in prompts.values()),
        )

    def give_up(self) -> None:
        """Abort what has not ended, and wake the reader. Safe to call again."""
        if self._given_up:
            return
        self._given_up = True
        for index, request_id in enumerate(list(self._ids)):
            choices = range(index * self._answers, (index + 1) * self._answers)
            if not self._finished.issuperset(choices):
                self._engine.abort(request_id)
        self._queue.put_nowait(None)

    def _on_output(self, index: int, output: Output) -> None:
        self._bridge.post(self._receive, (index * self._answers + output.index, output))

    def _receive(self, piece: Piece) -> None:
        choice, output = piece
        self._usage[choice] = output.usage
        if output.finish_reason is not None:
            self._finished.add(choice)
        self._queue.put_nowait(piece)


def failure(output: Output) -> ApiError | None:
    """The error that an output ends with, if it ends with one."""
    if output.finish_reason == "error":
        reason = output.error or "no reason given"
        return ApiError(500, f"The engine failed on this request: {reason}", code="engine_error")
    return None
