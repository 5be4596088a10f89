"""Decode steps as graphs, with a stand-in that records and repeats in place of CUDA's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from radix_engine.attention.flashinfer_graphs import FlashInferGraphAttention
from radix_engine.gpu.graphs import (
    GraphAttention,
    GraphRunner,
)
from radix_engine.model.batch import Follow, Span
from radix_engine.model.runner import ModelRunner
from tests.gpu.binding import bound_fake
from tests.gpu.recording import DUMMY, Recorder, Setup, graphs_of
from tests.gpu.runners import (
    NUM_BLOCKS,
    all_logits,
    assert_near,
    memory_of,
    over_torch,
    tables,
    tiny_model,
)
from tests.model.helpers import random_tokens


@pytest.fixture(scope="module", params=["llama", "qwen3, some windows"])
def model_runner(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ModelRunner:
    return tiny_model(tmp_path_factory.mktemp("graphs"), request.param)


@pytest.fixture
def llama(tmp_path: Path) -> ModelRunner:
    return tiny_model(tmp_path, "llama")


def no_attention(size: int) -> GraphAttention:
    raise AssertionError(size)


def test_all_sizes_are_recorded_largest_first_and_what_they_take_is_told(
    llama: ModelRunner,
) -> None:
    setup = Setup(llama, 20)
    assert list(setup.recorder.graphs) == [16, 8, 4, 2, 1]
    assert setup.progress == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]
    assert setup.taken == 500


def test_a_replayed_step_yields_what_each_sequence_yields_alone(model_runner: ModelRunner) -> None:
    setup = Setup(model_runner, 8)
    lengths = [1, 40, 17, 2, 16, 33, 22, 5]
    for count in (1, 2, 3, 4, 5, 8):
        spans, expected = setup.decodes(lengths[-count:])
        assert_near(setup.runner.forward(spans), expected)
    assert setup.recorder.replays == {1: 1, 2: 1, 4: 2, 8: 2}


def test_every_replay_is_planned_anew_and_reads_what_was_written_since(
    llama: ModelRunner,
) -> None:
    setup = Setup(llama, 2)
    tokens = random_tokens(40)
    expected = all_logits(llama, tokens)
    (table,) = tables(3)
    setup.eager.forward([Span(tokens[:30], 0, table, 0)])
    plans = setup.plans
    for position in range(30, 40):
        logits = setup.runner.forward([Span(tokens[position : position + 1], position, table, 1)])
        assert_near(logits, expected[position : position + 1])
    assert setup.plans == plans + 10
    assert setup.recorder.replays == {1: 10}


def test_logits_stay_what_they_are_when_the_next_step_runs(llama: ModelRunner) -> None:
    setup = Setup(llama, 2)
    spans, expected = setup.decodes([20, 9])
    first = setup.runner.forward(spans[:1])
    second = setup.runner.forward(spans[1:])
    assert_near(torch.cat((first, second)), expected)


def test_padding_touches_no_block_but_its_own(llama: ModelRunner) -> None:
    setup = Setup(llama, 8)
    spans, _ = setup.decodes([20, 9, 31, 16, 3])
    before = [layer.clone() for layer in setup.memory.layers]
    setup.runner.forward(spans)
    written = {(s.block_table[s.start // 16], s.start % 16) for s in spans} | {(DUMMY, 0)}
    for layer, old in zip(setup.memory.layers, before, strict=True):
        rows = (layer != old).any(dim=4).any(dim=3).any(dim=1)
        assert {(int(b), int(o)) for b, o in rows.nonzero()} <= written
    assert setup.recorder.replays == {8: 1}


@pytest.mark.parametrize("spans", ["a prompt", "one token without logits", "more than recorded"])
def test_what_no_graph_was_recorded_for_runs_without(llama: ModelRunner, spans: str) -> None:
    setup = Setup(llama, 2)
    tokens = random_tokens(20)
    expected = all_logits(llama, tokens)
    if spans == "a prompt":
        assert_near(setup.runner.forward([Span(tokens, 0, [0, 1], 1)]), expected[-1:])
    elif spans == "one token without logits":
        assert setup.runner.forward([Span(tokens[:1], 0, [0], 0)]).shape == (0, 512)
    else:
        decodes, wanted = setup.decodes([4, 5, 6])
        assert_near(setup.runner.forward(decodes), wanted)
    assert setup.recorder.replays == {}


def test_a_runner_that_recorded_nothing_runs_without_graphs(llama: ModelRunner) -> None:
    eager = over_torch(llama.model)

    runner = GraphRunner(eager, no_attention, Recorder(), DUMMY)
    assert_near(runner.forward([Span([3], 0, [0], 1)]), all_logits(llama, [3]))
    assert runner.forward([]).shape == (0, 512)
    assert runner.memory is eager.memory


def test_the_dummy_block_is_nobodys(llama: ModelRunner) -> None:
    setup = Setup(llama, 1)
    assert setup.runner.memory.num_blocks == NUM_BLOCKS
    assert setup.runner.memory.bytes_per_block == setup.memory.bytes_per_block
    with pytest.raises(ValueError, match="outside 0 to 63"):
        setup.runner.forward([Span([1, 2], 0, [DUMMY], 1)])
    with pytest.raises(ValueError, match="must both lie below 64"):
        setup.runner.copy_rows([(3, DUMMY, 1)])


def test_a_plan_that_asks_for_other_launches_is_not_replayed(
    llama: ModelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = Setup(llama, 2)
    spans, _ = setup.decodes([20])
    monkeypatch.setattr(FlashInferGraphAttention, "plan_info", (1, 2))
    with pytest.raises(RuntimeError, match="the graph of 1 sequences was recorded with the plan"):
        setup.runner.forward(spans)
    assert setup.recorder.replays == {}


def test_a_step_that_does_not_fit_is_refused_before_anything_runs(llama: ModelRunner) -> None:
    setup = Setup(llama, 2)
    for span, message in [
        (Span([512], 0, [0], 1), "a token id"),
        (Span([1], 1024, list(range(65)), 1), "context of 1024"),
        (Span([1], 16, [0], 1), "needs 2 blocks"),
        (Span([1], 0, [NUM_BLOCKS + 1], 1), "outside 0 to 64"),
    ]:
        with pytest.raises(ValueError, match=message):
            setup.runner.forward([span])
    assert setup.recorder.replays == {}


def test_the_dummy_block_must_exist(llama: ModelRunner) -> None:
    eager = over_torch(llama.model)
    graphs = graphs_of(llama.model, memory_of(llama.model), bound_fake(), 1)
    for block in (-1, NUM_BLOCKS):
        runner = GraphRunner(eager, graphs.attention, Recorder(), block)
        with pytest.raises(ValueError, match="outside 0 to 63"):
            runner.capture(1)


@pytest.mark.parametrize("count", [1, 3])
def test_a_recorded_step_takes_tokens_from_another(model_runner: ModelRunner, count: int) -> None:
    setup = Setup(model_runner, 4)
    spans, expected = setup.decodes([20, 9, 31][:count])
    sampled = torch.tensor([7, *(span.tokens[0] for span in spans)], dtype=torch.int64)
    # whatever stands there is not looked at: 600 is no token
    hidden = [span._replace(tokens=[600]) for span in spans]
    # in another order, so that places and rows differ
    places = list(range(count))[::-1]
    follow = Follow(sampled, places, [place + 1 for place in places])
    assert_near(setup.runner.forward_following(hidden, follow), expected)
    assert_near(setup.runner.forward(spans), expected)
    assert setup.recorder.replays == {4 if count == 3 else 1: 2}


def test_some_tokens_of_a_recorded_step_may_be_known(llama: ModelRunner) -> None:
    setup = Setup(llama, 2)
    spans, expected = setup.decodes([20, 9])
    follow = Follow(torch.tensor([spans[1].tokens[0]]), [1], [0])
    logits = setup.runner.forward_following([spans[0], spans[1]._replace(tokens=[0])], follow)
    assert_near(logits, expected)


def test_rows_are_copied_as_without_graphs(llama: ModelRunner) -> None:
    setup = Setup(llama, 1)
    setup.eager.memory.layers[0][3] = 5.0
    setup.runner.copy_rows([(3, 4, 2)])
    copied = setup.eager.memory.layers[0][4]
    assert (copied[:, :2] == 5).all()
    assert (copied[:, 2:] == 0).all()
