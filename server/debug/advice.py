"""The reason why no more of a prompt is cached, in a sentence, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

from radix_engine.cache import Cause, MatchEnd, Reason

_CAUSES = {
    Cause.CAPACITY: "its room was needed for others",
    Cause.TTL: "nobody had used it for longer than --cache-ttl",
    Cause.FLUSH: "the cache was flushed",
    Cause.FAULT: "a block of it was taken out of use after an audit",
}
_CAUSE_ADVICE = {
    Cause.CAPACITY: "Give the cache more memory (--kv-memory; the curve of hit rate against memory "
    "tells what that would bring), or have the prefix retained (cache_retention_s) while it is "
    "needed.",
    Cause.TTL: "Raise the ttl, send the next request sooner, or have the prefix retained "
    "(cache_retention_s).",
    Cause.FLUSH: "Nothing to do: the first request stores it again. Prewarm it with POST "
    "/v1/cache/prewarm if that one must be quick.",
    Cause.FAULT: "Look for 'quarantined' in the server's log, and restart the server when it suits "
    "you.",
}


@dataclass(frozen=True, slots=True)
class Advice:
    """For people: what happened, and what they can do."""

    reason: str
    advice: str


@dataclass(frozen=True, slots=True)
class Place:
    """What is known besides the end itself. ``section``: which part of the prompt the end is in,
    such as ``message 0 (system)``; None where that is not known. ``prompt`` and ``stored``: how
    either side goes on after a parting."""

    prompt_tokens: int
    cached_tokens: int
    block_size: int
    section: str | None = None
    prompt: str | None = None
    stored: str | None = None


def advice_on(end: MatchEnd, place: Place) -> Advice:
    """For any reason there is."""
    total, cached = place.prompt_tokens, place.cached_tokens
    where = f"token {end.position}" + (f", in {place.section}" if place.section else "")
    match end.reason:
        case Reason.FULL:
            return Advice(
                f"All that can be cached is: {cached} of {total} tokens. The last one is always "
                "computed, since the answer begins with it.",
                "Nothing to do.",
            )
        case Reason.DIVERGED:
            return Advice(
                f"The prompt leaves what is stored at {where}; {cached} of {total} tokens are "
                f"cached. The stored branch goes on otherwise, up to token {end.branch_tokens}.",
                _about_a_parting(place),
            )
        case Reason.EVICTED:
            cause = end.cause or Cause.CAPACITY
            return Advice(
                f"{end.lost_tokens} tokens from {where} on were stored once and are gone: "
                f"{_CAUSES[cause]}. {cached} of {total} tokens are cached.",
                _CAUSE_ADVICE[cause],
            )
        case Reason.IN_FLIGHT:
            return Advice(
                f"Another request is computing what comes after {where} right now; {cached} of "
                f"{total} tokens are cached.",
                "Nothing to do: a request waits for that, within bounds, rather than compute it "
                "again.",
            )
        case Reason.NAMESPACE:
            return Advice(
                f"Another namespace of the same tenant stores what comes after {where}, and "
                f"namespaces share nothing; {cached} of {total} tokens are cached.",
                "Send the same cache_salt, or none, with all requests that may share; or have an "
                "operator make the prefix public (POST /v1/cache/public).",
            )
        case Reason.SHORT:
            return Advice(
                f"What the prompt shares with stored ones ends at {where}, which does not fill a "
                f"block of {place.block_size} tokens, and the cache stores whole blocks; {cached} "
                f"of {total} tokens are cached.",
                "Nothing to do for so short a prompt. If it is long, its first block changes: put "
                "what stays the same first.",
            )
        case Reason.BYPASSED:
            return Advice(
                "The request does not read the cache, or no further than this: cache_mode none, or "
                f"an answer that needs the prompt computed; {cached} of {total} tokens are cached.",
                "Leave cache_mode out, and prompt_logprobs (or echo with logprobs) too, if they "
                "are not needed.",
            )
        case Reason.COLD:
            return Advice(
                f"Nothing was ever stored in this namespace that goes on from {where}; {cached} of "
                f"{total} tokens are cached.",
                "The first request of a kind is always cold. Prewarm its head with POST "
                "/v1/cache/prewarm if that one must be quick.",
            )
        case _:
            return Advice(
                "The hash index keeps no reasons.",
                "Start the server with --prefix-index tree.",
            )


def _about_a_parting(place: Place) -> str:
    """Where the change is, and what to do with a prompt that changes there."""
    changed = ""
    if place.prompt and place.stored:
        changed = f"Here {_quoted(place.prompt)} stands where {_quoted(place.stored)} was stored. "
    section = place.section or ""
    if section == "the tools":
        return (
            f"{changed}The tools are written at the head of the prompt: send the same tools, in "
            "the same order, with every request."
        )
    if "(system)" in section or "(developer)" in section:
        return (
            f"{changed}If that changes with every request (a time, an id), move it to the end of "
            "the conversation, or have it taken out (--strip-head-noise)."
        )
    return (
        f"{changed}That is as it should be where two conversations part. If earlier turns should "
        "be the same, send them unchanged; if something changes with every request (a time, an "
        "id), move it to the end."
    )


def _quoted(text: str) -> str:
    shown = " ".join(text.split())
    return f"'{shown[:40]}...'" if len(shown) > 40 else f"'{shown}'"
