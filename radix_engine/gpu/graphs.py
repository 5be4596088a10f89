"""Decode-only steps as CUDA graphs: recorded once per batch size, replayed with one launch.

A graph repeats the same kernels on the same addresses. So a step of n sequences is padded to a size
that was recorded, its integers are written into that size's fixed buffers, its attention is planned
anew into buffers that stay where they are, and then the graph runs. Nothing here has run on a GPU
yet; what is decided on the host is tested on a CPU, with a stand-in that records and repeats.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from radix_engine.attention.interface import AttentionPlan, AttentionSpan
from radix_engine.gpu.runner import GpuRunner, attention_spans, check_step, move_tokens, moves
from radix_engine.memory.kv_memory import KVMemory
from radix_engine.model.batch import Follow, Span

MOST_RECORDED = 256
"""Sequences of the largest graph: beyond that, launching kernels is a small part of a step."""

_WARM_UPS = 2

CaptureProgress = Callable[[int, int], None]
"""Called with the number of graphs recorded and the number of all."""


def capture_sizes(limit: int) -> tuple[int, ...]:
    """The batch sizes to record, largest first: 1, 2, 4 and every multiple of 8 up to ``limit``."""
    sizes = [size for size in (1, 2, 4) if size <= limit]
    return tuple(reversed([*sizes, *range(8, limit + 1, 8)]))


def capture_limit(max_running: int) -> int:
    """Up to what size to record where so many sequences may run: all of them, rounded up to what
    `capture_sizes` has, but at most 256."""
    return min(MOST_RECORDED, -(-max_running // 8) * 8)


def fitting_size(recorded: Sequence[int], batch: int) -> int | None:
    """The smallest recorded size (in ascending order) with room for ``batch``; None: none has."""
    place = bisect_left(recorded, batch)
    return recorded[place] if place < len(recorded) else None


def is_decode(spans: Sequence[Span]) -> bool:
    """Whether every span is one token that wants logits: what graphs are recorded for."""
    return all(len(span.tokens) == 1 and span.num_logits == 1 for span in spans)


def padded(spans: Sequence[Span], size: int, dummy_block: int) -> list[Span]:
    """The spans and as many more as ``size`` asks for, each token 0 alone in the dummy block."""
    return [*spans, *[Span((0,), 0, (dummy_block,), 1)] * (size - len(spans))]


class GraphAttention(Protocol):
    """Attention of decode steps of one size, whose kernels can be recorded.

    `plan` may write only into arrays that were allocated before, and returns the same plan each
    time. ``attend`` of that plan, with any of the model's windows, only queues kernels that read
    these arrays: no planning, no allocation outside torch's own, nothing that waits.
    """

    @property
    def plan_info(self) -> tuple[int, ...]:
        """What the kernels' launches were derived from in the latest plan."""
        ...

    def plan(self, spans: Sequence[AttentionSpan]) -> AttentionPlan:
        """Prepare a step of exactly as many spans as the size, each of length 1.

        Raises ValueError as `Attention.plan` does.
        """
        ...


class Graph(Protocol):
    """Recorded work of the device."""

    def replay(self) -> None:
        """Queue all of it again."""
        ...


class GraphRecorder(Protocol):
    """Makes graphs that share one pool of memory, so only one may run at a time."""

    def record(self, body: Callable[[], torch.Tensor]) -> tuple[Graph, torch.Tensor]:
        """A graph of what ``body`` queues, and the tensor that each replay writes anew.

        ``body`` is run several times before, so that nothing is compiled or set up while recording.
        """
        ...

    def free_bytes(self) -> int:
        """The device's free memory."""
        ...


class CudaRecorder:
    """`GraphRecorder` by `torch.cuda.CUDAGraph`. Has not run on a GPU yet."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, body: Callable[[], torch.Tensor]) -> tuple[Graph, torch.Tensor]:
        """See `GraphRecorder.record`."""
        current = torch.cuda.current_stream(self._device)
        # Recording needs a stream of its own; what was queued before it must be done first.
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            for _ in range(_WARM_UPS):
                body()
        current.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads may go on using CUDA: only this one must keep to what can be recorded.
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        ):
            output = body()
        return graph, output

    def free_bytes(self) -> int:
        """See `GraphRecorder.free_bytes`."""
        return int(torch.cuda.mem_get_info(self._device)[0])


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A graph of one size and all that it reads and writes at fixed addresses.

    ``inputs`` int32 [4 * size]: token ids, then positions, and behind these, which no kernel of the
    graph reads, where tokens of another step go and which. ``hidden`` [size, hidden_size]: what the
    head makes logits of.
    """

    graph: Graph
    attention: GraphAttention
    plan_info: tuple[int, ...]
    inputs: torch.Tensor
    hidden: torch.Tensor


