"""When things happened to one HTTP request for an answer."""

from __future__ import annotations

from time import monotonic

from server.metrics.request_metrics import RequestMetrics
from server.outputs import Output


class RequestTimes:
    """Takes the time of each output as it reaches the event loop. Made when the request arrives.

    ``first_token_s`` and ``queue_s``: of the prompt whose first output came first, in seconds; None
    before it. Cost: a microsecond an output.
    """

    __slots__ = (
        "_began",
        "_last",
        "_metrics",
        "_prompts",
        "_submitted",
        "first_token_s",
        "queue_s",
    )

    def __init__(self, metrics: RequestMetrics) -> None:
        self._metrics = metrics
        self._began = monotonic()
        self._submitted = self._began
        self._prompts: set[int] = set()  # those that have had an output, or a first token
        self._last: dict[int, float] = {}  # by choice, when its last token came
        self.first_token_s: float | None = None
        self.queue_s: float | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the request arrived."""
        return monotonic() - self._began

    def submitting(self) -> None:
        """The request goes to the engine now."""
        self._submitted = monotonic()

    def received(self, choice: int, output: Output) -> None:
        """An output of a choice is there."""
        if not output.token_ids and output.finish_reason is None:
            return
        now, last = monotonic(), self._last.get(choice)
        if last is not None and output.token_ids:
            each = (now - last) / len(output.token_ids)
            for _ in output.token_ids:
                self._metrics.inter_token.observe(each)
        elif last is None and output.request_id not in self._prompts:
            self._prompts.add(output.request_id)
            self._first(output, now)
        self._last[choice] = now

    def _first(self, output: Output, now: float) -> None:
        """The first output of all answers to a prompt."""
        if output.admitted_s is not None:
            waited = max(0.0, output.admitted_s - self._submitted)
            self._metrics.queue.observe(waited)
            if self.queue_s is None:
                self.queue_s = waited
        if output.token_ids:
            took = now - self._began
            cached = "hit" if output.usage.cached_tokens else "miss"
            self._metrics.first_token[cached].observe(took)
            if self.first_token_s is None:
                self.first_token_s = took
