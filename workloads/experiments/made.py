"""Made-up workloads as the experiments take them: requests, in the order of their times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from radix_engine.cache import TOKEN_BYTES
from workloads.generators.plan import PlannedSession
from workloads.generators.token_ids import token_sessions
from workloads.simulation.load import LoadRequest
from workloads.simulation.serial_calls import SerialCall


def requests_of(
    sessions: Iterable[PlannedSession], seed: int, *, token_s: float = 0.0
) -> list[LoadRequest]:
    """All requests, each at its time: of sessions side by side, where they overlap. A token of a
    reply takes ``token_s`` seconds. A request's ``delay_s`` is its time then."""
    timed: list[tuple[float, int, LoadRequest]] = []
    for session in token_sessions(sessions, seed):
        moment = 0.0
        for request in session:
            moment += request.delay_s
            timed.append((moment, len(timed), LoadRequest(request.prompt, request.reply, moment)))
            moment += token_s * len(request.reply)
    timed.sort(key=lambda entry: entry[:2])
    return [request for _, _, request in timed]


class BlockNumbers:
    """Numbers for blocks of tokens, equal ones for equal prefixes."""

    def __init__(self, block_size: int) -> None:
        self._step = block_size * TOKEN_BYTES
        self._numbers: dict[tuple[int, bytes], int] = {}

    def path(self, run: bytes) -> list[int]:
        """The numbers of a run's full blocks. Cost: one look-up a block."""
        parent, path = -1, []
        for at in range(0, len(run) - self._step + 1, self._step):
            key = parent, run[at : at + self._step]
            parent = self._numbers.setdefault(key, len(self._numbers))
            path.append(parent)
        return path

    def __len__(self) -> int:
        return len(self._numbers)


def serial_calls(requests: Sequence[LoadRequest], block_size: int) -> tuple[list[SerialCall], int]:
    """The requests as calls of the cache alone that take no time, and how many different blocks
    they have, replies included."""
    numbers = BlockNumbers(block_size)
    calls = list(_calls(requests, numbers, block_size))
    return calls, len(numbers)


def _calls(
    requests: Sequence[LoadRequest], numbers: BlockNumbers, block_size: int
) -> Iterator[SerialCall]:
    for request in requests:
        path = numbers.path((request.prompt + request.reply).tobytes())
        length, moment = len(request.prompt), request.delay_s
        yield SerialCall(np.array(path, np.int64), length // block_size, length, moment, moment)
