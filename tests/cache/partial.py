"""What a prompt is served where matches end at the exact token."""

from __future__ import annotations

from radix_engine.cache import DEFAULT, Match, Namespace, PrefixCache, pack


def asked(cache: PrefixCache, tokens: list[int], namespace: Namespace = DEFAULT) -> Match:
    return cache.match(pack(tokens), namespace)


def rows(cache: PrefixCache, tokens: list[int]) -> tuple[int, int, int]:
    """What a prompt is served, how much of it by copying rows, and out of which block."""
    match = asked(cache, tokens)
    return match.num_tokens, match.copy_rows, match.copy_source


def parting(tokens: list[int], at: int, length: int) -> list[int]:
    """These tokens up to ``at``, then others."""
    return [*tokens[:at], *(token + 500 for token in tokens[at:length])]
