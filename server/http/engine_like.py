"""What the HTTP side asks of an engine, and no more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from server.outputs import EngineInfo, GenerationParams, Output
from server.token_text import TokenText


class TextLike(Protocol):
    """Text to token ids and back. Calls block (milliseconds for long texts) and are thread-safe."""

    @property
    def takes_tools(self) -> bool:
        """Whether the model's chat template shows it tool definitions."""

    def encode(self, text: str, /) -> Sequence[int]:
        """Token ids of a plain text."""

    def render_chat(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, /
    ) -> Sequence[int]:
        """Token ids of a conversation, up to where the assistant's answer begins.

        Raises RequestRefused when the model's chat template cannot express the messages.
        """

    def decode(self, ids: Sequence[int], /, *, special: bool = False) -> str:
        """The text of some tokens; ``special`` ones are shown only on request."""

    def token_text(self, token: int, /) -> TokenText:
        """How a token looks by itself. Quick; any thread."""


class EngineLike(Protocol):
    """The engine behind the server. ``server.Engine`` is one."""

    @property
    def info(self) -> EngineInfo:
        """What is served and with which memory."""

    @property
    def text(self) -> TextLike:
        """The tokenizer and chat template of the served model."""

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

    def flush_cache(self) -> int:
        """Drop all that is cached and not in use; the number of blocks freed. Blocks for a step."""

    def tree(self) -> dict[str, Any]:
        """The radix tree, ready for JSON. Blocks for a step."""

    def counters(self) -> dict[str, int]:
        """Sums since the start."""

    def state(self) -> dict[str, int]:
        """How many requests and blocks are in which state now."""

    def is_alive(self) -> bool:
        """Whether the engine still makes steps. Never blocks."""

    def shutdown(self, grace_s: float, /) -> None:
        """Refuse new requests, give the running ones ``grace_s`` seconds, end the rest, return."""
