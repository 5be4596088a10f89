"""Whether a prompt that left a stored branch lost something by it, where, and to what."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate

from radix_engine.cache import TOKEN_BYTES, Branch, Namespace, pack, unpack
from server.common_prefix import common_prefix
from server.near_miss.alike import Alike, alike_after
from server.near_miss.finding import Finding, Kind, Section
from server.near_miss.kinds import (
    STAMPS,
    Span,
    json_span,
    volatile_span,
)
from server.near_miss.sections import head_end, name_of, name_place, section_at
from server.near_miss.source import PromptSource, TokenLooks, text_of

# Fewer lost tokens are not worth anybody's while.
LEAST_LOST_TOKENS = 64
_SHOWN_CHARACTERS = 80
_CONTEXT_TOKENS = 64
# Special tokens mark where messages begin and end: so many more in what was replaced than in what
# replaces it are several messages, which were summed up or dropped on purpose.
_COMPACTED_MARKS = 8
# In what was said before, these are what anybody may have edited.
_EDITS: tuple[Kind, ...] = ("number", "hex", "other")


def judge(
    looks: TokenLooks,
    tokens: Sequence[int],
    source: PromptSource,
    branch: Branch,
    namespace: Namespace,
) -> Finding | None:
    """What a prompt lost by leaving a branch; None where it is nothing that could be mended.

    Cost: some searches of the branch; where these find something, a look at each token and a search
    for each message.
    """
    run = pack(tokens[branch.position :])
    if min(len(run), len(branch.run)) < LEAST_LOST_TOKENS * TOKEN_BYTES:
        return None
    alike = alike_after(run, branch.run)
    if not source.tools and (alike is None or alike.tokens < LEAST_LOST_TOKENS):
        return None
    case = _case(looks, tokens, source, branch, namespace, run)
    if case.section.kind == "tools":
        return _of_tools(case)
    if alike is None or alike.tokens < LEAST_LOST_TOKENS:
        return None
    return _of_text(case, alike)


@dataclass(frozen=True, slots=True)
class _Case:
    """``place``: the character of ``text`` at which the prompt leaves the branch. ``run``: the
    prompt's tokens from there on."""

    looks: TokenLooks
    tokens: Sequence[int]
    source: PromptSource
    branch: Branch
    namespace: Namespace
    run: bytes
    text: str
    place: int
    section: Section

    def stored_text(self, tokens: int) -> str:
        """The branch's text, of so many of its tokens after the parting."""
        following = text_of(self.looks, unpack(self.branch.run[: tokens * TOKEN_BYTES]))
        return self.text[: self.place] + following

    def finding(
        self, kind: Kind, start: int, end: int, lost: int, stored: str, *, shape: str
    ) -> Finding:
        """``start`` and ``end``: characters of the prompt. ``stored``: the branch's from ``start``
        on."""
        section = self.section
        key = self.namespace.key + shape.encode("utf-8", "surrogatepass")
        return Finding(
            kind,
            section,
            max(0, start - section.start),
            max(0, end - section.start),
            self.branch.position,
            lost,
            len(self.tokens),
            self.text[start:end][:_SHOWN_CHARACTERS],
            stored[:_SHOWN_CHARACTERS],
            blake2b(key, digest_size=16).digest(),
        )


def _case(
    looks: TokenLooks,
    tokens: Sequence[int],
    source: PromptSource,
    branch: Branch,
    namespace: Namespace,
    run: bytes,
) -> _Case:
    before = text_of(looks, tokens[: branch.position])
    text = source.text or before + text_of(looks, tokens[branch.position :])
    place = len(before)
    if before[:1] == " " and text[:1] != " ":
        place -= 1  # a tokenizer that puts a space before a text
    section = section_at(source, text, place)
    return _Case(looks, tokens, source, branch, namespace, run, text, place, section)


