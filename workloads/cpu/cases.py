"""What bench-cpu measures: its cases, the loads that each is made of, and who takes part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from workloads.cpu.load import Load, Outcome
from workloads.cpu.prompts import Prompts
from workloads.results import Better

Door = Literal["process", "http"]
Kind = Literal["cold", "warm", "decode", "agents", "unshared"]

SHORT, LONG, LONGEST = 32, 2048, 7000
STREAMS = (1, 4, 8, 32)
AGENTS, TURNS, AGENT_TOKENS = 4, 3, 24
UNSHARED_STREAMS = 8  # of the load in which nothing is shared


@dataclass(frozen=True, slots=True)
class Contender:
    """An engine as it is started for the benchmark; ``name`` is what messages and logs call it.

    ``bits``: 16 stands for the precision of the model (fp32 on a processor without bf16), 4 for the
    bits of a 4-bit file. ``cache``: whether its prefix cache is on.
    """

    name: str
    engine: str
    door: Door = "process"
    bits: Literal[4, 16] = 16
    cache: bool = True

    @property
    def suffix(self) -> str:
        """What the names of its figures end with."""
        peer = "" if self.engine == "ours" else "_" + self.engine.replace(".", "_")
        return ("_http" if self.door == "http" else "") + peer


OURS = (
    Contender("ours", "ours"),
    Contender("ours-cache-off", "ours", cache=False),
    Contender("ours-q4", "ours", bits=4),
    Contender("ours-http", "ours", door="http"),
)
PEER_CONTENDERS = {
    "openvino": (
        Contender("openvino", "openvino"),
        Contender("openvino-cache-off", "openvino", cache=False),
    ),
    "vllm": (Contender("vllm", "vllm", door="http"),),
    "llama.cpp": (Contender("llama.cpp", "llama.cpp", bits=4),),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement. ``stem`` and ``unit`` make its figures' names, ``make`` its loads.

    ``make`` gives the load that is measured and one that is done before, unmeasured (None: none).
    ``seconds``: about what one takes with a small model on two cores; ``prepare_s``: once per
    engine, to fill its cache.
    """

    stem: str
    kind: Kind
    unit: Literal["ms", "tps"]
    make: Callable[[Prompts], tuple[Load | None, Load]]
    kv_tokens: int
    seconds: float
    prepare_s: float = 0.0
    streams: int = 1
    busy: bool = False

    @property
    def better(self) -> Better:
        """Which way is better."""
        return "lower" if self.unit == "ms" else "higher"

    def read(self, outcome: Outcome) -> float:
        """The measured value, in the unit: milliseconds or tokens a second."""
        if self.kind in ("cold", "warm"):
            return outcome.ttft_ms()
        return outcome.decode_tps() if self.kind == "decode" else outcome.load_tps()

    def has(self, contender: Contender) -> bool:
        """Whether a contender takes part."""
        if self.kind == "unshared":
            return (
                contender.engine == "ours"
                and contender.door == "process"
                and self._bits16(contender)
            )
        if self.kind == "cold" and contender.engine == "openvino":
            return not contender.cache
        if not contender.cache:
            return False
        # In 4 bits there is one stream only, and prompts that llama.cpp reads within seconds.
        return self._bits16(contender) or (
            self.streams == 1 and self.kind != "agents" and self.kv_tokens < 4096
        )

    def key(self, contender: Contender) -> str:
        """The name of a contender's figure."""
        bits = "" if self._bits16(contender) else "_q4"
        return f"{self.stem}{bits}_{self.unit}{contender.suffix}"

    @staticmethod
    def _bits16(contender: Contender) -> bool:
        return contender.bits == 16