class GraphRunner:
    """A `Runner` that replays graphs where it can, and else runs ``runner``.

    Layers are recorded; the head runs behind them on the rows of the step alone, so no logits of
    padding are computed, and what `forward` returns is nobody else's. ``make_attention`` makes the
    attention of one size, over a memory that has ``dummy_block``, too: a block that is given to
    nobody, best one that ``runner`` does not know of, since padding reads and writes it.
    """

    def __init__(
        self,
        runner: GpuRunner,
        make_attention: Callable[[int], GraphAttention],
        recorder: GraphRecorder,
        dummy_block: int,
    ) -> None:
        self._runner = runner
        self._make_attention = make_attention
        self._recorder = recorder
        self._dummy_block = dummy_block
        self._steps: dict[int, RecordedStep] = {}
        self._sizes: list[int] = []

    @property
    def memory(self) -> KVMemory:
        """The runner's memory of K and V."""
        return self._runner.memory

    def copy_rows(self, copies: Sequence[tuple[int, int, int]]) -> None:
        """Before a step: copy K and V between blocks, as (source, target, rows). See `KVMemory`."""
        self._runner.copy_rows(copies)

    @torch.inference_mode()
    def capture(self, limit: int, progress: CaptureProgress | None = None) -> int:
        """Record steps of up to ``limit`` sequences; returns the device memory taken, in bytes.

        To be called once, before the first step. Cost: three steps a size. Raises ValueError where
        there is no dummy block.
        """
        free = self._recorder.free_bytes()
        sizes, steps = capture_sizes(limit), {}
        for done, size in enumerate(sizes, start=1):
            steps[size] = self._record(size)
            if progress is not None:
                progress(done, len(sizes))
        self._steps, self._sizes = steps, sorted(steps)
        return max(0, free - self._recorder.free_bytes())

    def forward(self, spans: Sequence[Span]) -> torch.Tensor:
        """Run one step. See `GpuRunner.forward`.

        Raises RuntimeError where planning asks for other launches than were recorded; the step has
        then not run.
        """
        return self.forward_following(spans, None)

    @torch.inference_mode()
    def forward_following(self, spans: Sequence[Span], follow: Follow | None) -> torch.Tensor:
        """`forward`, where some of the tokens are another step's. See
        `GpuRunner.forward_following`."""
        size = fitting_size(self._sizes, len(spans)) if spans and is_decode(spans) else None
        if size is None:
            return self._runner.forward_following(spans, follow)
        step = self._steps[size]
        whole = padded(spans, size, self._dummy_block)
        flat = check_step(whole, self._runner.model.config, follow)
        step.attention.plan(attention_spans(whole))
        if step.attention.plan_info != step.plan_info:
            raise RuntimeError(
                f"the graph of {size} sequences was recorded with the plan {step.plan_info}, "
                f"but this step needs {step.attention.plan_info}"
            )
        parts = (flat.tokens, flat.positions, *moves(follow))
        target = step.inputs[: sum(map(len, parts))]
        tokens, _, *moved = self._runner.staging.send(parts, target)
        if follow is not None:
            move_tokens(tokens, follow.tokens, *moved)
        step.graph.replay()
        return self._runner.logits(step.hidden[: len(spans)])

    def _record(self, size: int) -> RecordedStep:
        runner = self._runner
        attention = self._make_attention(size)
        plan = attention.plan(attention_spans(padded((), size, self._dummy_block)))
        inputs = torch.zeros(4 * size, dtype=torch.int32, device=runner.model.device)
        tokens, positions = inputs[:size], inputs[size : 2 * size]

        def body() -> torch.Tensor:
            hidden = runner.hidden(tokens, positions, None, plan)
            assert hidden is not None  # every row is wanted
            return hidden

        graph, hidden = self._recorder.record(body)
        return RecordedStep(graph, attention, attention.plan_info, inputs, hidden)
