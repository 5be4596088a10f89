"""The engine requests of one HTTP request, from submission to the last output."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Sequence

from server.errors import RequestRefused
from server.generation_params import GenerationParams
from server.http.bridge import Bridge
from server.http.door import Visit
from server.http.engine_like import EngineLike
from server.http.errors import ApiError, from_refusal
from server.metrics import RequestTimes
from server.outputs import Output, Retained, Usage

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

    def __init__(self, engine: EngineLike, bridge: Bridge[Piece], times: RequestTimes) -> None:
        bridge.attach()
        self._times = times
        self.visit: Visit | None = None  # the places at the door that it holds
        # Given each answer's tokens at its end; see `Job`.
        self.remember: Callable[[Sequence[int]], None] | None = None
        self._engine = engine
        self._bridge = bridge
        self._queue: asyncio.Queue[Piece | None] = asyncio.Queue()
        self._ids: list[int] = []
        self._answers = 1  # to each prompt
        self._usage: dict[int, Usage] = {}
        self._finished: dict[int, str] = {}  # reasons, by choice
        self._tokens: dict[int, list[int]] = {}  # by choice, where they are to be remembered
        self._lost: ApiError | None = None
        self._given_up = False

    def submit(
        self, prompts: Sequence[Sequence[int]], params: GenerationParams, *, param: str
    ) -> None:
        """Queue all prompts. Raises ApiError for the first that is refused, or ClientGone.

        ``param`` is the request's field that holds the prompts. Those before the refused one run
        until ``give_up``.
        """
        self._answers = params.n
        self._times.submitting()
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
            if self.visit is not None:
                self.visit.queued()
            if self._given_up:  # given up during the call, so give_up() has not seen this one
                self._engine.abort(request_id)

    async def batches(self, idle_s: float | None = None) -> AsyncIterator[list[Piece]]:
        """All outputs that have arrived, again and again until every request has ended. With
        ``idle_s`` also an empty list after so many seconds without any.

        Raises ClientGone after a hang-up, and what it was abandoned with.
        """
        running = len(self._ids) * self._answers
        while running:
            try:
                async with asyncio.timeout(idle_s):
                    arrived = [await self._queue.get()]
            except TimeoutError:
                yield []
                continue
            while not self._queue.empty():
                arrived.append(self._queue.get_nowait())
            if self._lost is not None:
                raise self._lost
            if self._given_up:
                raise ClientGone
            pieces = [piece for piece in arrived if piece is not None]
            running -= sum(output.finish_reason is not None for _, output in pieces)
            yield pieces

    def usage(self) -> Usage:
        """Token counts of all requests together, as far as they have come: each prompt once."""
        last_first = sorted(self._usage.items(), reverse=True)  # a prompt's first answer counts
        by_prompt = {choice // self._answers: usage for choice, usage in last_first}
        prompts = [by_prompt[index] for index in sorted(by_prompt)]
        ends = tuple(each.match_end for each in prompts)
        retained = [each.retained for each in prompts if each.retained is not None]
        return Usage(
            prompt_tokens=sum(each.prompt_tokens for each in prompts),
            completion_tokens=sum(each.completion_tokens for each in self._usage.values()),
            cached_tokens=sum(each.cached_tokens for each in prompts),
            match_end=ends[0] if ends else None,
            retained=_together(retained) if retained else None,
            match_ends=ends if len(self._ids) > 1 else (),
        )

    def finish_reasons(self) -> tuple[str, ...]:
        """Why the answers that have ended did, in the order of the choices."""
        return tuple(reason for _, reason in sorted(self._finished.items()))

    @property
    def engine_ids(self) -> tuple[int, ...]:
        """What the engine's log calls the requests."""
        return tuple(self._ids)

    def note_tool_call(self, choice: int) -> None:
        """A choice, which has ended, calls a tool. Any thread."""
        prompt, answer = divmod(choice, self._answers)
        self._engine.note_tool_call(self._ids[prompt], answer)

    @property
    def was_aborted(self) -> bool:
        """Whether the engine ended before an answer did."""
        return self._lost is not None or "abort" in self._finished.values()

    def abandon(self, error: ApiError) -> None:
        """Nothing comes from the engine any more: whoever waits for it gets this error."""
        self._lost = error
        self._queue.put_nowait(None)

    def give_up(self) -> None:
        """Abort what has not ended, and wake the reader. Safe to call again."""
        if self._given_up:
            return
        self._given_up = True
        if self.visit is not None:
            self.visit.leave()
        for index, request_id in enumerate(list(self._ids)):
            if not self._is_over(index):
                self._engine.abort(request_id)
        self._queue.put_nowait(None)

    def _is_over(self, index: int) -> bool:
        """Whether all answers to a prompt have ended."""
        choices = range(index * self._answers, (index + 1) * self._answers)
        return all(choice in self._finished for choice in choices)

    def _on_output(self, index: int, output: Output) -> None:
        self._bridge.post(self._receive, (index * self._answers + output.index, output))

    def _collect(
        self, choice: int, output: Output, remember: Callable[[Sequence[int]], None]
    ) -> None:
        tokens = self._tokens.setdefault(choice, [])
        tokens += output.token_ids
        if output.finish_reason is not None:
            del self._tokens[choice]
            if tokens and output.finish_reason != "error":
                remember(tokens)

    def _receive(self, piece: Piece) -> None:
        choice, output = piece
        self._usage[choice] = output.usage
        self._times.received(choice, output)
        if self.remember is not None:
            self._collect(choice, output, self.remember)
        if output.finish_reason is not None:
            self._finished[choice] = output.finish_reason
            if self.visit is not None and self._is_over(choice // self._answers):
                self.visit.ended()
        self._queue.put_nowait(piece)


def _together(retained: Sequence[Retained]) -> Retained:
    """What came of retaining several prompts."""
    refused = (each.refused for each in retained if each.refused is not None)
    ids = (each.id for each in retained if each.id is not None)
    return Retained(sum(each.tokens for each in retained), next(refused, None), next(ids, None))


def failure(output: Output) -> ApiError:
    """The error that an output with the finish reason ``error`` ends with."""
    reason = output.error or "no reason given"
    return ApiError(500, f"The engine failed on this request: {reason}", code="engine_error")
