"""A step's integers on their way from the host to the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

_SMALLEST_BUFFER = 1024


class Event(Protocol):
    """A point in the device's work that the host can wait for."""

    def record(self) -> None:
        """Set the point: after all that is queued."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has passed it; at once where it was never set."""
        ...


class HostStaging:
    """Two host buffers in turn, out of which a step's integers go to the device in one copy.

    On CUDA the buffers are pinned and the copies run by themselves. A buffer is written again only
    when the device has copied what it held: that is the copy of two sends before, so the host waits
    only where it is two steps ahead. ``make_event`` is for tests.
    """

    def __init__(self, device: torch.device, make_event: Callable[[], Event] | None = None) -> None:
        self._device = device
        if make_event is None:
            make_event = (lambda: _CudaEvent(device)) if device.type == "cuda" else _NoEvent
        self._slots = [_Slot(device.type == "cuda", make_event()) for _ in range(2)]
        self._sends = 0

    def send(
        self, parts: Sequence[npt.NDArray[np.int64]], target: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, ...]:
        """The parts on the device, as int32 views into one tensor.

        ``target``: that tensor, int32 [all parts' numbers]; None: a new one.
        """
        lengths = [len(part) for part in parts]
        slot = self._slots[self._sends % 2]
        self._sends += 1
        slot.sent.synchronize()
        host = slot.filled(parts, sum(lengths))
        if target is None:
            target = torch.empty(len(host), dtype=torch.int32, device=self._device)
        target.copy_(host, non_blocking=True)
        slot.sent.record()
        return torch.split(target, lengths)


class _Slot:
    """One host buffer, which grows as needed, and when it was last sent."""

    def __init__(self, pinned: bool, sent: Event) -> None:
        self.sent = sent
        self._pinned = pinned
        self._buffer = torch.empty(0, dtype=torch.int32)
        self._view: npt.NDArray[np.int32] = self._buffer.numpy()

    def filled(self, parts: Sequence[npt.NDArray[np.int64]], total: int) -> torch.Tensor:
        if total > len(self._view):
            size = max(_SMALLEST_BUFFER, 1 << (total - 1).bit_length())
            self._buffer = torch.empty(size, dtype=torch.int32, pin_memory=self._pinned)
            self._view = self._buffer.numpy()
        np.concatenate(parts, out=self._view[:total], casting="same_kind")
        return self._buffer[:total]


class _CudaEvent:
    """An event of the stream that is current when it is recorded."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def record(self) -> None:
        self._event.record(torch.cuda.current_stream(self._device))

    def synchronize(self) -> None:
        self._event.synchronize()


class _NoEvent:
    """Where copies are done when they return."""

    def record(self) -> None:
        """Nothing is under way."""

    def synchronize(self) -> None:
        """Nothing to wait for."""
