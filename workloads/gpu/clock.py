"""Times of a CUDA device: with events for its own work, with the host's clock for what waits.

Runs on a GPU only, and has not yet.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from workloads.gpu.arithmetic import copy_rate

Work = Callable[[], object]

_FILLER_BYTES = 2**30
_FILLER_COPIES = 40
_REPEATS = 7
_AHEAD = 30
_MATRIX = 8192


class GpuClock:
    """Measures work that is queued on a device's current stream. Takes 2 GiB of its memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._source, self._target = (
            torch.zeros(_FILLER_BYTES, dtype=torch.uint8, device=device) for _ in range(2)
        )

    def device_ms(self, work: Work, repeats: int = _REPEATS) -> float:
        """The median time that the device takes, the host's work hidden.

        The device is kept busy while the host queues the work. Where the work itself waits for the
        device, the host's part shows. Run once untimed before.
        """
        work()
        times = []
        for _ in range(repeats):
            torch.cuda.synchronize(self._device)
            self._keep_busy()
            times.append(self._between_events(work))
        return statistics.median(times)

    def ahead_ms(self, work: Work, count: int = _AHEAD) -> float:
        """From one work to the next where the host never waits, averaged over ``count``."""
        work()
        torch.cuda.synchronize(self._device)

        def all_of_them() -> None:
            for _ in range(count):
                work()

        return self._between_events(all_of_them) / count

    def alone_ms(self, work: Work, repeats: int = _REPEATS) -> float:
        """The median from queueing the work to its end, on the host's clock."""
        work()
        torch.cuda.synchronize(self._device)
        times = []
        for _ in range(repeats):
            began = time.perf_counter()
            work()
            torch.cuda.synchronize(self._device)
            times.append((time.perf_counter() - began) * 1000)
        return statistics.median(times)

    def copied_bytes_per_second(self) -> float:
        """What memory moves in a device copy of 1 GiB, reading and writing."""
        milliseconds = self.device_ms(lambda: self._target.copy_(self._source))
        return copy_rate(_FILLER_BYTES, milliseconds)

    def matrix_operations_per_second(self) -> float:
        """Of a product of two bf16 matrices of 8,192 x 8,192."""
        left, right = (
            torch.randn(_MATRIX, _MATRIX, dtype=torch.bfloat16, device=self._device)
            for _ in range(2)
        )
        return 2 * _MATRIX**3 / (self.device_ms(lambda: left @ right) / 1000)

    def _keep_busy(self) -> None:
        """Some tens of milliseconds of work: longer than the host takes to queue a step."""
        for _ in range(_FILLER_COPIES):
            self._target.copy_(self._source)

    def _between_events(self, work: Work) -> float:
        begin, end = (
            torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            for _ in range(2)
        )
        stream = torch.cuda.current_stream(self._device)
        begin.record(stream)
        work()
        end.record(stream)
        end.synchronize()
        elapsed: float = begin.elapsed_time(end)
        return elapsed
