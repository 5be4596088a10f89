"""200 requests of all kinds through an engine whose memory is far too small for them."""

from __future__ import annotations

import random
import threading

from scheduler import Limits
from server import GenerationParams, Output, SamplingParams
from tests.server.conftest import MakeEngine


class Receiver:
    """Collects one answer; aborts it after some tokens if it is told to."""

    def __init__(self, abort_after: int | None) -> None:
        self.abort_after = abort_after
        self.tokens: list[int] = []
        self.last: Output | None = None
        self.wants_abort = threading.Event()
        self.ended = threading.Event()

    def __call__(self, output: Output) -> None:
        assert self.last is None, "an output came after the last one"
        self.tokens.extend(output.token_ids)
        if self.abort_after is not None and len(self.tokens) >= self.abort_after:
            self.wants_abort.set()
        if output.finish_reason is not None:
            self.last = output
            self.wants_abort.set()
            self.ended.set()


def test_mixed_requests_under_memory_pressure_leak_nothing_and_answer_as_if_alone(
    make_engine: MakeEngine,
) -> None:
    rng = random.Random(20)
    calm = make_engine(num_blocks=64, prefix_cache=False)
    tight = make_engine(num_blocks=12, limits=Limits(max_step_tokens=32, max_running=10))
    heads = [[rng.randrange(4, 500) for _ in range(n)] for n in (16, 31, 48, 64)]
    kinds = []
    for _ in range(200):
        head = rng.choice(heads) if rng.random() < 0.7 else []
        own = [rng.randrange(4, 500) for _ in range(rng.randrange(1, 40))]
        abort_after = rng.choice((0, 1, 3)) if rng.random() < 0.2 else None
        kinds.append(([*head, *own], rng.choice((1, 3, 8, 45)), abort_after))

    receivers, ids = [], []
    for prompt, max_tokens, abort_after in kinds:
        receiver = Receiver(abort_after)
        params = GenerationParams(max_tokens, SamplingParams(temperature=0.0))
        ids.append(tight.submit(prompt, params, receiver))
        receivers.append(receiver)
        if abort_after == 0:
            tight.abort(ids[-1])
    for request_id, receiver in zip(ids, receivers, strict=True):
        if receiver.abort_after:
            assert receiver.wants_abort.wait(timeout=60)
            tight.abort(request_id)
    assert all(receiver.ended.wait(timeout=60) for receiver in receivers)

    alone: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {}
    for (prompt, max_tokens, abort_after), receiver in zip(kinds, receivers, strict=True):
        params = GenerationParams(max_tokens, SamplingParams(temperature=0.0))
        key = (tuple(prompt), max_tokens)
        expected = alone.setdefault(key, calm.generate([prompt], params)[0].token_ids)
        assert receiver.last is not None
        if receiver.last.finish_reason == "abort":
            assert abort_after is not None
            expected = expected[: len(receiver.tokens)]
        assert tuple(receiver.tokens) == expected

    assert tight.audit() == []
    state, counters = tight.state(), tight.counters()
    assert (state["running"], state["waiting"], state["blocks_private"]) == (0, 0, 0)
    assert state["blocks_free"] + state["blocks_evictable"] == tight.info.num_blocks
    assert min(counters["evicted_blocks"], counters["preemptions"]) > 0
    assert counters["cached_tokens"] > 0
    assert counters["requests_aborted"] > 0
    assert counters["requests_finished"] + counters["requests_aborted"] == 200
