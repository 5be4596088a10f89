"""Requests replayed through a prefix cache, without a model: what would be served, and what is
missed that need not be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from radix_engine.cache import (
    TOKEN_BYTES,
    Match,
    MatchEnd,
    PrefixCache,
    Reason,
    branch_after,
    pack,
)
from server.generation_params import GenerationParams
from server.lint_requests import BLOCK_SIZE, LintRequest
from server.near_miss import Group, Register, Thresholds, judge
from server.near_miss.source import TokenLooks

# Of a file nobody has to be spared a line in a log.
_THRESHOLDS = Thresholds(sure=2, unsure=3, within=1 << 20)


@dataclass(slots=True)
class Replayed:
    """Sums over all prompts. ``groups``: near-misses that repeat, the costliest first. ``lines``:
    of the requests of each, by its shape."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    groups: list[Group] = field(default_factory=list)
    lines: dict[bytes, list[int]] = field(default_factory=dict)

    @property
    def lost_tokens(self) -> int:
        """Those of the near-misses."""
        return sum(group.lost_tokens for group in self.groups)

    @property
    def hit_rate(self) -> float:
        """Cached tokens over prompt tokens."""
        return self._share(self.cached_tokens)

    @property
    def mended_hit_rate(self) -> float:
        """The same without the near-misses."""
        return self._share(self.cached_tokens + self.lost_tokens)

    def _share(self, tokens: int) -> float:
        return tokens / self.prompt_tokens if self.prompt_tokens else 0.0


def replay(
    requests: Iterable[LintRequest], looks: TokenLooks, kv_tokens: int | None = None
) -> Replayed:
    """One request after the other. ``kv_tokens``: how many tokens the cache holds; None: all.

    What the answers would leave in the cache is not known, so that they count as missed where a
    later request sends them back.
    """
    listed = list(requests)
    if kv_tokens is None:
        prompts = (prompt for request in listed for prompt in request.job.prompts)
        blocks = sum(len(prompt) // BLOCK_SIZE for prompt in prompts)
    else:
        blocks = kv_tokens // BLOCK_SIZE
    cache = PrefixCache(max(1, blocks), BLOCK_SIZE)
    done, register = Replayed(), Register(_THRESHOLDS)
    for number, request in enumerate(listed, start=1):
        job, space = request.job, request.job.params.namespace
        done.requests += 1
        for tokens, facts in zip(job.prompts, job.facts, strict=True):
            run = pack(tokens)
            match, end = _matched(cache, run, job.params)
            done.prompt_tokens += len(tokens)
            done.cached_tokens += match.num_tokens
            if end.reason in (Reason.DIVERGED, Reason.SHORT):
                branch = branch_after(cache, run, space, end.position)
                found = branch and judge(looks, tokens, facts.source, branch, space)
                if found:
                    register.add(found, space.tenant, space.salt is not None, number, 0.0)
                    done.lines.setdefault(found.shape, []).append(request.line)
            if job.params.cache_mode.stores:
                _store(cache, run, match)
    done.groups = register.told()
    return done


def _matched(cache: PrefixCache, run: bytes, params: GenerationParams) -> tuple[Match, MatchEnd]:
    match = cache.match(run, params.namespace, params.cache_mode)
    return match, cache.account(match, run)


def _store(cache: PrefixCache, run: bytes, match: Match) -> None:
    """As if the prompt had been computed."""
    lease = cache.lease(match)
    missing = len(run) // TOKEN_BYTES // BLOCK_SIZE - lease.num_tokens // BLOCK_SIZE
    blocks = cache.allocate(missing) if missing > 0 else None
    if blocks is not None:
        start = lease.num_tokens * TOKEN_BYTES
        end = start + missing * BLOCK_SIZE * TOKEN_BYTES
        cache.publish(lease, run[start:end], blocks)
    cache.release(lease)
