"""What sets one generating endpoint apart from the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from server.http.engine_like import TextLike
from server.http.errors import ApiError, ErrorForm, openai_form
from server.http.job import Context, Job
from server.outputs import Completion, Output, Usage


@dataclass(frozen=True, slots=True)
class Head:
    """What all bodies of an answer tell: its id, when it began (seconds since 1970), the model."""

    id: str
    created: int
    model: str


class Reply(Protocol):
    """One request's answer on its way to its client, in the words of the endpoint's API."""

    def whole(self, answers: Sequence[Completion], usage: Usage) -> dict[str, Any]:
        """All choices at once, as one body."""

    def events(self, choice: int, output: Output, final: Usage | None) -> list[bytes]:
        """What a stream shows of the next output of a choice; may be nothing. ``final``: the counts
        of all, with the last output of the last choice."""

    def has_called(self, choice: int) -> bool:
        """Whether a choice, which has ended, ended to call a tool."""

    def failed(self, error: ApiError) -> list[bytes]:
        """The end of a stream that cannot go on."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """``id_prefix``: what the ids of its answers begin with. ``prompt_field``: the field that holds
    the prompts, for messages. ``prepare`` makes a job of the body; it blocks and raises ApiError or
    RequestRefused. ``reply`` begins an answer. ``error`` is how it tells that there is none.
    ``id_header``: another header that tells the request's id, besides X-Request-Id. ``ping``: what
    a stream sends where nothing else comes for a while; empty: nothing.
    """

    id_prefix: str
    prompt_field: str
    prepare: Callable[[bytes, Context], Job]
    reply: Callable[[Job, TextLike, Head], Reply]
    error: ErrorForm = openai_form
    id_header: str | None = None
    ping: bytes = b""
