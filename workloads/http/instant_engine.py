"""An engine that has its answer at once: what is left of a request's time is the HTTP side's.

Like the real one it takes requests on any thread and answers on one of its own.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from radix_engine.cache import DEFAULT, MatchEnd, Namespace, PrefixCache, Reason
from scheduler import Limits, Scheduler
from server.cache_control import CacheControl
from server.chat.parser import AnswerParser, PlainParser
from server.chat.prompt import DEFAULT_OPTIONS, ChatOptions, ChatPrompt
from server.constraint import Constraint
from server.debug.inspector import Inspector
from server.debug.lives import Lives
from server.errors import RequestRefused
from server.garbage import GarbageCollector, tame_garbage_collector
from server.generation_params import GenerationParams
from server.outputs import EngineInfo, Output, Usage
from server.queue_limit import QueueState
from server.readings import Readings
from server.token_text import TokenText

MODEL = "instant"
WORD = " word"
TOKENS = 16
"""Of every answer."""

Work = tuple[int, int, Callable[[Output], None]]


class InstantText:
    """Bytes as token ids, and conversations as their texts in lines."""

    takes_tools = False
    call_openings: frozenset[int] = frozenset()

    def encode(self, text: str, /, *, special: bool = True) -> list[int]:
        """The bytes."""
        return list(text.encode())

    def decode(self, ids: Sequence[int], /, *, special: bool = False) -> str:
        """The text of some bytes."""
        return bytes(ids).decode(errors="replace")

    def token_names(self, ids: Sequence[int], /) -> list[str | None]:
        """The bytes."""
        return [chr(token) for token in ids]

    def token_text(self, token: int, /) -> TokenText:
        """The byte."""
        data = bytes([token])
        return TokenText(data.decode("latin-1"), data)

    def chat_text(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        /,
        *,
        options: ChatOptions = DEFAULT_OPTIONS,
    ) -> str:
        """A line for each message."""
        return "\n".join(str(message["content"]) for message in messages)

    def render_chat(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, /
    ) -> list[int]:
        """The bytes of these lines."""
        return self.encode(self.chat_text(messages, tools))

    def chat_prompt(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        /,
        *,
        options: ChatOptions = DEFAULT_OPTIONS,
        namespace: Namespace = DEFAULT,
    ) -> ChatPrompt:
        """Both."""
        text = self.chat_text(messages, tools)
        return ChatPrompt(self.encode(text), text)

    def new_parser(
        self,
        *,
        tools: bool,
        definitions: Sequence[dict[str, Any]] = (),
        prompt: ChatPrompt | None = None,
    ) -> AnswerParser:
        """Answers are content and nothing else."""
        return PlainParser()

    def call_constraint(
        self, definitions: Sequence[dict[str, Any]], prompt: ChatPrompt, /, *, several: bool
    ) -> Constraint:
        """There are no calls."""
        raise RequestRefused("this engine calls no tools; leave tool_choice out", param="tools")

    def reasoning_before(self, prompt: ChatPrompt, /) -> str:
        """Nothing."""
        return ""

    def calls_instead(self, definitions: Sequence[dict[str, Any]], /, *, several: bool) -> str:
        """Nothing."""
        return ""

    def knows_variable(self, name: str, /) -> bool:
        """None."""
        return False

    def marks(self, *, tools: bool) -> frozenset[int]:
        """None."""
        return frozenset()


class InstantEngine:
    """Answers every request with the same words. See the module."""

    def __init__(self) -> None:
        self.text = InstantText()
        self.info = EngineInfo(
            model=MODEL,
            context_length=1 << 20,
            block_size=16,
            num_blocks=1 << 16,
            kv_bytes_per_token=1,
            weights="fp32",
            kv_dtype="fp32",
            kernels="torch",
            exact=True,
            prefix_cache=False,
            limits=Limits(256),
        )
        self.cache_control = CacheControl(None, lambda work: work())
        self.inspector = Inspector(
            None,
            Scheduler(PrefixCache(1), Limits()),
            Lives(),
            lambda work: work(),
            self.text.decode,
            self.readings,
        )
        self._ids = 0
        self._collector: GarbageCollector | None = None
        self._lock = threading.Lock()
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def tame_garbage_collector(self) -> None:
        """As the real engine does it where the process does nothing but serve."""
        self._collector = tame_garbage_collector()

    def submit(
        self,
        prompt: Sequence[int],
        params: GenerationParams,
        on_output: Callable[[Output], None],
        /,
    ) -> int:
        """Have it answered."""
        with self._lock:
            self._ids += 1
            request_id = self._ids
        self._work.put((request_id, len(prompt), on_output))
        return request_id

    def abort(self, request_id: int, /) -> None:
        """All are answered by then."""

    def note_tool_call(self, request_id: int, index: int, /) -> None:
        """Nothing is cached that could be kept for it."""

    def flush_cache(self) -> int:
        """There is none."""
        return 0

    def audit(self) -> list[str]:
        """There is nothing to audit."""
        return []

    def counters(self) -> dict[str, int]:
        """Requests so far."""
        return {"requests": self._ids}

    def state(self) -> dict[str, int]:
        """Nothing waits."""
        return {"running": 0, "waiting": 0}

    def queue(self, tenant: str | None, /) -> QueueState:
        """Nothing waits."""
        return QueueState(0, 0, self.info.limits.max_running)

    def readings(self) -> Readings:
        """Requests so far."""
        return Readings(self.counters(), self.state())

    def stalled_s(self) -> float:
        """Never."""
        return 0.0

    def stack(self) -> str:
        """Not of interest."""
        return ""

    def is_alive(self) -> bool:
        """Whether it answers."""
        return self._thread.is_alive()

    def shutdown(self, grace_s: float, /) -> None:
        """Answer what has come and end."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            _answer(work)
            while not self._work.empty():  # a step answers all that has come
                if (work := self._work.get()) is None:
                    return
                _answer(work)
            if self._collector is not None:
                self._collector.between_steps()


def _answer(work: Work) -> None:
    request_id, length, on_output = work
    for count in range(1, TOKENS + 1):
        usage = Usage(length, count, 0, MatchEnd(Reason.BYPASSED, 0))
        reason = "stop" if count == TOKENS else None
        on_output(Output(request_id, WORD, (count,), reason, usage))
