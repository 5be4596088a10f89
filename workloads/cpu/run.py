"""The rounds of bench-cpu: engines that stay loaded take turns, case by case."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Never

from tqdm import tqdm

from workloads.cpu.cases import Case, Contender
from workloads.cpu.load import EngineFailed, LoadFailed, Outcome
from workloads.cpu.processes import busy_core, tree_cpu_s, tree_peak_memory_bytes
from workloads.cpu.prompts import Prompts
from workloads.cpu.report import Measured
from workloads.cpu.worker import RunningEngine

LOAD_LIMIT_S = 900.0
# A case that comes down to one per cent needs more rounds than the others.
UNSHARED_ROUNDS = 4
# Threads that spin for a while after their work have stopped by then.
SETTLE_S = 0.3

Start = Callable[[Contender], RunningEngine]


@dataclass(slots=True)
class Race:
    """Engines that run, and what they have measured so far.

    Whatever fails is left out with its reason, and the others go on.
    """

    rounds: int
    prompts: Prompts
    kv_tokens: int
    settle_s: float = SETTLE_S
    measured: Measured = field(default_factory=Measured)
    engines: dict[Contender, RunningEngine] = field(default_factory=dict)
    given_up: set[tuple[str, Contender]] = field(default_factory=set)
    idle_cpu_s: float = 0.0
    idle_wall_s: float = 0.0

    def add(self, contender: Contender, start: Start) -> bool:
        """Start an engine. Whether it runs."""
        try:
            engine = start(contender)
        except EngineFailed as error:
            self.leave_out(contender, str(error))
            return False
        self.engines[contender] = engine
        self.measured.start_up_s[contender] = engine.ready_s
        return True

    def leave_out(self, contender: Contender, reason: str) -> None:
        """Go on without an engine, saying why."""
        self.measured.left_out[contender.name] = reason
        tqdm.write(f"left out: {contender.name}: {reason}", file=sys.stderr)
        engine = self.engines.pop(contender, None)
        if engine is not None:
            engine.stop()

    def stop(self) -> None:
        """End all engines, whatever one of them does."""
        engines, self.engines = list(self.engines.values()), {}
        _stop_all(engines)

    def run(self, cases: Sequence[Case]) -> None:
        """Measure all cases: in each round every engine has its turn, each time in another order.

        Peak memories are read at the end.
        """
        fitting = [case for case in cases if self._fits(case)]
        with _Bar(self._turns(fitting)) as bar:
            for case in fitting:
                values = self.measured.values.setdefault(case.stem, {})
                for number in range(case_rounds(case, self.rounds)):
                    taking_part = [each for each in self.engines if case.has(each)]
                    for contender in turn_order(taking_part, number):
                        bar.at(case, contender)
                        outcome = self._turn(case, contender)
                        if outcome is not None:
                            values.setdefault(contender, []).append(case.read(outcome))
                            if case.kind == "unshared":
                                walls = self.measured.walls.setdefault(case.stem, {})
                                walls.setdefault(contender, []).append(outcome.wall_s)
                        bar.done()
        for contender, engine in self.engines.items():
            self.measured.memory_mib[contender] = tree_peak_memory_bytes(engine.pid) / 2**20

    def _turn(self, case: Case, contender: Contender) -> Outcome | None:
        """One engine's turn; None where it failed, which is noted."""
        engine = self.engines.get(contender)
        if engine is None or (case.stem, contender) in self.given_up:
            return None
        before, load = case.make(self.prompts)
        started, idle = time.perf_counter(), self._idle_cpu_s(contender)
        try:
            if before is not None:
                engine.run(before, LOAD_LIMIT_S)
            with busy_core(case.busy):
                outcome = engine.run(load, LOAD_LIMIT_S)
            case.read(outcome)
        except LoadFailed as error:
            self.given_up.add((case.stem, contender))
            self.measured.left_out[f"{contender.name}, {case.stem}"] = str(error)
            tqdm.write(f"left out: {contender.name} in {case.stem}: {error}", file=sys.stderr)
            return None
        except EngineFailed as error:
            self.leave_out(contender, str(error))
            return None
        finally:
            time.sleep(self.settle_s)
        self.idle_cpu_s += self._idle_cpu_s(contender) - idle
        self.idle_wall_s += time.perf_counter() - started
        return outcome

    def _idle_cpu_s(self, busy: Contender) -> float:
        """Processor seconds that the engines whose turn it is not have used so far."""
        others = [engine for each, engine in self.engines.items() if each is not busy]
        return sum(tree_cpu_s(engine.pid) for engine in others)

    def _fits(self, case: Case) -> bool:
        if case.kv_tokens <= self.kv_tokens:
            return True
        reason = (
            f"it needs K and V of {case.kv_tokens:,} tokens, and each engine has memory for "
            f"{self.kv_tokens:,} (--kv-memory)"
        )
        self.measured.skipped[case.stem] = reason
        print(f"skipped: {case.stem}: {reason}", file=sys.stderr)
        return False

    def _turns(self, cases: Sequence[Case]) -> int:
        return sum(
            case_rounds(case, self.rounds) * sum(map(case.has, self.engines)) for case in cases
        )


def case_rounds(case: Case, rounds: int) -> int:
    """How often each engine does a case."""
    return rounds * UNSHARED_ROUNDS if case.kind == "unshared" else rounds


def turn_order(contenders: Sequence[Contender], number: int) -> Iterator[Contender]:
    """Who comes when in a round: everybody once, each time another first."""
    for index in range(len(contenders)):
        yield contenders[(index + number) % len(contenders)]


def estimated_s(cases: Sequence[Case], contenders: Sequence[Contender], rounds: int) -> float:
    """About how long measuring takes, with a small model on two cores."""
    total = 0.0
    for case in cases:
        taking_part = sum(map(case.has, contenders))
        each = case_rounds(case, rounds) * (case.seconds + SETTLE_S) + case.prepare_s
        total += taking_part * each
    return total


def _stop_all(engines: list[RunningEngine]) -> None:
    if engines:
        try:
            engines[0].stop()
        finally:  # a second Ctrl-C must not leave the others behind
            _stop_all(engines[1:])


class _Bar:
    """A progress bar over turns, on standard error."""

    def __init__(self, turns: int) -> None:
        self._bar: tqdm[Never] = tqdm(
            total=turns,
            desc="measuring",
            unit="turn",
            mininterval=0.2 if sys.stderr.isatty() else 15.0,
        )

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def at(self, case: Case, contender: Contender) -> None:
        self._bar.set_postfix_str(f"{case.stem}, {contender.name}", refresh=False)

    def done(self) -> None:
        self._bar.update()
