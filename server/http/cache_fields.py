"""What a request says about the cache: whose prefixes it shares, what it reads and stores, what is
to stay for a time, and which requests belong together.

The fields have the names that vLLM, SGLang and OpenAI's API gave them, where there is one; every
generating endpoint has them all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    WithJsonSchema,
    model_validator,
)

from radix_engine.cache import CacheMode, Namespace
from server.generation_params import MAX_RETENTION_S, WHOLE_PROMPT, Retain
from server.http.breakpoints import Mark
from server.http.caller import Caller
from server.http.diagnosis import MAX_ID
from server.http.job import Context

MAX_NAME = 1024
MOST_BREAKPOINTS = 4
DEFAULT_BREAKPOINT_S = 1800.0
_DAY_S = 86_400.0

SESSION_HEADERS = ("x-session-id", "x-claude-code-session-id", "session-id", "x-session-affinity")
# Of these a server keeps nothing that cannot retain.
_OF_RETENTION = ("cache_retention_s", "prompt_cache_options", "prompt_cache_retention")

_MODES = {
    "default": CacheMode.DEFAULT,
    "read-only": CacheMode.READ_ONLY,
    "none": CacheMode.BYPASS,
}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def namespace_of(caller: Caller, cache_salt: str | None = None) -> Namespace:
    """Whose prefixes a request shares: its tenant's, as the server knows it, and of these only
    those under the same salt. Nothing in a body changes the tenant."""
    return Namespace(tenant=caller.tenant, salt=cache_salt)


def seconds_of(ttl: str) -> float:
    """``30s``, ``5m``, ``1h`` or ``1d`` in seconds. Raises ValueError, also for more than
    a week."""
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", ttl)
    seconds = int(found[1]) * _SECONDS[found[2]] if found else 0
    if not 0 < seconds <= MAX_RETENTION_S:
        raise ValueError(
            f"ttl is {ttl[:60]!r}; it must be a whole number and a unit (s, m, h or d), such as "
            f"30m, more than 0 and at most {MAX_RETENTION_S} seconds."
        )
    return float(seconds)


def _checked(ttl: str) -> str:
    try:
        seconds_of(ttl)
    except ValueError as error:
        raise ValueError(f"prompt_cache_options.{error}") from None
    return ttl


Ttl = Annotated[
    str,
    AfterValidator(_checked),
    WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,9}[smhd]$"}),
]
_OPEN = ConfigDict(extra="allow", strict=True)


class PromptCacheOptions(BaseModel):
    """How long prefixes of this request stay."""

    model_config = _OPEN

    mode: Literal["implicit", "explicit"] | None = Field(
        None,
        description="implicit (default): the whole prompt stays for ttl, if one is given, and so "
        "do marked prefixes; explicit: marked prefixes only.",
    )
    ttl: Ttl | None = Field(
        None, description="For how long, such as 30m, at most 7d; for marked prefixes also."
    )
    comparison_response_id: str | None = Field(
        None,
        max_length=MAX_ID,
        description="The id of an earlier chat completion; prompt_cache_diagnostics then says what "
        "kept this one from being served what that one left in the cache.",
    )


class PromptCacheBreakpoint(BaseModel):
    """Marks the end of a prefix, in a part of a message's content."""

    model_config = _OPEN

    mode: Literal["explicit"] | None = Field(None, description="Only explicit.")
    ttl: Ttl | None = Field(
        None, description="For how long it stays, such as 30m; default: that of the request."
    )


@dataclass(frozen=True, slots=True)
class Caching:
    """What goes into the parameters of a generation, and the fields that have no effect here."""

    namespace: Namespace
    mode: CacheMode
    retain: tuple[Retain, ...]
    session: str | None
    ignored: tuple[str, ...] = ()


