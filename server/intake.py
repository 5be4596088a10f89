"""What is asked of an engine: refused where it can never be done, else made ready to run."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence

import numpy as np

from radix_engine.cache import CacheMode
from radix_engine.model.allowed_tokens import all_but
from radix_engine.model.penalties import TokenCounts
from radix_engine.model.sampling import seed_of_answer
from scheduler import Request
from server.after_prompt import AfterPrompt
from server.answer import Answer
from server.beam_search import BeamSearch
from server.beams import BeamRules
from server.branches import branch_of
from server.constrained.grammars import Grammars
from server.constrained.next_tokens import NextTokens
from server.detokenizer import Detokenizer
from server.errors import RequestRefused
from server.generation_params import GenerationParams
from server.outputs import EngineInfo, Output
from server.prompt_scores import PromptScores
from server.request_ids import RequestIds
from server.text import TextCodec


class Intake:
    """Makes answers, or a beam search, of prompts. Thread-safe.

    ``end_tokens`` end an answer; ``vocabulary``: token ids are below it; at most ``max_running``
    requests run at a time. ``after``: what is to be done once a request's prompt is computed.
    """

    def __init__(
        self,
        info: EngineInfo,
        text: TextCodec,
        end_tokens: frozenset[int],
        vocabulary: int,
        max_running: int,
        after: Callable[[Request, GenerationParams], AfterPrompt | None],
    ) -> None:
        self._info = info
        self._text = text
        self._end_tokens = end_tokens
        self._vocabulary = vocabulary
        self._max_running = max_running
        self._after = after
        self._grammars = Grammars(text.tokenizer, vocabulary, end_tokens)
        self._ids = RequestIds()

    def check(self, prompt: Sequence[int], params: GenerationParams) -> None:
        """Raise RequestRefused for what can never run. Cost: the prompt's length, and compiling a
        constraint that is new."""
        self._check_length(prompt)
        self._check_tokens(prompt)
        self._check_width(prompt, params)
        self._check_bias(params)
        self._check_stop_tokens(params)
        if params.constraint is not None:
            self._grammars.check(params.constraint)

    def close(self) -> None:
        """Take no further constraints."""
        self._grammars.close()

    def prepare(
        self,
        prompt: Sequence[int],
        params: GenerationParams,
        on_output: Callable[[Output], None],
    ) -> list[Answer] | BeamSearch:
        """What the engine's loop is to queue for a prompt that was checked. Raises RequestRefused
        for a constraint that meanwhile turned out to be too much."""
        info = self._info
        # The last token needs no K/V, so an answer may be one token longer than the memory.
        room = min(info.context_length, info.kv_tokens + 1) - len(prompt)
        first_id = self._ids.take(params.width)
        request = Request(
            first_id,
            prompt,
            max(1, min(params.max_tokens, room)),
            self._own_ends(params).union(params.stop_token_ids),
            namespace=params.namespace,
            mode=self._mode(params),
            priority=params.priority,
            deadline=None if params.timeout_s is None else time.monotonic() + params.timeout_s,
            session=params.session,
            wants_values=params.prompt_logprobs is not None,
        )
        request.branches = [branch_of(request, first_id + each) for each in range(1, params.width)]
        shown = params.shown_tokens if params.skip_special_tokens else None
        detokenizers = [self._text.detokenizer(prompt, shown) for _ in range(params.n)]
        if params.use_beam_search:
            rules = BeamRules(
                params.width,
                request.max_new_tokens,
                self._end_tokens,
                params.length_penalty,
                params.early_stopping,
            )
            after = self._after(request, params)
            return BeamSearch(request, rules, detokenizers, on_output, self._ids.take, after)
        return self._answers(request, params, detokenizers, on_output)

    def _answers(
        self,
        request: Request,
        params: GenerationParams,
        detokenizers: Sequence[Detokenizer],
        on_output: Callable[[Output], None],
    ) -> list[Answer]:
        sampling = params.sampling or self._info.sampling
        seed = secrets.randbits(64) if sampling.seed is None else sampling.seed
        counts = scores = None
        after = self._after(request, params)
        if sampling.penalizes:
            counts = TokenCounts(request.tokens if sampling.repetition_penalty != 1 else ())
        if params.prompt_logprobs is not None:
            scores = PromptScores(params.prompt_logprobs)
        return [
            Answer(
                each,
                params,
                sampling,
                seed_of_answer(seed, index),
                detokenizers[index],
                on_output,
                request.request_id,
                index,
                counts=None if counts is None else counts.copy(),
                scores=scores,
                after=after,
                next_tokens=self._next_tokens(request, params),
                stop_tokens=frozenset(params.stop_token_ids) - self._own_ends(params),
            )
            for index, each in enumerate((request, *request.branches))
        ]

    def _own_ends(self, params: GenerationParams) -> frozenset[int]:
        """The model's tokens that end this request's answers."""
        return frozenset() if params.ignore_eos else self._end_tokens

    def _next_tokens(self, request: Request, params: GenerationParams) -> NextTokens | None:
        """What one answer's tokens may be; None: anything."""
        constraint, least = params.constraint, params.min_tokens
        if constraint is None and not least:
            return None
        matcher = None if constraint is None else self._grammars.matcher(constraint)
        not_ends = all_but(request.stop_token_ids, self._vocabulary) if least else None
        return NextTokens(matcher, least, not_ends)

    def _mode(self, params: GenerationParams) -> CacheMode:
        if not self._info.prefix_cache:
            return CacheMode.BYPASS
        # Of the likeliest tokens nothing is stored: the whole prompt has to be computed for them.
        # The hash index stores nothing of the prompt's own either.
        mode, top = params.cache_mode, params.prompt_logprobs
        stored = top is None or (top == 0 and self._info.cache.index == "tree")
        return mode if stored else mode.without_reading

    def _check_length(self, prompt: Sequence[int]) -> None:
        info, length = self._info, len(prompt)
        if length == 0:
            raise RequestRefused("the prompt is empty; it needs at least 1 token", param="prompt")
        if length >= info.context_length:
            raise RequestRefused(
                f"the prompt has {length} tokens, but the model's context of {info.context_length} "
                f"tokens has room for {info.context_length - 1} and an answer; shorten the prompt",
                param="prompt",
                code="context_length_exceeded",
            )
        if length > info.max_prompt_tokens:
            raise RequestRefused(
                f"the prompt has {length} tokens, but the KV memory holds {info.kv_tokens}; "
                "shorten the prompt, or start the server with a larger --kv-memory",
                param="prompt",
                code="context_length_exceeded",
            )

    def _check_tokens(self, prompt: Sequence[int]) -> None:
        ids = np.asarray(prompt)  # of an array no copy
        if not 0 <= ids.min() <= ids.max() < self._vocabulary:
            index, token = next(
                (index, token)
                for index, token in enumerate(prompt)
                if not 0 <= token < self._vocabulary
            )
            raise RequestRefused(
                f"token {index} of the prompt is {token}; "
                f"token ids must lie between 0 and {self._vocabulary - 1}",
                param="prompt",
            )

    def _check_bias(self, params: GenerationParams) -> None:
        biased = params.sampling.logit_bias if params.sampling is not None else {}
        highest = max(biased, default=0)
        if highest >= self._vocabulary:
            raise RequestRefused(
                f"logit_bias has token id {highest}; token ids must lie between 0 and "
                f"{self._vocabulary - 1}",
                param="logit_bias",
            )

    def _check_stop_tokens(self, params: GenerationParams) -> None:
        highest = max(params.stop_token_ids, default=0)
        if highest >= self._vocabulary:
            raise RequestRefused(
                f"stop_token_ids has token id {highest}; token ids must lie between 0 and "
                f"{self._vocabulary - 1}",
                param="stop_token_ids",
            )

    def _check_width(self, prompt: Sequence[int], params: GenerationParams) -> None:
        """Answers to one prompt run at a time, each with a block of its own."""
        info, width = self._info, params.width
        name = "n" if width == params.n else "best_of"
        if width > self._max_running:
            raise RequestRefused(
                f"{name} is {width}, but this server runs at most {self._max_running} answers at a "
                f"time; send {name} up to that, or start the server with a larger --max-running",
                param=name,
            )
        blocks = -(-len(prompt) // info.block_size) + width - 1
        if blocks > info.num_blocks:
            raise RequestRefused(
                f"{name} is {width}: so many answers to a prompt of {len(prompt)} tokens do not "
                f"fit the KV memory of {info.kv_tokens}; send a smaller {name} or a shorter "
                "prompt, or start the server with a larger --kv-memory",
                param=name,
            )
        most_beams = self._vocabulary - len(self._end_tokens)
        if params.use_beam_search and width > most_beams:
            raise RequestRefused(
                f"{name} is {width}, but the model has only {most_beams} tokens to go on with",
                param=name,
            )
