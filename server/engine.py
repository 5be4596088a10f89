"""The engine without HTTP: prompts in, tokens out, for batches and streams.

>>> from server import Engine                                           # doctest: +SKIP
>>> engine = Engine.load()                                              # doctest: +SKIP
>>> engine.generate(["The capital of France is"])[0].text               # doctest: +SKIP
' Paris.'
"""

from __future__ import annotations

import atexit
import functools
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from radix_engine.cache import NodeDump, PrefixCache, token_array
from radix_engine.model.load import LoadProgress
from radix_engine.model.served import ServedModel
from scheduler import Limits, Scheduler
from server.beam_search import BeamSearch
from server.cache_choice import dump_of, make_cache
from server.cache_control import CacheControl
from server.collector import Collector
from server.debug.inspector import Inspector
from server.engine_loop import EngineLoop
from server.errors import RequestRefused
from server.generation_params import GenerationParams
from server.intake import Intake
from server.loading import closed_on_error, load_parts
from server.look_ahead import FollowingModel
from server.options import BLOCK_SIZE, CacheOptions, EngineOptions
from server.outputs import Completion, EngineInfo, Output
from server.queue_limit import QueueState, refuse_if_full
from server.readings import Readings, read
from server.steps import Steps
from server.text import TextCodec
from server.tree_view import tree_view

Prompt = str | Sequence[int]