def all_cases() -> list[Case]:
    """Every case, in the order in which they are measured."""
    cases = [
        Case(f"cold_ttft_{length}", "cold", "ms", partial(_cold, length), length + 1, seconds)
        for length, seconds in ((512, 0.4), (2050, 1.5), (7500, 6.0))
    ]
    cases += [
        _warm_case(cached, cached + 50, prepare_s)
        for cached, prepare_s in ((2000, 1.5), (7000, 5.5))
    ]
    for context, name in ((SHORT, "short"), (LONG, "2k"), (LONGEST, "7k")):
        cases += [_decode_case(streams, context, name) for streams in STREAMS]
    cases.append(_decode_case(1, SHORT, "short", busy=True))
    agents_kv = AGENTS * 2600
    cases.append(Case("agents", "agents", "tps", _agents, agents_kv, seconds=8.0, streams=AGENTS))
    cases.append(
        Case(
            "nothing_shared",
            "unshared",
            "tps",
            _unshared,
            UNSHARED_STREAMS * 544,
            4.0,
            streams=UNSHARED_STREAMS,
        )
    )
    return cases


def chosen_cases(only: Sequence[str]) -> list[Case]:
    """The cases whose stem contains one of ``only``; all where it is empty.

    Raises ValueError for a word that is in none.
    """
    cases = all_cases()
    for word in only:
        if not any(word in case.stem for case in cases):
            stems = ", ".join(case.stem for case in cases)
            raise ValueError(f"{word!r} is in no case's name; the cases are {stems}")
    return [case for case in cases if not only or any(word in case.stem for word in only)]


def _warm_case(cached: int, length: int, prepare_s: float) -> Case:
    stem = f"warm_ttft_{cached}_of_{length}"
    make = _Warm(cached, length)
    return Case(stem, "warm", "ms", make, length + 1, 0.2, prepare_s=prepare_s)


def _decode_case(streams: int, context: int, name: str, busy: bool = False) -> Case:
    tokens = 32 if busy else 128 if streams == 1 else 64  # busy: llama.cpp takes seconds a token
    return Case(
        f"decode_{streams}_{name}" + ("_busy_core" if busy else ""),
        "decode",
        "tps",
        _Decode(streams, context, tokens),
        streams * (context + tokens),
        seconds=(3.0 if busy else 1.5) + streams * context / 20_000,
        prepare_s=streams * context / 1200,
        streams=streams,
        busy=busy,
    )


def _cold(length: int, prompts: Prompts) -> tuple[Load | None, Load]:
    return None, Load([[prompts.fresh(length)]], 1)


def _agents(prompts: Prompts) -> tuple[Load | None, Load]:
    return None, prompts.agents(AGENTS, TURNS, AGENT_TOKENS)


def _unshared(prompts: Prompts) -> tuple[Load | None, Load]:
    measured = Load([[prompts.fresh(512)] for _ in range(UNSHARED_STREAMS)], 32)
    return Load([[prompts.fresh(64)]], 4), measured  # the one without a cache did nothing so far


class _Warm:
    """Prompts that go on from one prefix, which the load before has put into the cache."""

    def __init__(self, cached: int, length: int) -> None:
        self._cached, self._length = cached, length
        self._prefix: list[int] = []

    def __call__(self, prompts: Prompts) -> tuple[Load | None, Load]:
        self._prefix = self._prefix or prompts.fresh(self._cached)
        first, second = (prompts.going_on(self._prefix, self._length) for _ in range(2))
        return Load([[first]], 1), Load([[second]], 1)


class _Decode:
    """The same prompts in every round, so that caches spare reading them again."""

    def __init__(self, streams: int, context: int, tokens: int) -> None:
        self._streams, self._context, self._tokens = streams, context, tokens
        self._prompts: list[list[int]] = []

    def __call__(self, prompts: Prompts) -> tuple[Load | None, Load]:
        self._prompts = self._prompts or [
            prompts.fresh(self._context) for _ in range(self._streams)
        ]
        sessions = [[prompt] for prompt in self._prompts]
        return Load(sessions, 1), Load(sessions, self._tokens)
