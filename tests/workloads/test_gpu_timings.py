"""Timed steps on a CPU, with a clock that tells fixed times: that they run, and what comes out."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
import torch

from radix_engine.gpu.graphs import GraphRunner
from tests.gpu.binding import bound_fake
from workloads.gpu.arithmetic import DecodeCase, decode_bytes, prompt_operations
from workloads.gpu.checks_graphs import Repeats, Runners, make_runners
from workloads.gpu.clock import Work
from workloads.gpu.shapes import llama_shape, random_model
from workloads.gpu.timings import StepTimer, decode_figures

CPU = torch.device("cpu")
BLOCKS = 132
CONFIG = llama_shape(
    num_layers=2,
    hidden_size=64,
    num_heads=4,
    num_kv_heads=2,
    head_dim=64,
    intermediate_size=96,
    vocab_size=128,
    context_length=2112,
)


class FixedClock:
    """Runs the work twice and tells 3 ms of the device, 4 ms ahead and 6 ms alone."""

    def device_ms(self, work: Work) -> float:
        return self._run(work, 3.0)

    def ahead_ms(self, work: Work) -> float:
        return self._run(work, 4.0)

    def alone_ms(self, work: Work) -> float:
        return self._run(work, 6.0)

    def _run(self, work: Work, told: float) -> float:
        work()
        work()
        return told


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tiny matrices gain nothing from more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def runners() -> Runners:
    model = random_model(CONFIG, torch.bfloat16, CPU, 0)
    return make_runners(bound_fake(), model, BLOCKS)


@pytest.fixture(scope="module")
def graphs(runners: Runners) -> GraphRunner:
    return runners.with_graphs(Repeats(), 8)


def timer(runners: Runners, layers: int = 32) -> StepTimer:
    return StepTimer(FixedClock(), runners.plain, Random(0), BLOCKS, layers)


def test_a_decode_step_is_told_over_the_time_of_reading_all(
    runners: Runners, graphs: GraphRunner
) -> None:
    case = DecodeCase(3, 100)
    # With this rate of memory reading all takes 2 ms, and the device takes 3.
    rate = decode_bytes(CONFIG, torch.bfloat16, case) / 2e-3
    told = timer(runners).decode(graphs, case, rate)
    assert told.ratio == pytest.approx(1.5)
    assert told.scaled_ms == 3.0
    assert (told.host.visible_ahead_ms, told.host.visible_alone_ms) == (1.0, 3.0)
    figures = decode_figures([told])
    assert {name: figure.value for name, figure in figures.items()} == {
        "decode_3x100_over_memory_time": pytest.approx(1.5),
        "decode_3x100_ms": 3.0,
        "decode_3x100_host_ahead_ms": 1.0,
        "decode_3x100_host_alone_ms": 3.0,
    }
    assert figures["decode_3x100_over_memory_time"].goal == 1.15


def test_a_prompt_is_told_as_a_share_of_the_rate_of_products(runners: Runners) -> None:
    rate = prompt_operations(CONFIG, 2048) / 3e-3 * 4
    milliseconds, share = timer(runners).prompt(rate)
    assert milliseconds == 3.0
    assert share == pytest.approx(0.25)


def test_the_first_token_is_told_by_the_hosts_clock(runners: Runners) -> None:
    assert timer(runners).first_token(cold=True) == 6.0
    assert timer(runners).first_token(cold=False) == 6.0


def test_with_fewer_layers_times_are_scaled_but_for_the_head(runners: Runners) -> None:
    # The head takes the clock's 3 ms of 6; the other 3 are of 8 layers.
    assert timer(runners, layers=8).first_token(cold=False) == 3.0 + 3.0 * 4