class Engine:
    """A model, its prefix cache and a scheduler on a thread of their own. All methods are
    thread-safe.

    Use as a context manager, or call ``shutdown``. ``num_blocks`` blocks of ``block_size`` tokens
    are allocated for K and V. ``cache``: how prefixes are kept; by default in the radix tree.
    ``order`` and ``fair``: see `EngineOptions`.
    """

    def __init__(
        self,
        model: ServedModel,
        text: TextCodec,
        num_blocks: int,
        *,
        block_size: int = 16,
        limits: Limits | None = None,
        cache: CacheOptions | None = None,
        order: str = "lpm",
        fair: bool = False,
    ) -> None:
        options = cache or CacheOptions()
        runner = model.make_runner(num_blocks, block_size)
        limits = limits or Limits()
        if limits.max_step_tokens is None:
            suiting = max(model.step_tokens, limits.max_running)
            limits = replace(limits, max_step_tokens=suiting)
        self.text = text
        self.info = EngineInfo(
            model=model.name,
            context_length=model.context_length,
            block_size=block_size,
            num_blocks=num_blocks,
            kv_bytes_per_token=runner.memory.bytes_per_block // block_size,
            weights=model.weights,
            kv_dtype=model.kv_dtype,
            kernels=model.kernels,
            exact=model.exact,
            prefix_cache=options.enabled,
            cache=options,
            sampling=model.sampling,
            limits=limits,
            order=order,
            fair=fair,
        )
        self._cache = make_cache(options, num_blocks, block_size)
        # How many wait is limited at the door, where it can be told at once.
        self._limits = limits
        self._door = threading.Lock()
        unlimited = replace(limits, max_waiting=None)
        self._scheduler = Scheduler(self._cache, unlimited, order, fair=fair)
        following = runner if model.look_ahead and isinstance(runner, FollowingModel) else None
        self._processes = model.processes
        drawer = None if model.make_drawer is None else model.make_drawer()
        steps = Steps(self._scheduler, runner, following, drawer)
        self._loop = EngineLoop(steps)
        tree = self._cache if options.enabled and isinstance(self._cache, PrefixCache) else None
        self.cache_control = CacheControl(tree, self._loop.call)
        self.inspector = Inspector(
            tree,
            self._scheduler,
            steps.lives,
            self._loop.call,
            functools.partial(text.decode, special=True),
            self.readings,
        )
        self._intake = Intake(
            self.info,
            text,
            model.eos_token_ids,
            model.vocab_size,
            limits.max_running,
            self.cache_control.after,
        )
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
        with closed_on_error(parts.model):
            return cls(
                parts.model,
                parts.text,
                parts.num_blocks,
                block_size=BLOCK_SIZE,
                limits=options.limits,
                cache=options.cache,
                order=options.order,
                fair=options.fair,
            )

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown(grace_s=0.0)

    def submit(
        self, prompt: Sequence[int], params: GenerationParams, on_output: Callable[[Output], None]
    ) -> int:
        """Queue a prompt of token ids and return the request's id.

        ``on_output`` is called on the engine's thread, in order; exactly one call for each of the
        ``params.n`` answers, its last, has a finish reason. It must be quick, since all other
        answers wait for it, and may call anything but ``generate``, ``stream`` and ``shutdown``.
        Raises RequestRefused: nothing was queued.
        """
        if self._draining:
            raise _shutting_down()
        with suppress(OverflowError):  # the check says which id it is
            prompt = token_array(prompt)
        self._intake.check(prompt, params)
        work = self._intake.prepare(prompt, params, on_output)
        with self._door:
            refuse_if_full(self.queue(), self._limits.max_waiting)
            added = self._loop.add(work, params.namespace.tenant)
        if not added:
            raise _shutting_down() if self._draining else _failed()
        return work.asked_id if isinstance(work, BeamSearch) else work[0].asked_id

    def abort(self, request_id: int) -> None:
        """End a request before the next step; its receiver gets ``abort`` for each answer that has
        not ended. Unknown ids are ignored.
        """
        self._loop.abort(request_id)

    def note_tool_call(self, request_id: int, index: int = 0) -> None:
        """Answer ``index`` of a request, which has just ended, turned out to call a tool, so that
        its conversation may go on soon. What ``--eviction agent`` goes by; nothing else changes.
        Unknown ids, and those that ended more than some seconds ago, are ignored. Never blocks.
        """
        self._loop.post(lambda: self._scheduler.note_tool_call(request_id + index))

    def stream(
        self, prompt: Prompt, params: GenerationParams = GenerationParams()
    ) -> Iterator[Output]:
        """The answers to one prompt, piece by piece; several come in turn, see their ``index``.
        Leaving the loop early aborts the request.

        The prompt is submitted, or refused, when the first piece is asked for.
        """
        pieces: queue.SimpleQueue[Output] = queue.SimpleQueue()
        request_id = self.submit(self._tokens(prompt), params, pieces.put)
        try:
            running = params.n
            while running:
                piece = pieces.get()
                running -= piece.finish_reason is not None
                yield piece
        finally:
            self.abort(request_id)

    def generate(
        self, prompts: Sequence[Prompt], params: GenerationParams = GenerationParams()
    ) -> list[Completion]:
        """The whole answers to several prompts, computed together, in the order of the prompts.

        With ``params.n`` each prompt has so many, one after the other by their ``index``: answer
        ``j`` to prompt ``i`` is at place ``i * n + j``, as OpenAI's API orders its choices.
        Raises RequestRefused for the first prompt that cannot be served, before any is computed.
        """
        if isinstance(prompts, str):
            raise TypeError("generate takes a list of prompts; put the one prompt into a list")
        tokens = [self._tokens(prompt) for prompt in prompts]
        for prompt in tokens:
            self._intake.check(prompt, params)
        collectors = [Collector(params.n) for _ in tokens]
        submitted: list[int] = []
        try:
            for prompt, collector in zip(tokens, collectors, strict=True):
                submitted.append(self.submit(prompt, params, collector.push))
            return [answer for collector in collectors for answer in collector.wait()]
        except BaseException:
            for request_id in submitted:
                self.abort(request_id)
            raise

    def flush_cache(self) -> int:
        """Empty the prefix cache, and forget the tokens of earlier turns; returns the blocks freed
        at once. Running requests go on.

        Blocks for up to one step.
        """
        freed = self._loop.call(self._cache.flush)
        self.text.transcripts.clear()
        return freed

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
        return dict(self.readings().counters)

    def state(self) -> dict[str, int]:
        """How many requests wait and run now, and who holds how many blocks."""
        return dict(self.readings().state)

    def readings(self) -> Readings:
        """All counts and times at once. Never waits for the engine; some microseconds."""
        return read(
            self._scheduler,
            self._cache,
            self._loop.times,
            unqueued=self._loop.num_unqueued,
            sessions=self.cache_control.num_sessions,
            transcripts=self.text.transcripts,
        )

    def stalled_s(self) -> float:
        """Seconds since a step last ended, or work came; 0.0 while there is none. Never waits."""
        return self._loop.times.stalled_s()

    def stack(self) -> str:
        """What the engine's thread is doing right now, as a traceback shows it; empty when it has
        ended."""
        return self._loop.stack()

    def queue(self, tenant: str | None = None) -> QueueState:
        """How many requests wait, of all and of a tenant. Never blocks, also while a step runs."""
        scheduler, loop = self._scheduler, self._loop
        queued = scheduler.num_new_waiting
        # While nobody waits, what is new starts with the next step, as far as that has places.
        places = 0 if queued else max(0, self._limits.max_running - scheduler.num_running)
        of_tenant = scheduler.num_new_waiting_of(tenant) + loop.num_unqueued_of(tenant)
        return QueueState(queued + loop.num_unqueued, of_tenant, places)

    def tame_garbage_collector(self) -> None:
        """For a process that only serves: freeze what is loaded, and let Python collect garbage
        between steps and when idle, so that no step waits for it."""
        self._loop.call(self._loop.tame_garbage_collector)

    def is_alive(self) -> bool:
        """Whether the engine's thread runs, and the other processes of its model, if any."""
        others = self._processes
        return self._loop.is_alive() and (others is None or others.is_alive())

    def shutdown(self, grace_s: float) -> None:
        """Refuse new requests, let the others run for ``grace_s`` seconds, end the rest, and the
        other processes of the model, if any. Blocks."""
        self._draining = True
        atexit.unregister(self.shutdown)
        if self._loop.is_alive():
            self._loop.wait_idle(grace_s)
            self._loop.stop()
        self._intake.close()
        if self._processes is not None:
            self._processes.close()

    def _tokens(self, prompt: Prompt) -> Sequence[int]:
        return self.text.encode(prompt) if isinstance(prompt, str) else prompt


def _shutting_down() -> RequestRefused:
    return RequestRefused("the server is shutting down", code="server_shutting_down", status=503)


def _failed() -> RequestRefused:
    return RequestRefused(
        "the engine has failed; the log says why. Restart it", code="engine_stopped", status=503
    )
