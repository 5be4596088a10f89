"""What goes into the engine with a prompt: how to answer it, and what of it to keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from radix_engine.cache import DEFAULT, CacheMode, Namespace
from radix_engine.model.sampling_params import SamplingParams
from radix_engine.model.token_logprob import MAX_TOP
from server.constraint import Constraint

MAX_ANSWERS = 128  # to one prompt
MAX_PRIORITY = 1_000_000
MAX_LENGTH_PENALTY = 10  # and no less than its negative
MAX_RETAINS = 8  # for one prompt
MAX_RETENTION_S = 7 * 86_400
WHOLE_PROMPT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Retain:
    """Keep the first ``tokens`` tokens of a prompt (all of them, where it has fewer) in the cache
    for ``seconds`` once they are computed; in whole blocks. Each request of the same namespace that
    names them again, or is served all of them, lets the time begin anew. ``name``: for people, who
    read it in lists.

    Raises ValueError naming the field.
    """

    tokens: int
    seconds: float
    name: str | None = None

    def __post_init__(self) -> None:
        if type(self.tokens) is not int or not 1 <= self.tokens <= WHOLE_PROMPT:
            raise ValueError(f"tokens must be a whole number from 1, not {self.tokens!r}")
        if not 0 < self.seconds <= MAX_RETENTION_S:
            raise ValueError(
                f"seconds must be above 0 and at most {MAX_RETENTION_S}, not {self.seconds!r}"
            )


@dataclass(frozen=True, slots=True)
class GenerationParams:
    """How to answer a prompt.

    ``max_tokens`` is a limit on generated tokens; it is lowered to what fits in the context and in
    the KV memory, and the answer then ends with ``length``. With 0 the prompt is computed and
    stored, and that is all. ``sampling`` None is the model's own
    way (``EngineInfo.sampling``). ``stop`` strings end the answer and are not part of its text.
    ``namespace``: whose cached prefixes may be shared; ``cache_mode``: whether they are read, and
    whether this prompt's and answer's are stored. ``priority``: the higher, the earlier it starts
    where the engine's order is by priority, and the longer its prefix stays where eviction is.
    ``timeout_s``: seconds after which the answer ends as it is (``length``); one without a token
    then is an error. ``ignore_eos``: go on past the model's end-of-text tokens.

    ``logprobs``: each token of the answer with its log-probability and those of so many likeliest
    ones (0 to 20); None: without. They are the model's own, before penalties, bias and temperature.
    ``prompt_logprobs``: the same for the prompt's tokens, of which the first has none. With 0 they
    are stored with the tokens, and served as far as they are; for the likeliest ones all of the
    prompt is computed, whatever is cached. What is computed is stored as ever.

    ``n``: answers to the prompt, which is computed once; each has its own random numbers, those of
    answer 0 are those of a lone answer.

    ``use_beam_search``: the ``n`` answers are the best that a beam search finds, best first, and
    come when it is over. It follows ``best_of`` beams (None: ``n``). An answer's score is the sum
    of its tokens' log-probabilities over its length to the power of ``length_penalty``.
    ``early_stopping``: when the search is over once ``best_of`` answers have ended: True, at once;
    False, when the best unfinished answer, at its present length, is not better than the worst of
    them; ``"never"``, when none can become better. Beam search takes no ``stop``, no log-
    probabilities, and no ``sampling`` that is random or changes logits.

    ``retain``: which of the prompt's first tokens stay cached for a time, whatever else needs room.
    What cannot be is told in `Usage.retained`, and never fails the request. ``session``: the
    client's own name for requests that belong together.

    ``skip_special_tokens``: the answer's text does not show the model's special tokens, but for
    those in ``shown_tokens``; the token that ends it never shows.

    ``constraint``: what the answer has to look like; it ends (``stop``) where that can end, or is
    cut (``length``). ``min_tokens``: so many tokens come before one that ends the answer, by itself
    or by a stop string. ``stop_token_ids``: tokens that end it besides the model's own.
    ``include_stop``: the stop string that ends it, or the text of the token in ``stop_token_ids``,
    is part of its text. Beam search takes none of these.

    Raises ValueError naming the field.
    """

    max_tokens: int = 128
    sampling: SamplingParams | None = None
    stop: tuple[str, ...] = ()
    namespace: Namespace = DEFAULT
    cache_mode: CacheMode = CacheMode.DEFAULT
    n: int = 1
    use_beam_search: bool = False
    best_of: int | None = None
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    priority: int = 0
    timeout_s: float | None = None
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    retain: tuple[Retain, ...] = ()
    session: str | None = None
    skip_special_tokens: bool = True
    shown_tokens: frozenset[int] = frozenset()
    constraint: Constraint | None = None
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False

    def __post_init__(self) -> None:
        if len(self.retain) > MAX_RETAINS:
            raise ValueError(f"retain has {len(self.retain)} prefixes, the limit is {MAX_RETAINS}")
        if self.session == "":
            raise ValueError("session must not be empty; leave it out, or name one")
        if type(self.priority) is not int or abs(self.priority) > MAX_PRIORITY:
            raise ValueError(
                f"priority must be a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}, not "
                f"{self.priority!r}"
            )
        if self.timeout_s is not None and not 0 < self.timeout_s < float("inf"):
            raise ValueError(f"timeout_s must be above 0 seconds, not {self.timeout_s!r}")
        if type(self.max_tokens) is not int or self.max_tokens < 0:
            raise ValueError(f"max_tokens must be a whole number from 0, not {self.max_tokens!r}")
        for name in ("logprobs", "prompt_logprobs"):
            top = getattr(self, name)
            if top is not None and (type(top) is not int or not 0 <= top <= MAX_TOP):
                raise ValueError(f"{name} must be a whole number from 0 to {MAX_TOP}, not {top!r}")
        if not isinstance(self.stop, tuple) or not all(
            isinstance(text, str) and text for text in self.stop
        ):
            raise ValueError(f"stop must be a tuple of strings, none empty, not {self.stop!r}")
        if type(self.n) is not int or not 1 <= self.n <= MAX_ANSWERS:
            raise ValueError(f"n must be a whole number from 1 to {MAX_ANSWERS}, not {self.n!r}")
        self._check_ends()
        self._check_beams()

    @property
    def width(self) -> int:
        """Requests that run at a time for one prompt: its answers, or the beams."""
        return self.best_of or self.n

    def _check_ends(self) -> None:
        if type(self.min_tokens) is not int or not 0 <= self.min_tokens <= self.max_tokens:
            raise ValueError(
                f"min_tokens must be a whole number from 0 to max_tokens ({self.max_tokens}), not "
                f"{self.min_tokens!r}"
            )
        ids = self.stop_token_ids
        if not isinstance(ids, tuple) or not all(type(each) is int and each >= 0 for each in ids):
            raise ValueError(f"stop_token_ids must be a tuple of token ids, not {ids!r}")
        if self.constraint is not None and self.ignore_eos:
            raise ValueError(
                "ignore_eos must be False with a constraint, which tells where the answer ends"
            )

    def _check_beams(self) -> None:
        best_of = self.n if self.best_of is None else self.best_of
        most = MAX_ANSWERS if self.use_beam_search else self.n
        if type(best_of) is not int or not self.n <= best_of <= most:
            raise ValueError(
                f"best_of must be a whole number from n ({self.n}) to {MAX_ANSWERS} with beam "
                f"search, and n without, not {best_of!r}"
            )
        penalty, limit = self.length_penalty, MAX_LENGTH_PENALTY
        if type(penalty) not in (int, float) or not -limit <= penalty <= limit:
            raise ValueError(
                f"length_penalty must be a number from -{limit} to {limit}, not {penalty!r}"
            )
        if not isinstance(self.early_stopping, bool) and self.early_stopping != "never":
            raise ValueError(
                f"early_stopping must be true, false or 'never', not {self.early_stopping!r}"
            )
        if self.use_beam_search:
            self._check_goes_with_beams()

    def _check_goes_with_beams(self) -> None:
        if self.stop:
            raise ValueError("stop must be empty with beam search, which looks at whole answers")
        if self.sampling is not None and not self.sampling.is_greedy:
            raise ValueError("sampling must be None or greedy with beam search: nothing is random")
        if self.sampling is not None and self.sampling.changes_logits:
            raise ValueError(
                "sampling must have no penalties and no logit_bias with beam search, which ranks "
                "answers by the model's own probabilities"
            )
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} must be None with beam search")
        if self.constraint is not None:
            raise ValueError("constraint must be None with beam search")
        if self.min_tokens or self.stop_token_ids:
            raise ValueError("min_tokens and stop_token_ids must be left out with beam search")
        if self.ignore_eos:
            raise ValueError("ignore_eos must be False with beam search, which needs ends to rank")
        if not self.max_tokens:
            raise ValueError("max_tokens must be at least 1 with beam search")
