"""An engine that answers by script, on a thread of its own, to drive the HTTP side in tests.

A prompt's tokens are bytes of UTF-8. The last word of its first line chooses the script: ``hold``
sends one piece and then waits, ``queue`` sends nothing, ``fail`` ends with an error after one
piece, ``crash`` breaks submit(), some have a reply of their own (see REPLIES); all else is answered
with REPLY at once. Where several answers are asked for, they come in turn, a piece of each; the
last gets one piece more: its number. Each piece is one token, the first byte of its text, with a
log-probability of -0.5 and LIKELIEST.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from radix_engine.cache import MatchEnd, PrefixCache, Reason
from radix_engine.model.token_logprob import TokenLogprob
from scheduler import Limits, Scheduler
from server.cache_control import CacheControl
from server.debug.inspector import Inspector
from server.debug.lives import Lives
from server.errors import RequestRefused
from server.generation_params import GenerationParams
from server.outputs import EngineInfo, Output, PromptLogprobs, Usage
from server.queue_limit import QueueState
from server.readings import Readings
from server.token_text import TokenText
from tests.server_http.scripted_chat import ScriptedChat

REPLY = ("Hello", ", ", "w\u00f6rld", "!")
INFO = EngineInfo(
    model="scripted-1",
    context_length=256,
    block_size=16,
    num_blocks=64,
    kv_bytes_per_token=1000,
    weights="fp32",
    kv_dtype="fp32",
    kernels="torch",
    exact=False,
    prefix_cache=True,
    limits=Limits(256),
)
LIKELIEST = ((65, -0.25), (66, -0.5), (195, -2.0))  # A, B, and the beginning of a character
TIMEOUT_S = 20.0


def script_of(prompt: Sequence[int]) -> str:
    """The last word of the first line."""
    return bytes(prompt).decode(errors="replace").partition("\n")[0].split(" ")[-1]


class ScriptedText(ScriptedChat):
    """Bytes as token ids. A text that contains ``gate`` waits until the gate is open."""

    takes_tools = True

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.at_gate = threading.Event()

    def encode(self, text: str, /, *, special: bool = True) -> list[int]:
        if "gate" in text:
            self.at_gate.set()
            assert self.gate.wait(TIMEOUT_S)
        return list(text.encode())

    def decode(self, ids: Sequence[int], /, *, special: bool = False) -> str:
        return bytes(ids).decode(errors="replace")

    def token_names(self, ids: Sequence[int], /) -> list[str | None]:
        return [chr(token) if token < 256 else None for token in ids]

    def token_text(self, token: int, /) -> TokenText:
        data = bytes([token])
        return TokenText(data.decode() if token < 128 else f"bytes:\\x{token:02x}", data)


@dataclass
class Held:
    """A request that has not ended."""

    prompt: tuple[int, ...]
    params: GenerationParams
    on_output: Callable[[Output], None]
    cached: int
    sent: dict[int, int] = field(default_factory=dict)  # tokens, by answer
    begun: set[int] = field(default_factory=set)
    running: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.running.update(range(self.params.n))

    def emit(
        self, request_id: int, index: int, text: str, reason: str | None, error: str | None
    ) -> None:
        if index not in self.running:
            return
        tokens = tuple(text.encode()[:1])
        self.sent[index] = self.sent.get(index, 0) + len(tokens)
        if reason is not None:
            self.running.remove(index)
        end = MatchEnd(Reason.FULL if self.cached else Reason.COLD, self.cached)
        usage = Usage(len(self.prompt), self.sent[index], self.cached, end)
        first = index not in self.begun
        self.begun.add(index)
        output = Output(
            request_id,
            text,
            tokens,
            reason,
            usage,
            error,
            index,
            logprobs=self.logprobs(tokens, self.params.logprobs),
            prompt_logprobs=self.prompt_logprobs() if first else None,
        )
        self.on_output(output)

    def logprobs(self, tokens: Sequence[int], top: int | None) -> tuple[TokenLogprob, ...] | None:
        if top is None:
            return None
        return tuple(TokenLogprob(token, -0.5, LIKELIEST[:top]) for token in tokens)

    def prompt_logprobs(self) -> PromptLogprobs | None:
        known = self.logprobs(self.prompt[1:], self.params.prompt_logprobs)
        return None if known is None else (None, *known)


@dataclass
class Record:
    """What a test may look at; every change notifies ``changed``."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    submitted: dict[int, tuple[str, GenerationParams]] = field(default_factory=dict)
    aborted: list[int] = field(default_factory=list)
    tool_calls: list[tuple[int, int]] = field(default_factory=list)  # (request, answer)
    ended: set[int] = field(default_factory=set)

    def wait_until(self, true: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(true, TIMEOUT_S), "it did not happen in time"

    def ids_of(self, prompt: str) -> list[int]:
        return [key for key, (text, _) in self.submitted.items() if text == prompt]


class ScriptedEngine:
    """See the module."""

    def __init__(self) -> None:
        self.info = INFO
        self.text = ScriptedText()
        self.record = Record()
        cache = PrefixCache(64)
        self.cache_control = CacheControl(cache, lambda work: work())
        scheduler = Scheduler(cache, Limits())
        self.inspector = Inspector(
            cache, scheduler, Lives(), lambda work: work(), self.text.decode, self.readings
        )
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._held: dict[int, Held] = {}
        self._seen: set[tuple[int, ...]] = set()
        self._refuses = False
        self.stall_s = 0.0  # what a test wants it to say
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def submit(
        self,
        prompt: Sequence[int],
        params: GenerationParams,
        on_output: Callable[[Output], None],
        /,
    ) -> int:
        if self._refuses:
            raise RequestRefused("No more.", code="server_shutting_down", status=503)
        if not prompt:
            raise RequestRefused("The prompt is empty; it needs 1 token.", param="prompt")
        if any(not 0 <= token < 256 for token in prompt):
            raise RequestRefused("Token ids must be from 0 to 255.", param="prompt")
        if len(prompt) > self.info.max_prompt_tokens:
            raise RequestRefused(
                f"The prompt has {len(prompt)} tokens; the limit is {self.info.max_prompt_tokens}.",
                param="prompt",
                code="context_length_exceeded",
            )
        text = bytes(prompt).decode(errors="replace")
        if text.endswith("crash"):
            raise ZeroDivisionError("as the script says")
        cached = (len(prompt) - 1) // 16 * 16 if tuple(prompt) in self._seen else 0
        self._seen.add(tuple(prompt))
        with self.record.changed:
            request_id = len(self.record.submitted) + 1
            self.record.submitted[request_id] = (text, params)
            self._held[request_id] = Held(tuple(prompt), params, on_output, cached)
            self.record.changed.notify_all()
        self._work.put(lambda: self._play(request_id, script_of(prompt)))
        return request_id

    def abort(self, request_id: int, /) -> None:
        with self.record.changed:
            self.record.aborted.append(request_id)
            self.record.changed.notify_all()
        self._work.put(lambda: self._emit(request_id, "", "abort"))

    def release(self) -> None:
        """Let everything held end well."""
        for request_id in list(self._held):
            self._work.put(partial(self._emit, request_id, "!", "stop"))

    def queue(self, tenant: str | None, /) -> QueueState:
        """Those whose script is ``queue`` wait; there is no place but theirs."""
        waiting = [held for held in list(self._held.values()) if script_of(held.prompt) == "queue"]
        of_tenant = [held for held in waiting if held.params.namespace.tenant == tenant]
        return QueueState(len(waiting), len(of_tenant), 0)

    def note_tool_call(self, request_id: int, index: int, /) -> None:
        self.record.tool_calls.append((request_id, index))

    def flush_cache(self) -> int:
        blocks = sum(len(prompt) // 16 for prompt in self._seen)
        self._seen.clear()
        return blocks

    def audit(self) -> list[str]:
        return ["block 7 has two owners"]

    def counters(self) -> dict[str, int]:
        return {"prompt_tokens": 1, "cached_tokens": 2}

    def state(self) -> dict[str, int]:
        return {"running": len(self._held)}

    def readings(self) -> Readings:
        return Readings(self.counters(), self.state(), stalled_s=self.stall_s)

    def stalled_s(self) -> float:
        return self.stall_s

    def stack(self) -> str:
        return "  the script, line 7\n"

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def die(self) -> None:
        """End the thread as a fault would."""
        self._work.put(None)
        self._thread.join()

    def shutdown(self, grace_s: float, /) -> None:
        self._refuses = True
        with self.record.changed:
            self.record.changed.wait_for(lambda: not self._held, grace_s)
        for request_id in list(self._held):
            self._work.put(partial(self._emit, request_id, "", "abort"))
        self.die()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def _play(self, request_id: int, script: str) -> None:
        if script == "queue":
            return
        params = self._held[request_id].params
        if not params.max_tokens:
            self._emit(request_id, "", "length")
            return
        reply = self.text.replies.get(script, REPLY)
        for count, piece in enumerate(reply, start=1):
            if script == "hold" and count == 2:
                return
            if script == "fail" and count == 2:
                self._emit(request_id, "", "error", "the script says so")
                return
            last = count in (params.max_tokens, len(reply))
            reason = None if not last else "stop" if count == len(reply) else "length"
            if last and params.n > 1:
                self._emit(request_id, str(params.n - 1), None, index=params.n - 1)
            self._emit(request_id, piece, reason)
            if last:
                return

    def _emit(
        self,
        request_id: int,
        text: str,
        reason: str | None,
        error: str | None = None,
        *,
        index: int | None = None,
    ) -> None:
        """One piece of an answer, or of all answers of a request."""
        held = self._held.get(request_id)
        if held is None:
            return
        for each in range(held.params.n) if index is None else (index,):
            held.emit(request_id, each, text, reason, error)
        if not held.running:
            with self.record.changed:
                del self._held[request_id]
                self.record.ended.add(request_id)
                self.record.changed.notify_all()
