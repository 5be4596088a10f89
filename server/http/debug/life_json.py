"""One request's life, and many in short, as JSON."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from server.debug.lives import Life
from server.http.debug.register import Entry
from server.http.usage import match_end_body


def summary(entry: Entry, to_unix_s: Callable[[float], float]) -> dict[str, Any]:
    """A request in short. Times in milliseconds since it came."""
    ended, usage, times = entry.ending, entry.usage, entry.times
    total = time.monotonic() - entry.started_s if ended is None else entry.total_s
    return {
        "id": entry.id,
        "client_request_id": entry.client_id,
        "endpoint": entry.endpoint,
        "tenant": entry.tenant,
        "state": "open" if ended is None else "ended",
        "status": None if ended is None else ended.status,
        "outcome": None if ended is None else ended.outcome,
        "error": None if ended is None or ended.error is None else ended.error.message,
        "started_at": round(to_unix_s(entry.started_s), 3),
        "queue_ms": _ms(times.queue_s),
        "ttft_ms": _ms(times.first_token_s),
        "total_ms": _ms(total),
        "prompt_tokens": usage.prompt_tokens,
        "cached_tokens": usage.cached_tokens,
        "completion_tokens": usage.completion_tokens,
        "match_end": match_end_body(usage.match_end),
        "finish_reasons": [] if ended is None else list(ended.finish_reasons),
    }


def life(
    entry: Entry, prompts: Sequence[Life | None], to_unix_s: Callable[[float], float]
) -> dict[str, Any]:
    """A request with all that has happened to it, in order of time. ``prompts``: what the engine
    knows of each of its prompts; None where it has not begun, or is too long ago."""
    began = entry.started_s
    events = [_event("arrived", began, began)]
    for index, found in enumerate(prompts):
        if found is not None:
            events += _of_prompt(index, found, began)
    first = entry.times.first_token_s
    if first is not None:
        events.append(_event("first_token", began + first, began))
    if (ending := entry.ending) is not None:
        end = began + entry.total_s
        told = {"status": ending.status, "finish_reasons": list(ending.finish_reasons)}
        events.append(_event("ended", end, began, **told))
    events.sort(key=lambda event: event["at_ms"])
    session = next((each.session for each in prompts if each is not None), None)
    return {**summary(entry, to_unix_s), "session": session, "events": events}


def _of_prompt(index: int, found: Life, began: float) -> list[dict[str, Any]]:
    events = [_event("queued", found.arrived_s, began, prompt=index)]
    if found.admitted_s is not None:
        events.append(
            _event(
                "matched",
                found.admitted_s,
                began,
                prompt=index,
                cached_tokens=found.cached_tokens,
                match_end=match_end_body(found.match_end),
            )
        )
    for chunk in found.chunks:
        told = {"start": chunk.start, "tokens": chunk.count}
        events.append(_event("chunk", chunk.at, began, prompt=index, **told))
    events += [_event("preempted", at, began, prompt=index) for at in found.preempted_s]
    return events


def _event(name: str, at: float, began: float, **more: Any) -> dict[str, Any]:
    return {"event": name, "at_ms": round(1e3 * max(0.0, at - began), 3), **more}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1e3 * seconds, 1)
