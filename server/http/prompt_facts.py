"""What is remembered of a request's prompts besides their answers: for diagnoses that are asked
for later, and for near-misses that nobody asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from server.diagnostics import Fingerprint, RecentPrompts, fingerprint
from server.generation_params import GenerationParams
from server.http.diagnosis import Diagnosis
from server.near_miss import PromptSource, Seen, Watch
from server.outputs import Usage


@dataclass(frozen=True, slots=True)
class PromptFacts:
    """Of one prompt. ``variables``: what its chat template was told. ``asks``: the request wants a
    diagnosis, compared with the answer of the id ``compared_with`` (None: it has none yet)."""

    source: PromptSource
    variables: Mapping[str, Any] = field(default_factory=dict)
    asks: bool = False
    compared_with: str | None = None

    def mark(self, tokens: Sequence[int]) -> Fingerprint:
        """The prompt's fingerprint."""
        return fingerprint(tokens, self.source, self.variables)


def diagnosis_of(
    tokens: Sequence[int],
    facts: PromptFacts,
    params: GenerationParams,
    recent: RecentPrompts,
    answer_id: str,
) -> Diagnosis | None:
    """Remember a conversation's prompt under the id of its answer; the diagnosis, where it is
    asked for. Blocks: hashes."""
    mark, space = facts.mark(tokens), params.namespace
    asked = facts.compared_with
    earlier = None if asked is None else recent.find(asked, space)
    recent.add(answer_id, space, mark)
    return Diagnosis(asked, earlier, mark) if facts.asks else None


def look_for_near_misses(
    watch: Watch,
    prompts: Sequence[Sequence[int]],
    facts: tuple[PromptFacts, ...],
    params: GenerationParams,
    usage: Usage,
) -> None:
    """Hand the prompts of a request that has ended to whoever looks for near-misses. Never
    blocks."""
    ends = usage.match_ends or (usage.match_end,)
    for tokens, fact, end in zip(prompts, facts, ends, strict=False):
        if end is not None:
            watch.saw(Seen(tokens, fact.source, params.namespace, end))