class CacheFields(BaseModel):
    """The fields of a body."""

    cache_salt: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_NAME,
        description="Only requests with the same salt share cached prefixes, a string of 1 to "
        f"{MAX_NAME} characters; default: those without one.",
    )
    cache_mode: Literal["default", "read-only", "none"] | None = Field(
        None,
        description="default: use the prefix cache and add to it; read-only: add nothing; none: "
        "neither.",
    )
    cache_retention_s: float | None = Field(
        None,
        gt=0,
        le=MAX_RETENTION_S,
        description="Seconds that the prompt's prefix stays cached after each use, whatever else "
        f"needs room; more than 0, at most {MAX_RETENTION_S}. See usage.cache_retention.",
    )
    prompt_cache_key: str | None = Field(
        None,
        max_length=MAX_NAME,
        description="Groups requests into a session, a string of at most "
        f"{MAX_NAME} characters. It neither separates nor is it needed for a hit.",
    )
    prompt_cache_options: PromptCacheOptions | None = Field(
        None, description="What of the prompt stays cached, and for how long."
    )
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = Field(
        None, description="24h is prompt_cache_options {ttl: 24h}; in_memory is no retention."
    )
    session_id: str | None = Field(
        None,
        max_length=MAX_NAME,
        description=f"Groups requests, a string of at most {MAX_NAME} characters; default: "
        "prompt_cache_key, or a header (X-Session-ID and others).",
    )
    rid: str | list[str] | None = Field(None, description="A label of yours. Not used.")

    _marks: tuple[tuple[Mark, float | None], ...] = PrivateAttr(())

    @model_validator(mode="wrap")
    @classmethod
    def _keep_marks(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        fields = handler(data)
        if isinstance(data, dict):
            fields._marks = tuple(_marks_of(data.get("messages")))
        return fields

    @property
    def marks(self) -> list[Mark]:
        """The ends of prefixes that are marked in the messages: the last four."""
        return [mark for mark, _ in self._latest()]

    def caching(self, context: Context, before: Sequence[int] = ()) -> Caching:
        """How the request is cached. ``before``: how many tokens of the prompt come before each of
        the ``marks``; empty where they were not looked for."""
        can_retain = context.engine.info.retains
        return Caching(
            namespace_of(context.caller, self.cache_salt),
            _MODES[self.cache_mode or "default"],
            self._retain(before) if can_retain else (),
            self.session(context.headers),
            () if can_retain else self._without_effect(),
        )

    def session(self, headers: Mapping[str, str]) -> str | None:
        """The client's name for what this request belongs to: from the body, else from a header
        (their names in lower case)."""
        named = (self.session_id, self.prompt_cache_key, *map(headers.get, SESSION_HEADERS))
        return next((name[:MAX_NAME] for name in named if name), None)

    @property
    def compared_with(self) -> str | None:
        """The id of the answer that a diagnosis is to compare with."""
        options = self.prompt_cache_options
        return None if options is None else options.comparison_response_id

    @property
    def _is_explicit(self) -> bool:
        options = self.prompt_cache_options
        return options is not None and options.mode == "explicit"

    @property
    def _ttl_s(self) -> float | None:
        """How long prefixes stay, if the request says."""
        options = self.prompt_cache_options
        if self.cache_retention_s is not None:
            return self.cache_retention_s
        if options is not None and options.ttl is not None:
            return seconds_of(options.ttl)
        return _DAY_S if self.prompt_cache_retention == "24h" else None

    def _latest(self) -> tuple[tuple[Mark, float | None], ...]:
        takes_one = self._ttl_s is not None and not self._is_explicit  # the whole prompt
        return self._marks[-(MOST_BREAKPOINTS - takes_one) :]

    def _retain(self, before: Sequence[int]) -> tuple[Retain, ...]:
        ttl_s = self._ttl_s
        retains = []
        if before:
            default = DEFAULT_BREAKPOINT_S if ttl_s is None else ttl_s
            for (_, own), tokens in zip(self._latest(), before, strict=True):
                if tokens:
                    retains.append(Retain(tokens, default if own is None else own))
        if ttl_s is not None and not self._is_explicit:
            retains.append(Retain(WHOLE_PROMPT, ttl_s))
        return tuple(retains)

    def _without_effect(self) -> tuple[str, ...]:
        names = [name for name in _OF_RETENTION if getattr(self, name) is not None]
        return (*names, *(["prompt_cache_breakpoint"] if self._marks else []))


def _marks_of(messages: Any) -> list[tuple[Mark, float | None]]:
    """The breakpoints in messages, and how long each holds. Raises ValueError that says where one
    is wrong."""
    marks: list[tuple[Mark, float | None]] = []
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        content = message.get("content") if isinstance(message, dict) else None
        characters = 0
        for place, part in enumerate(content if isinstance(content, list) else ()):
            if not isinstance(part, dict):
                continue
            text = part.get("text")
            characters += len(text) if isinstance(text, str) else 0
            sent = part.get("prompt_cache_breakpoint")
            if sent is not None:
                where = f"messages[{index}].content[{place}].prompt_cache_breakpoint"
                marks.append((Mark(index, characters), _breakpoint_s(sent, where)))
    return marks


def _breakpoint_s(sent: Any, where: str) -> float | None:
    try:
        found = PromptCacheBreakpoint.model_validate(sent)
    except ValueError:
        raise ValueError(
            f'{where} must be an object such as {{"mode": "explicit", "ttl": "30m"}}; its ttl a '
            f"whole number and a unit (s, m, h or d), at most {MAX_RETENTION_S} seconds."
        ) from None
    return None if found.ttl is None else seconds_of(found.ttl)
