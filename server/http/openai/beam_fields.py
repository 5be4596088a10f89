"""The fields of beam search, which /v1/completions has beside the shared ones."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from server.generation_params import MAX_ANSWERS, MAX_LENGTH_PENALTY
from server.http.errors import ApiError
from server.http.model_names import ModelNames
from server.http.openai.fields import SharedFields

_ONLY_WITH_BEAMS = ("length_penalty", "early_stopping")


class BeamFields(SharedFields):
    """How to search. Nothing of it is random, and nothing is known before the end."""

    use_beam_search: bool | None = Field(
        None,
        description="true: the n answers are the best that a beam search finds, best first. Not "
        "with stream, stop, logprobs, penalties, ignore_eos, or a temperature other than 0.",
    )
    best_of: int | None = Field(
        None,
        ge=1,
        le=MAX_ANSWERS,
        description=f"Beams to follow, a whole number from n to {MAX_ANSWERS}; default n. Without "
        "use_beam_search only n.",
    )
    length_penalty: float | None = Field(
        None,
        ge=-MAX_LENGTH_PENALTY,
        le=MAX_LENGTH_PENALTY,
        description="A beam's score is the sum of its log-probabilities over its length to the "
        f"power of this, a number from -{MAX_LENGTH_PENALTY} to {MAX_LENGTH_PENALTY}; default 1.",
    )
    early_stopping: Literal[True, False, "never"] | None = Field(
        None,
        description="When the search ends once best_of beams have ended: true, at once; false "
        "(default), when no beam is better at its present length; 'never', when none can become "
        "better.",
    )

    def check(self, names: ModelNames) -> None:
        """As in `SharedFields`, and that the fields go together."""
        super().check(names)
        answers = self.n or 1
        if self.best_of is not None and not self.use_beam_search and self.best_of != answers:
            raise ApiError(
                400,
                f"best_of is {self.best_of}, which is supported with use_beam_search only. Leave "
                f"it out, or send {answers} as n is.",
                param="best_of",
                code="unsupported_parameter",
            )
        if self.best_of is not None and self.best_of < answers:
            raise ApiError(
                400,
                f"best_of is {self.best_of}, but must be at least n, which is {answers}.",
                param="best_of",
                code="invalid_value",
            )
        if self.use_beam_search:
            self._check_beam_search()

    def ignored(self) -> tuple[str, ...]:
        """As in `SharedFields`; without beams their fields have no effect."""
        fields = () if self.use_beam_search else _ONLY_WITH_BEAMS
        return (*super().ignored(), *(name for name in fields if getattr(self, name) is not None))

    def _check_beam_search(self) -> None:
        clashes = {
            "stream": bool(self.stream),
            "stop": bool(self.stop),
            "temperature": self.temperature not in (None, 0),
            "top_p": self.top_p not in (None, 1),
            "top_k": self.top_k is not None and self.top_k > 0,
            "min_p": self.min_p not in (None, 0),
            "repetition_penalty": self.repetition_penalty not in (None, 1),
            "presence_penalty": self.presence_penalty not in (None, 0),
            "frequency_penalty": self.frequency_penalty not in (None, 0),
            "logit_bias": bool(self.logit_bias),
            "ignore_eos": bool(self.ignore_eos),
            "min_tokens": bool(self.min_tokens),
            "stop_token_ids": bool(self.stop_token_ids),
        }
        constraint = self.constraint()
        if constraint is not None:
            clashes[constraint.param] = True
        for name, clash in clashes.items():
            if clash:
                raise not_with_beams(name)


def not_with_beams(name: str) -> ApiError:
    """The refusal of a field that beam search has no use for."""
    return ApiError(
        400,
        f"{name} does not go with use_beam_search, which ranks whole answers by the model's own "
        f"probabilities and draws nothing at random. Leave {name} out.",
        param=name,
        code="unsupported_parameter",
    )
