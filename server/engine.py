"""The engine without HTTP: prompts in, tokens out, for batches and streams.

>>> from server import Engine                                           # doctest: +SKIP
>>> engine = Engine.load()                                              # doctest: +SKIP
>>> engine.generate(["The capital of France is"])[0].text               # doctest: +SKIP
' Paris.'
"""

from __future__ import annotations

import atexit
import functools
import itertools
import queue
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from radix_engine.cache import CacheMode, NodeDump
from radix_engine.model.load import LoadProgress
from radix_engine.model.runner import ModelRunner
from radix_engine.model.weights import LoadedModel
from scheduler import Limits, Request, Scheduler
from server.answer import Answer
from server.cache_choice import dump_of, make_cache
from server.collector import Collector
from server.engine_loop import EngineLoop
from server.errors import RequestRefused
from server.loading import load_parts
from server.options import BLOCK_SIZE, CacheOptions, EngineOptions
from server.outputs import Completion, EngineInfo, GenerationParams, Output
from server.text import TextCodec
from server.tree_view import tree_view

Prompt = str | Sequence[int]


class Engine:
    """A model, its prefix cache and a scheduler on a thread of their own. All methods are
    thread-safe.

    Use as a context manager, or call ``shutdown``. ``num_blocks`` blocks of ``block_size`` tokens
    are allocated for K and V. ``cache``: how prefixes are kept; by default in the radix tree.
    """

    def __init__(
        self,
        model: LoadedModel,
        text: TextCodec,
        num_blocks: int,
        *,
        block_size: int = 16,
        limits: Limits | None = None,
        cache: CacheOptions | None = None,
    ) -> None:
        options = cache or CacheOptions()
        runner = ModelRunner(model, num_blocks, block_size)
        self.text = text
        self.info = EngineInfo(
            model=model.name,
            context_length=model.config.context_length,
            block_size=block_size,
            num_blocks=num_blocks,
            kv_bytes_per_token=runner.memory.bytes_per_block // block_size,
            dtype=str(model.dtype).removeprefix("torch."),
            prefix_cache=options.enabled,
            sampling=model.sampling,
        )
        self._eos = model.eos_token_ids
        self._vocabulary = model.config.vocab_size
        self._cache = make_cache(options, num_blocks, block_size)
        self._scheduler = Scheduler(self._cache, limits or Limits())
        self._loop = EngineLoop(self._scheduler, runner)
        self._ids = itertools.count(1)
        self._draining = False
        self._loop.start()
        # torch must not be inside a step when the interpreter is taken down.
        atexit.register(self.shutdown, 0.0)

    @classmethod
    def load(
        cls, options: EngineOptions | None = None, progress: LoadProgress | None = None
    ) -> Engine:
        """An engine for a model by its name or path (the first time, the default one is fetched).

        ``progress`` is called with (layers loaded, layers). Raises ModelError or ValueError.
        """
        options = options or EngineOptions()
        parts = load_parts(options, progress)
        return cls(
            parts.model,
            parts.text,
            parts.num_blocks,
            block_size=BLOCK_SIZE,
            limits=options.limits,
            cache=options.cache,
        )

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown(grace_s=0.0)

    def submit(
        self, prompt: Sequence[int], params: GenerationParams, on_output: Callable[[Output], None]
    ) -> int:
        """Queue a prompt of token ids and return the request's id.

        ``on_output`` is called on the engine's thread, in order; exactly one call, the last, has a
        finish reason. It must be quick, since all other answers wait for it, and may call anything
        but ``generate``, ``stream`` and ``shutdown``. Raises RequestRefused: nothing was queued.
        """
        if self._draining:
            raise _shutting_down()
        self._check_prompt(prompt)
        info = self.info
        # The last token needs no K/V, so an answer may be one token longer than the memory.
        room = min(info.context_length, info.kv_tokens + 1) - len(prompt)
        request = Request(
            next(self._ids),
            prompt,
            min(params.max_tokens, room),
            self._eos,
            namespace=params.namespace,
            mode=params.cache_mode if info.prefix_cache else CacheMode.BYPASS,
        )
        sampling = params.sampling or info.sampling
        seed = secrets.randbits(64) if sampling.seed is None else sampling.seed
        answer = Answer(
            request,
            sampling,
            seed,
            params.stop,
            self.text.detokenizer(prompt),
            on_output,
        )
        if not self._loop.post(lambda: self._loop.add(answer)):
            raise _shutting_down() if self._draining else _failed()
        return request.request_id

    def abort(self, request_id: int) -> None:
        """End a request before the next step; its receiver gets ``abort``. Unknown ids are
        ignored.
        """
        self._loop.post(lambda: self._loop.abort(request_id))

    def stream(
        self, prompt: Prompt, params: GenerationParams = GenerationParams()
    ) -> Iterator[Output]:
        """The answer to one prompt, piece by piece. Leaving the loop early aborts the request.

        The prompt is submitted, or refused, when the first piece is asked for.
        """
        pieces: queue.SimpleQueue[Output] = queue.SimpleQueue()
        request_id = self.submit(self._tokens(prompt), params, pieces.put)
        try:
            while True:
                piece = pieces.get()
                yield piece
                if piece.finish_reason is not None:
                    return
        finally:
            self.abort(request_id)

    def generate(
        self, prompts: Sequence[Prompt], params: GenerationParams = GenerationParams()
    ) -> list[Completion]:
        """The whole answers to several prompts, computed together, in the order of the prompts.

        Raises RequestRefused for the first prompt that cannot be served, before any is computed.
        """
        if isinstance(prompts, str):
            raise TypeError("generate takes a list of prompts; put the one prompt into a list")
        tokens = [self._tokens(prompt) for prompt in prompts]
        for prompt in tokens:
            self._check_prompt(prompt)
        collectors = [Collector() for _ in tokens]
        submitted: list[int] = []
        try:
            for prompt, collector in zip(tokens, collectors, strict=True):
                submitted.append(self.submit(prompt, params, collector.push))
            return [collector.wait() for collector in collectors]
        except BaseException:
            for request_id in submitted:
                self.abort(request_id)
            raise

    def flush_cache(self) -> int:
        """Empty the prefix cache; returns the blocks freed at once. Running requests go on.

        Blocks for up to one step.
        """
        return self._loop.call(self._cache.flush)

    def tree(self) -> dict[str, object]:
        """The cached prefixes as JSON-able data. Blocks for up to one step.

        Raises RequestRefused where the index is not a tree.
        """

        def look() -> tuple[list[NodeDump], dict[str, int]] | None:
            nodes = dump_of(self._cache)
            return None if nodes is None else (nodes, self.state())

        found = self._loop.call(look)
        if found is None:
            raise RequestRefused(
                "the hash index keeps no tree to show; start with --prefix-index tree",
                code="no_tree",
                status=404,
            )
        nodes, state = found
        return tree_view(
            nodes, self.info.block_size, state, functools.partial(self.text.decode, special=True)
        )

    def audit(self) -> list[str]:
        """Check that every block has exactly one owner; what is wrong, one line each."""
        return self._loop.call(self._scheduler.audit)

    def counters(self) -> dict[str, int]:
        """What was done since the start, in tokens, blocks and requests."""
        return asdict(self._scheduler.counters) | asdict(self._cache.counters)

    def state(self) -> dict[str, int]:
        """How many requests wait and run now, and who holds how many blocks."""
        pool = self._cache.pool
        return {
            "running": self._scheduler.num_running,
            "waiting": self._scheduler.num_waiting,
            "blocks_free": pool.free_blocks,
            "blocks_private": pool.private_blocks,
            "blocks_cached": pool.tree_blocks,
            "blocks_evictable": self._cache.evictable_blocks,
        }

    def tame_garbage_collector(self) -> None:
        """For a process that only serves: freeze what is loaded, and let Python collect garbage
        between steps and when idle, so that no step waits for it."""
        self._loop.call(self._loop.tame_garbage_collector)

    def is_alive(self) -> bool:
        """Whether the engine's thread runs."""
        return self._loop.is_alive()

    def shutdown(self, grace_s: float) -> None:
        """Refuse new requests, let the others run for ``grace_s`` seconds, end the rest. Blocks."""
        self._draining = True
        atexit.unregister(self.shutdown)
        if self._loop.is_alive():
            self._loop.wait_idle(grace_s)
            self._loop.stop()

    def _tokens(self, prompt: Prompt) -> Sequence[int]:
        return self.text.encode(prompt) if isinstance(prompt, str) else prompt

    def _check_prompt(self, prompt: Sequence[int]) -> None:
        info, length = self.info, len(prompt)
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
        if not 0 <= min(prompt) <= max(prompt) < self._vocabulary:
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


def _shutting_down() -> RequestRefused:
    return RequestRefused("the server is shutting down", code="server_shutting_down", status=503)


def _failed() -> RequestRefused:
    return RequestRefused(
        "the engine has failed; the log says why. Restart it", code="engine_stopped", status=503
    )