def _of_text(case: _Case, alike: Alike) -> Finding | None:
    """What differs in a message's text, or in any other."""
    section, text = case.section, case.text
    stored = case.stored_text(alike.stored_skipped + _CONTEXT_TOKENS)
    place = case.place + common_prefix(text[case.place :], stored[case.place :])
    skipped = unpack(case.run[: alike.skipped * TOKEN_BYTES])
    end = max(place, case.place + len(text_of(case.looks, skipped)))
    span = volatile_span(text, stored, place) or json_span(text, stored, place)
    if span is None:
        stored_end = max(place, len(case.stored_text(alike.stored_skipped)))
        start = _word_start(text, place)
        span = Span("other", start, _word_end(text, end), _word_end(stored, stored_end))
    kind = span.kind
    is_last = section.message is not None and section.message >= len(case.source.messages) - 1
    if is_last and kind not in STAMPS:
        return None  # who asks something else means to
    # Words may begin alike, and then part later on in their line.
    shape = text[: text.rfind("\n", 0, span.start) + 1 if kind == "other" else span.start]
    if section.kind == "message":
        if kind in _EDITS:
            if not _is_edit(case, alike):
                return None
            kind = "history"
        # A conversation's place is another each turn.
        shape = f"{text[: head_end(case.source, text)]}\0{section.role}"
    there = stored[span.start : span.stored_end]
    return case.finding(
        kind, span.start, span.end, alike.tokens, there, shape=f"{kind}\0{section.kind}\0{shape}"
    )


def _is_edit(case: _Case, alike: Alike) -> bool:
    """Whether the same conversation was changed, rather than another one held."""
    rest = min(len(case.run), len(case.branch.run)) // TOKEN_BYTES
    if 2 * alike.tokens < rest:
        return False
    marks, stored_marks = (
        sum(case.looks.token_text(token).special for token in unpack(run[: count * TOKEN_BYTES]))
        for run, count in (
            (case.run, alike.skipped),
            (case.branch.run, alike.stored_skipped),
        )
    )
    return stored_marks < marks + _COMPACTED_MARKS


def _of_tools(case: _Case) -> Finding | None:
    """What differs in the tools' definitions, which costs the rest of them, and what follows."""
    section, text = case.section, case.text
    lengths = (len(case.looks.token_text(token).data) for token in _rest(case))
    ends = list(accumulate(lengths))
    inside = bisect_left(ends, len(text[case.place : section.end].encode())) + 1
    after = alike_after(case.run, case.branch.run, min(inside, len(ends)))
    lost = inside + (0 if after is None else after.tokens)
    if lost < LEAST_LOST_TOKENS:
        return None
    stored = case.stored_text(len(case.branch.run) // TOKEN_BYTES)
    place = case.place + common_prefix(text[case.place :], stored[case.place :])
    kind = _kind_of_tools(case, stored, place)
    shape = f"{kind}\0tools\0{text[: section.start]}"
    return case.finding(kind, place, section.end, lost, stored[place:], shape=shape)


def _rest(case: _Case) -> Sequence[int]:
    return case.tokens[case.branch.position :]


def _kind_of_tools(case: _Case, stored: str, place: int) -> Kind:
    names = [name_of(tool) for tool in case.source.tools]
    start = case.section.start
    here = [name_place(name, case.text, start) for name in names]
    there = [name_place(name, stored, start) for name in names]
    if min(there, default=-1) < 0:
        return "tools"
    if _order(here) != _order(there):
        return "tool_order"
    span = json_span(case.text, stored, place) or volatile_span(case.text, stored, place)
    return "tools" if span is None else span.kind


def _order(places: Sequence[int]) -> list[int]:
    return sorted(range(len(places)), key=places.__getitem__)


def _word_start(text: str, place: int) -> int:
    while place > 0 and not text[place - 1].isspace():
        place -= 1
    return place


def _word_end(text: str, place: int) -> int:
    while place < len(text) and not text[place].isspace():
        place += 1
    return place
