"""POST /debug/explain: a prompt, token by token, and why no more of it is cached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from radix_engine.cache import Explanation, MatchEnd, Parting, Segment, unpack
from server.debug.advice import Advice, Place, advice_on
from server.debug.tree_json import namespace_json
from server.errors import RequestRefused
from server.http.debug.explain_request import Question, question_of_life, read_question
from server.http.debug.register import Register
from server.http.debug.sections import Sections
from server.http.engine_like import EngineLike, TextLike
from server.http.errors import from_refusal
from server.http.job import Context
from server.http.usage import match_end_body

_SHOWN_TOKENS = 160  # of a segment's beginning and of its end


def explained(body: bytes, context: Context, register: Register) -> dict[str, Any]:
    """The answer to a body. Blocks: tokenises, and waits for a step. Raises ApiError."""
    engine = context.engine
    try:
        asked = read_question(body, context)
        question = _recent(asked, engine, register) if isinstance(asked, str) else asked
        found = engine.inspector.explain(
            question.tokens, question.namespace, question.mode, question.was
        )
    except RequestRefused as refusal:
        raise from_refusal(refusal, param="prompt") from refusal
    return _body(found, question, engine)


def _recent(request_id: str, engine: EngineLike, register: Register) -> Question:
    entry = register.get(request_id)
    ids = () if entry is None else entry.engine_ids
    life = engine.inspector.life(ids[0]) if ids else None
    return question_of_life(life, request_id)


def _body(found: Explanation, question: Question, engine: EngineLike) -> dict[str, Any]:
    text, tokens = engine.text, question.tokens
    ids = unpack(tokens) if isinstance(tokens, bytes) else tokens
    parts = None if found.parting is None else _parting(found.parting, question.sections, text)
    end, cached = found.end, found.cached_tokens
    if question.was is not None:
        end, cached = question.was, question.was_cached
    section = question.sections.at(end.position)
    told = _advice(end, cached, found.prompt_tokens, section, parts, engine.info.block_size)
    return {
        "prompt_tokens": found.prompt_tokens,
        "cached_tokens": found.cached_tokens,
        "match_end": match_end_body(found.end),
        "namespace": namespace_json(question.namespace),
        "section": section,
        "reason": told.reason,
        "advice": told.advice,
        "segments": [_segment(each, ids, text) for each in found.segments],
        "parting": parts,
        "at_start": None
        if question.was is None
        else {"cached_tokens": cached, "match_end": match_end_body(question.was)},
    }


def _advice(
    end: MatchEnd,
    cached: int,
    total: int,
    section: str | None,
    parts: dict[str, Any] | None,
    block_size: int,
) -> Advice:
    sides = parts or {"prompt": None, "stored": None}
    place = Place(total, cached, block_size, section, sides["prompt"], sides["stored"])
    return advice_on(end, place)


def _parting(found: Parting, sections: Sections, text: TextLike) -> dict[str, Any]:
    return {
        "position": found.position,
        "section": sections.at(found.position),
        "before": text.decode(found.before, special=True),
        "prompt": text.decode(found.prompt, special=True),
        "stored": text.decode(found.stored, special=True),
    }


def _segment(part: Segment, ids: Sequence[int], text: TextLike) -> dict[str, Any]:
    start, end = part.start, part.end
    head, tail = ids[start:end], []
    if len(head) > 2 * _SHOWN_TOKENS:
        head, tail = ids[start : start + _SHOWN_TOKENS], list(ids[end - _SHOWN_TOKENS : end])
    return {
        "start": start,
        "end": end,
        "state": part.state,
        "head": text.decode(head, special=True),
        "tail": text.decode(tail, special=True) if tail else "",
    }
