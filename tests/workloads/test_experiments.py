"""The experiments on small loads whose answers can be told by hand."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from radix_engine.cache import PrefixCache, pack
from radix_engine.cache.flat import FlatCache
from tests.workloads.trace_files import lines_file
from workloads.experiments import block_size, cache_size, clock, heads_first, recency, ttft
from workloads.experiments.catalogue import EXPERIMENTS
from workloads.experiments.experiment import Outcome, Settings
from workloads.experiments.heads_first import HeadsFirst
from workloads.experiments.made import BlockNumbers, requests_of
from workloads.experiments.panel import Line, Panel
from workloads.experiments.picture import draw
from workloads.experiments.probe import Asked, Probe
from workloads.experiments.recorded import recorded_calls
from workloads.experiments.serving import hit_rate, serve
from workloads.experiments.short_keys import ShortKeys, Truth, count_wrong
from workloads.generators.catalogue import planned
from workloads.generators.plan import Part, PlannedCall, PlannedSession
from workloads.simulation.load import LoadRequest

SMALL = Settings(seed=1)


def ids(*numbers: int) -> array[int]:
    return array("i", numbers)


def values(outcome: Outcome) -> dict[str, float]:
    return {key: figure.value for key, figure in outcome.figures.items()}


def test_a_request_is_served_what_is_stored_short_of_its_last_token() -> None:
    cache = PrefixCache(4, 2, partial_blocks=False)
    assert serve(cache, ids(1, 2, 3, 4, 5)) == 0
    assert serve(cache, ids(1, 2, 3, 4, 5)) == 4
    assert serve(cache, ids(1, 2, 3, 4)) == 2  # the last block would end with the last token
    assert serve(cache, ids(1, 2, 9, 9)) == 2
    assert cache.audit(()) == []


def test_a_request_that_is_longer_than_the_memory_keeps_its_first_blocks() -> None:
    cache = PrefixCache(2, 2, partial_blocks=False)
    assert serve(cache, ids(1, 2, 3, 4, 5, 6)) == 0
    assert serve(cache, ids(1, 2, 3, 4, 5, 6)) == 4
    assert hit_rate(cache, [LoadRequest(ids(1, 2, 3, 4, 5, 6), ids(), 0.0)] * 3) == 4 / 6


def test_the_wrong_order_loses_a_prompt_by_its_first_block() -> None:
    right, wrong = FlatCache(3, 2), HeadsFirst(3, 2)
    for cache in (right, wrong):
        serve(cache, ids(1, 1, 2, 2, 3, 3, 0))
        serve(cache, ids(9, 9, 0))  # one block has to go
    # The last block of three is gone, or the first, and then the other two cannot be found.
    assert serve(right, ids(1, 1, 2, 2, 3, 3, 0)) == 4
    assert serve(wrong, ids(1, 1, 2, 2, 3, 3, 0)) == 0


def test_heads_first_never_serves_more_and_tree_and_flat_agree() -> None:
    outcome = heads_first.run(SMALL, sizes=(140, 300, 1100), sessions=60)
    found = values(outcome)
    for workload in ("zipf", "round_robin"):
        for size in (140, 300, 1100):
            tree = found[f"hit_rate.{workload}.tree_leaves_first.{size}"]
            assert tree == found[f"hit_rate.{workload}.flat_tails_first.{size}"]
            assert tree >= found[f"hit_rate.{workload}.flat_heads_first.{size}"]
    assert (
        found["hit_rate.zipf.tree_leaves_first.300"] > found["hit_rate.zipf.flat_heads_first.300"]
    )


def test_round_robin_hits_nothing_until_all_heads_fit() -> None:
    found = values(cache_size.run(SMALL, sizes=(500, 2000), sessions=40))
    assert found["hit_rate.round_robin.500"] == 0.0
    # 32 of 40 requests find 2,048 of their 2,098 tokens.
    assert found["hit_rate.round_robin.2000"] == pytest.approx(32 * 2048 / (40 * 2098))
    assert 0.0 < found["hit_rate.zipf.500"] < found["hit_rate.zipf.2000"]


def test_a_clock_costs_all_that_stands_behind_it() -> None:
    found = values(clock.run(SMALL, places=(1.0, 0.5, 0.0), sessions=10))
    # A prompt has 2,048 + 12 + 50 tokens; nine of ten requests find what stands before the clock.
    for place, before in (("1", 2048), ("0.5", 1024), ("0", 0)):
        assert found[f"hit_rate.{place}"] == pytest.approx(9 * before / (10 * 2110))
        assert found[f"computed_tokens.{place}"] == pytest.approx(2110 - 0.9 * before)


def test_whole_blocks_lose_what_does_not_fill_one() -> None:
    found = values(block_size.run(SMALL, sizes=(1, 16, 512), sessions=50))
    assert found["hit_rate.short_heads.whole.1"] == found["hit_rate.short_heads.partial.1"]
    for heads in ("short_heads", "long_heads"):
        assert found[f"hit_rate.{heads}.whole.16"] <= found[f"hit_rate.{heads}.partial.16"]
    # Of a head of 2,000 tokens blocks of 512 hold 1,536.
    whole, part = (found[f"hit_rate.long_heads.{way}.512"] for way in ("whole", "partial"))
    assert whole / part == pytest.approx(1536 / 2000)


def test_a_short_key_serves_blocks_of_other_tokens_and_the_tree_never_does() -> None:
    # With keys of no bits at all every block is taken for every other.
    requests = [LoadRequest(ids(n, n, n, n, 0), ids(), 0.0) for n in range(1, 4)]
    truth, sums = count_wrong(ShortKeys(8, 2, 0), requests)
    # The first reads its own first block twice; each other one the first's, twice.
    assert (truth.wrong_blocks, truth.wrong_requests) == (5, 3)
    assert sums == [1, 2, 3]
    for cache in (FlatCache(8, 2), PrefixCache(8, 2, partial_blocks=False)):
        truth, _ = count_wrong(cache, requests * 2)
        assert (truth.wrong_blocks, truth.wrong_requests) == (0, 0)


def test_what_was_computed_into_a_block_is_what_its_latest_owner_computed() -> None:
    truth = Truth(block_size=1)
    one, other = pack([5, 6]), pack([7, 6])
    truth.seen(one, ids(0, 1), ids(0, 1))
    truth.seen(other, ids(0, 1), ids(0))  # block 1 still holds 6 behind 5, not behind 7
    assert (truth.wrong_blocks, truth.wrong_requests) == (1, 1)


def test_no_rule_beats_the_optimum_and_with_all_in_memory_they_are_equal() -> None:
    outcome = recency.run(SMALL, names=("loop", "agents"), num_sizes=3, scale=0.05)
    rates = outcome.data["hit_rates"]
    assert isinstance(rates, dict)
    for by_rule in rates.values():
        for lru, agent, best in zip(*(by_rule[rule] for rule in recency.RULES), strict=True):
            assert lru <= best + 1e-9
            assert agent <= best + 1e-9
        assert by_rule["lru"][-1] == by_rule["optimum"][-1]
    assert rates["loop"]["lru"][1] == 0.0 < rates["loop"]["optimum"][1]


def test_a_recorded_trace_is_looked_at_besides(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 1000 * at, "input_length": 1024, "hash_ids": path}
        for at, path in enumerate([[1, 2], [3, 4], [1, 2]])
    ]
    trace = lines_file(tmp_path, *rows)
    outcome = recency.run(Settings(trace=trace), names=(), num_sizes=2)
    name = f"{tmp_path.name}/t"
    assert values(outcome)[f"hit_rate.{name}.lru.2"] == 0.0
    assert values(outcome)[f"hit_rate.{name}.optimum.4"] == pytest.approx(1023 / 3072)


def test_a_trace_of_text_is_cut_into_tokens_of_four_bytes(tmp_path: Path) -> None:
    rows = [
        {
            "session_id": "a",
            "turn": turn,
            "messages": [{"role": "user", "content": "x" * 8}],
            "output": "y" * 4,
        }
        for turn in range(2)
    ]
    calls, distinct, size = recorded_calls(lines_file(tmp_path, *rows), 1, seed=0)
    # A role and two tokens; a role and one; then a role and two again, and the reply.
    assert [call.prompt_tokens for call in calls] == [3, 8]
    assert [len(call.path) for call in calls] == [5, 10]
    assert (distinct, size) == (10, 1)


def test_requests_come_in_the_order_of_their_times() -> None:
    def call(name: str, think_s: float = 0.0) -> PlannedCall:
        return PlannedCall(
            (Part("user", name, 1),), Part("assistant", name + "!", 10), True, think_s
        )

    sessions = [
        PlannedSession("a", (call("a0"), call("a1", 5.0))),
        PlannedSession("b", (call("b0"),), 2.0),
        PlannedSession("c", (call("c0"),), 5.5),
    ]
    times = [request.delay_s for request in requests_of(sessions, 0)]
    assert times == [0.0, 2.0, 5.0, 5.5]
    assert [request.delay_s for request in requests_of(sessions, 0, token_s=0.1)] == [0, 2, 5.5, 6]


def test_equal_prefixes_have_equal_numbers() -> None:
    numbers = BlockNumbers(2)
    first = numbers.path(pack([1, 2, 3, 4, 5]))
    assert first == [0, 1]
    assert numbers.path(pack([1, 2, 3, 9])) == [0, 2]
    assert numbers.path(pack([3, 4])) == [3]
    assert len(numbers) == 4


class StraightProbe:
    """Takes 10 ms and 1 ms for each token that no earlier prompt began with."""

    model = "straight"

    def __init__(self) -> None:
        self._asked: list[list[int]] = []

    def encode(self, text: str) -> Sequence[int]:
        return [sum(map(ord, word)) for word in text.split()]

    def ask(self, prompt: Sequence[int]) -> Asked:
        cached = max((self._common(prompt, other) for other in self._asked), default=0)
        self._asked.append(list(prompt))
        return Asked(0.010 + 0.001 * (len(prompt) - cached), cached)

    def flush(self) -> None:
        self._asked.clear()

    @staticmethod
    def _common(prompt: Sequence[int], other: Sequence[int]) -> int:
        count = 0
        while count < len(prompt) - 1 and prompt[count] == other[count]:
            count += 1
        return count


def test_the_time_to_the_first_token_is_fitted_by_a_line() -> None:
    @contextmanager
    def probe(model: str | None) -> Iterator[Probe]:
        assert model == "m"
        yield StraightProbe()

    found = values(ttft.run(Settings(model="m"), probe, length=200, rounds=3))
    assert found["cold_ttft_ms"] == pytest.approx(210)
    assert found["fixed_ttft_ms"] == pytest.approx(10)
    assert found["ms_per_computed_token"] == pytest.approx(1)
    assert found["fit_r2"] == pytest.approx(1)
    assert found["ttft_ms.0.5"] == pytest.approx(110, abs=2)


def test_every_panel_is_drawn(tmp_path: Path) -> None:
    line = Line("a", [1, 2, 4_000_000], [0.0, 0.5, 1.0])
    panels = [
        Panel("log", "x", "y", [line], log_x=True, percent_y=True),
        Panel("points", "x", "y", [Line("p", [0.0, 1.0], [1, 2], "points")], percent_x=True),
        Panel("one size", "x", "y", [Line("c", [5], [0], "ceiling")]),
        Panel("next row", "x", "y", [line]),
    ]
    draw("all", panels, tmp_path / "new" / "p.png")
    assert (tmp_path / "new" / "p.png").read_bytes().startswith(b"\x89PNG")


def test_an_experiment_is_printed_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from workloads.__main__ import main
    from workloads.experiments.experiment import Experiment

    def small(settings: Settings) -> Outcome:
        return clock.run(settings, places=(1.0, 0.0), sessions=3)

    monkeypatch.setitem(EXPERIMENTS, "clock-at-head", Experiment("what of a clock?", small))
    arguments = ["experiment", "clock-at-head", "--seed", "4", "--output", str(tmp_path)]
    assert main(arguments) == 0
    written = json.loads((tmp_path / "experiment-clock-at-head.json").read_text())
    assert written["name"] == "experiment-clock-at-head"
    assert written["figures"]["hit_rate.0"]["value"] == 0.0
    assert (tmp_path / "experiment-clock-at-head.png").is_file()
    assert "what of a clock?" in capsys.readouterr().out
    for option in ("--trace", "--model"):
        with pytest.raises(SystemExit):
            main([*arguments, option, "x"])
        assert f"{option} does not apply to clock-at-head" in capsys.readouterr().err


def test_planned_sessions_are_the_same_whoever_asks() -> None:
    once, again = (requests_of(planned("agents", 3, 4), 3) for _ in range(2))
    assert once == again
