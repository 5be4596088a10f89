"""What a made-up workload is made of: named parts of so many tokens. Equal names, equal content.

Plans know neither text nor token ids, so that what is shared can be told exactly; `text` and
`token_ids` make either of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a prompt, or a reply. ``text``: what it says, where that matters; its length is
    still ``tokens`` where token ids are made."""

    role: str
    name: str
    tokens: int
    text: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """``parts`` go on with the session's history, or are the whole prompt where ``reset`` is set.
    ``think_s``: seconds between the reply before and this call."""

    parts: tuple[Part, ...]
    reply: Part
    reset: bool = False
    think_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PlannedSession:
    """Calls that follow one another, the first one ``arrival_s`` seconds from the start."""

    id: str
    calls: tuple[PlannedCall, ...]
    arrival_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Size:
    """Tokens of all prompts, and how many of them a cache without limit would serve, where replies
    are stored, too, and the calls come session by session."""

    prompt_tokens: int
    served_tokens: int

    @property
    def share(self) -> float:
        """Served tokens over all; 0 without any."""
        return self.served_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


def prompts(session: PlannedSession) -> Iterator[tuple[Part, ...]]:
    """The whole prompt of each call."""
    history: tuple[Part, ...] = ()
    for call in session.calls:
        prompt = call.parts if call.reset else history + call.parts
        yield prompt
        history = (*prompt, call.reply)


def size_of(sessions: Iterable[PlannedSession]) -> Size:
    """How much these sessions ask for and share. Cost: O(parts of all prompts)."""
    root: dict[str, dict[str, object]] = {}
    asked = served = 0
    for session in sessions:
        for call, prompt in zip(session.calls, prompts(session), strict=True):
            length, found, node = 0, 0, root
            for part in (*prompt, call.reply):
                known = part.name in node
                node = node.setdefault(part.name, {})  # type: ignore[assignment]  # empty if new
                if part is call.reply:
                    break
                length += part.tokens
                found += part.tokens if known else 0
            asked += length
            served += min(found, length - 1)  # a prompt's last token is always computed
    return Size(asked, served)


def scaled(sessions: Iterable[PlannedSession], factor: float) -> Iterator[PlannedSession]:
    """The same sessions with all lengths multiplied, one token a part at least."""

    def part(whole: Part) -> Part:
        return replace(whole, tokens=max(1, round(whole.tokens * factor)))

    for session in sessions:
        calls = (
            replace(call, parts=tuple(map(part, call.parts)), reply=part(call.reply))
            for call in session.calls
        )
        yield replace(session, calls=tuple(calls))
