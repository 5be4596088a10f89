"""What a generating endpoint makes of a request's body."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from server.chat.parser import AnswerParser, PlainParser
from server.generation_params import GenerationParams
from server.head_noise import HeadNoise, NoiseFilter
from server.http.caller import Caller
from server.http.diagnosis import Diagnosis
from server.http.engine_like import EngineLike
from server.http.model_names import ModelNames
from server.http.prompt_facts import PromptFacts
from server.outputs import Usage

SCORE_BYTES = 16  # at least, for each token's log-probability


@dataclass(frozen=True, slots=True)
class Context:
    """What a body is read with: the engine, who sends it, the request's headers (names in lower
    case), what is taken out of system prompts, and other names of the model."""

    engine: EngineLike
    caller: Caller
    headers: Mapping[str, str]
    noise: NoiseFilter = field(default_factory=lambda: NoiseFilter(HeadNoise()))
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> ModelNames:
        """Under which names the model may be asked for."""
        return ModelNames(self.engine.info.model, self.aliases)


@dataclass(frozen=True, slots=True)
class Job:
    """A checked request: token ids and how to answer. ``echo``: the prompts as text, where they are
    to come back before their answers. ``ignored``: fields that were sent and have no effect.
    ``headers``: of the response, besides those that all have. ``new_parser`` begins to part an
    answer's text, where it is more than plain text; ``remember`` is given the tokens of each answer
    at its end, and must be quick. ``facts``: of each prompt, what it was made of; empty where
    nobody is to know. ``diagnosis``: where one was asked for."""

    prompts: Sequence[Sequence[int]]
    params: GenerationParams
    stream: bool
    include_usage: bool
    ignored: tuple[str, ...] = ()
    echo: Sequence[str] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    new_parser: Callable[[], AnswerParser] = PlainParser
    remember: Callable[[Sequence[int]], None] | None = None
    facts: tuple[PromptFacts, ...] = ()
    diagnosis: Diagnosis | None = None

    def work(self, usage: Usage) -> int | None:
        """About how many bytes a whole answer has, where to write it is work for a thread: with
        log-probabilities thousands of tokens may be looked up, or a long text parsed. None where it
        is shown as it came."""
        if self.params.logprobs is None and self.new_parser is PlainParser:
            return None
        tokens = usage.completion_tokens + (usage.prompt_tokens if self.echo else 0)
        return SCORE_BYTES * tokens

    @property
    def num_choices(self) -> int:
        """Answers to all prompts."""
        return len(self.prompts) * self.params.n
