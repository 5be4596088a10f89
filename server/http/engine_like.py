"""What the HTTP side asks of an engine, and no more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from radix_engine.cache import DEFAULT, Namespace
from server.cache_control import CacheControl
from server.chat.parser import AnswerParser
from server.chat.prompt import DEFAULT_OPTIONS, ChatOptions, ChatPrompt
from server.constraint import Constraint
from server.debug.inspector import Inspector
from server.generation_params import GenerationParams
from server.outputs import EngineInfo, Output
from server.queue_limit import QueueState
from server.readings import Readings
from server.token_text import TokenText


class TextLike(Protocol):
    """Text to token ids and back. Calls block (milliseconds for long texts) and are thread-safe."""

    @property
    def takes_tools(self) -> bool:
        """Whether the model's chat template shows it tool definitions."""

    def encode(self, text: str, /, *, special: bool = True) -> Sequence[int]:
        """Token ids of a plain text; with ``special`` also those that the tokenizer adds to it."""

    def chat_text(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        /,
        *,
        options: ChatOptions = DEFAULT_OPTIONS,
    ) -> str:
        """The text that ``chat_prompt`` makes tokens of. Raises RequestRefused likewise."""

    def chat_prompt(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        /,
        *,
        options: ChatOptions = DEFAULT_OPTIONS,
        namespace: Namespace = DEFAULT,
    ) -> ChatPrompt:
        """A conversation made ready, up to where the assistant's answer begins; answers that were
        remembered, to prompts of this namespace, have the tokens that they had.

        Raises RequestRefused when the model's chat template cannot express the messages.
        """

    def new_parser(
        self,
        *,
        tools: bool,
        definitions: Sequence[dict[str, Any]] = (),
        prompt: ChatPrompt | None = None,
    ) -> AnswerParser:
        """Parts an answer to ``prompt`` into reasoning, content and, with ``tools``, calls of the
        tools that ``definitions`` describe. The answer's text must show `marks`."""

    def call_constraint(
        self, definitions: Sequence[dict[str, Any]], prompt: ChatPrompt, /, *, several: bool
    ) -> Constraint:
        """What an answer that must call one of these tools has to look like; ``several``: more than
        one call may come. Raises RequestRefused where the model's form of calls is not known."""

    def reasoning_before(self, prompt: ChatPrompt, /) -> str:
        """What may come before an answer with a constraint, as `Constraint.before` has it."""

    def calls_instead(self, definitions: Sequence[dict[str, Any]], /, *, several: bool) -> str:
        """Calls that may come in place of an answer with a constraint, as `Constraint.instead` has
        it; empty where the model's form of calls is not known."""

    @property
    def call_openings(self) -> frozenset[int]:
        """The tokens that begin tool calls and nothing else."""

    def knows_variable(self, name: str, /) -> bool:
        """Whether the chat template looks at a variable of this name."""

    def marks(self, *, tools: bool) -> frozenset[int]:
        """The special tokens that an answer's text must show for its parser, which hides them."""

    def decode(self, ids: Sequence[int], /, *, special: bool = False) -> str:
        """The text of some tokens; ``special`` ones are shown only on request."""

    def token_text(self, token: int, /) -> TokenText:
        """How a token looks by itself. Quick; any thread."""

    def token_names(self, ids: Sequence[int], /) -> list[str | None]:
        """How the tokenizer's vocabulary writes tokens; None for those that it has not."""


class EngineLike(Protocol):
    """The engine behind the server. ``server.Engine`` is one."""

    @property
    def info(self) -> EngineInfo:
        """What is served and with which memory."""

    @property
    def text(self) -> TextLike:
        """The tokenizer and chat template of the served model."""

    @property
    def cache_control(self) -> CacheControl:
        """What may be done with the cache besides filling it. Its methods block for a step."""

    @property
    def inspector(self) -> Inspector:
        """Looks into the cache and the requests. Its methods block for a step."""

    def submit(
        self,
        prompt: Sequence[int],
        params: GenerationParams,
        on_output: Callable[[Output], None],
        /,
    ) -> int:
        """Queue a request and return its id. ``on_output`` is called on the engine's thread.

        Exactly one output of each of the ``params.n`` answers has a ``finish_reason``, its last.
        Raises RequestRefused.
        """

    def abort(self, request_id: int, /) -> None:
        """End all answers of a request soon. Thread-safe; does nothing for one that has ended."""

    def note_tool_call(self, request_id: int, index: int, /) -> None:
        """Answer ``index`` of a request, which has just ended, turned out to call a tool. Thread-
        safe; never blocks, and does nothing for one that is not known any more."""

    def flush_cache(self) -> int:
        """Drop all that is cached and not in use; the number of blocks freed. Blocks for a step."""

    def audit(self) -> list[str]:
        """Check that every block has exactly one owner; what is wrong, one line each. Blocks for a
        step."""

    def counters(self) -> dict[str, int]:
        """Sums since the start."""

    def state(self) -> dict[str, int]:
        """How many requests and blocks are in which state now."""

    def queue(self, tenant: str | None, /) -> QueueState:
        """How many requests wait, of all and of a tenant. Never blocks."""

    def readings(self) -> Readings:
        """Counts and times at this moment. Never blocks."""

    def stalled_s(self) -> float:
        """Seconds since a step last ended, or work came; 0.0 while there is none. Never blocks."""

    def stack(self) -> str:
        """What the engine's thread is doing right now, for the log. Never blocks."""

    def is_alive(self) -> bool:
        """Whether the engine still makes steps. Never blocks."""

    def shutdown(self, grace_s: float, /) -> None:
        """Refuse new requests, give the running ones ``grace_s`` seconds, end the rest, return."""
