"""The answers and beam searches that have not ended, and how they end."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from scheduler import Request, Scheduler
from server.answer import Answer
from server.beam_search import BeamSearch

logger = logging.getLogger(__name__)


class ActiveAnswers:
    """By the scheduler's requests, and by what was asked for.

    A request of the scheduler belongs to one answer, or to a beam search, which has several.
    ``answers``: by request id; ``searches``: by the request id of each beam. What ends leaves both,
    and gives its blocks back.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.answers: dict[int, Answer] = {}
        self.searches: dict[int, BeamSearch] = {}
        self._asked: dict[int, list[Answer] | BeamSearch] = {}  # by the id that was asked for

    @property
    def is_empty(self) -> bool:
        """Whether all answers have ended."""
        return not self._asked

    def add(self, answers: Sequence[Answer]) -> None:
        """Queue the answers to one prompt: their requests are the first's branches."""
        first = answers[0]
        self._asked[first.asked_id] = list(answers)
        for answer in answers:
            self.answers[answer.request.request_id] = answer
        self._submit(first.request, first.asked_id)

    def add_search(self, search: BeamSearch) -> None:
        """Queue a beam search."""
        self._asked[search.asked_id] = search
        self.searches[search.beams[0].request_id] = search
        self._submit(search.beams[0], search.asked_id)

    def end(self, asked_id: int, reason: str, error: str | None = None) -> None:
        """End all answers of a request, in any state. Unknown ids are ignored."""
        asked = self._asked.get(asked_id)
        if isinstance(asked, BeamSearch):
            self.end_search(asked, reason, error)
        else:
            # Branches first: they would go on without the one that they are to fork off.
            for answer in list(reversed(asked or [])):
                self.end_answer(answer, reason, error)

    def end_all(self, reason: str, error: str | None = None) -> None:
        """End everything."""
        for asked_id in list(self._asked):
            self.end(asked_id, reason, error)

    def _submit(self, request: Request, asked_id: int) -> None:
        with self.guard(asked_id):
            self._scheduler.submit(request, time.monotonic())

    @contextmanager
    def guard(self, asked_id: int, answer: Answer | None = None) -> Iterator[None]:
        """What goes wrong in here ends this answer, or all that were asked for under an id."""
        try:
            yield
        except Exception as error:
            logger.exception("request %d failed", asked_id)
            if answer is None:
                self.end(asked_id, "error", describe(error))
            else:
                self.end_answer(answer, "error", describe(error))

    def fail(self, requests: Iterable[Request], error: str) -> None:
        """End the answers of these requests, and of those that have not forked off them yet."""
        for request in requests:
            search = self.searches.get(request.request_id)
            if search is not None:
                self.end_search(search, "error", error)
                continue
            # Branches first: they would go on without the one that they are to fork off.
            for each in (*reversed(request.branches), request):
                answer = self.answers.get(each.request_id)
                if answer is not None:
                    self.end_answer(answer, "error", error)

    def end_answer(self, answer: Answer, reason: str, error: str | None = None) -> None:
        """End one answer, and its request."""
        self.forget(answer)
        self._abort(answer.request)
        try:
            answer.end(reason, error)
        except Exception as failure:
            logger.exception("request %d could not be ended cleanly", answer.asked_id)
            answer.end("error", describe(failure))  # this way touches no tokenizer

    def end_search(self, search: BeamSearch, reason: str, error: str | None = None) -> None:
        """End a beam search, and the requests of its beams."""
        self.forget_search(search)
        for request in search.requests:
            self._abort(request)
        search.end(reason, error)

    def _abort(self, request: Request) -> None:
        try:
            self._scheduler.abort(request)
        except Exception:
            logger.exception("request %d could not give its blocks back", request.request_id)

    def forget(self, answer: Answer) -> None:
        """An answer has ended by itself."""
        if self.answers.pop(answer.request.request_id, None) is None:
            return
        asked = self._asked[answer.asked_id]
        assert isinstance(asked, list)
        asked.remove(answer)
        if not asked:
            del self._asked[answer.asked_id]

    def forget_search(self, search: BeamSearch) -> None:
        """A beam search has ended by itself."""
        self._asked.pop(search.asked_id, None)
        for beam in search.beams:
            self.searches.pop(beam.request_id, None)


def describe(error: BaseException) -> str:
    """An error in one line, for the answer that it ends."""
    return f"{type(error).__name__}: {error}"
