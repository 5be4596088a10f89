"""What a request that is not to store leaves behind: nothing, however it is computed or ends."""

from __future__ import annotations

import queue
from dataclasses import replace
from typing import Any

import pytest

from radix_engine.cache import CacheMode
from scheduler import Limits
from server import Engine, GenerationParams, Output
from tests.server.conftest import MakeEngine
from tests.server.prompts import greedy, ids

NONE, READ_ONLY = CacheMode.BYPASS, CacheMode.READ_ONLY
CHUNKED = Limits(max_step_tokens=16, max_running=4)


def shape(engine: Engine) -> tuple[int, int, Any]:
    """What the tree holds: nodes, tokens, and the runs that nodes begin with."""
    tree: Any = engine.tree()
    texts = sorted((node["tokens"], node["text"]) for node in tree["nodes"])
    return len(tree["nodes"]), tree["cached_tokens"], texts


def ask(engine: Engine, prompt: list[int], mode: CacheMode, max_tokens: int = 20) -> int:
    params = replace(greedy(max_tokens), cache_mode=mode)
    return engine.generate([prompt], params)[0].usage.cached_tokens


@pytest.mark.parametrize("limits", [None, CHUNKED], ids=["whole", "chunked"])
@pytest.mark.parametrize("prompt", [ids(70, 2), [*ids(40, 1), *ids(30, 2)]], ids=["new", "shares"])
def test_mode_none_reads_nothing_and_adds_nothing(
    make_engine: MakeEngine, limits: Limits | None, prompt: list[int]
) -> None:
    engine = make_engine(limits=limits)
    ask(engine, ids(64, 1), CacheMode.DEFAULT)
    before = shape(engine)
    for _ in range(2):
        assert ask(engine, prompt, NONE) == 0
        assert shape(engine) == before
    assert ask(engine, prompt, CacheMode.DEFAULT) == (40 if prompt[0] == ids(1, 1)[0] else 0)


@pytest.mark.parametrize("limits", [None, CHUNKED], ids=["whole", "chunked"])
def test_mode_read_only_hits_and_adds_nothing(
    make_engine: MakeEngine, limits: Limits | None
) -> None:
    engine = make_engine(limits=limits)
    ask(engine, ids(64, 1), CacheMode.DEFAULT, max_tokens=1)
    tokens = shape(engine)[1]
    for _ in range(2):
        assert ask(engine, [*ids(40, 1), *ids(30, 2)], READ_ONLY) == 40
        assert ask(engine, ids(64, 1), READ_ONLY) == 63
        assert ask(engine, ids(70, 2), READ_ONLY) == 0
        assert shape(engine)[1] == tokens


@pytest.mark.parametrize("mode", [NONE, READ_ONLY], ids=lambda mode: str(mode.value))
def test_siblings_of_the_same_step_do_not_attach_to_it(
    make_engine: MakeEngine, mode: CacheMode
) -> None:
    engine = make_engine(limits=CHUNKED)
    params = replace(greedy(4), cache_mode=mode)
    answers = engine.generate([ids(80, 1)] * 4, params)
    assert [answer.usage.cached_tokens for answer in answers] == [0] * 4
    assert engine.counters()["computed_tokens"] == 4 * 80
    assert shape(engine)[1] == 0


@pytest.mark.parametrize("mode", [NONE, READ_ONLY], ids=lambda mode: str(mode.value))
@pytest.mark.parametrize("steps", [1, 3, 8])
def test_an_aborted_one_leaves_nothing(
    make_engine: MakeEngine, mode: CacheMode, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(limits=CHUNKED)
    pieces: queue.SimpleQueue[Output] = queue.SimpleQueue()
    model = engine._loop._steps._model
    forward, asked, done = model.forward, [0], [0]

    def forward_and_abort(spans: Any) -> Any:
        done[0] += 1
        if done[0] == steps:  # in the middle of a chunk, or of the answer
            engine.abort(asked[0])
        return forward(spans)

    monkeypatch.setattr(model, "forward", forward_and_abort)
    params: GenerationParams = replace(greedy(50), cache_mode=mode)

    def submit() -> None:  # on the engine's thread: the id is known before the first step
        asked[0] = engine.submit(ids(70, 1), params, pieces.put)

    engine._loop.call(submit)
    while (piece := pieces.get(timeout=20)).finish_reason is None:
        pass
    assert piece.finish_reason == "abort"
    assert shape(engine)[1] == 0
    assert engine.audit() == []
    assert engine.state()["blocks_free"] == 64
