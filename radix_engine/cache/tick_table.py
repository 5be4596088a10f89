"""A number for each of many ticks, which only come in ascending order."""

from __future__ import annotations

from bisect import bisect_left

_SHIFT = 8  # a piece has the ticks that are equal but for these bits


class TickTable:
    """A dictionary in pieces of 256 ticks.

    One dictionary would do, but that it copies all it holds from time to time as entries come and
    go: 10 milliseconds with 100,000 of them. Costs are constant, those of ``after`` amortised.
    """

    __slots__ = ("_names", "_pieces", "_size")

    def __init__(self) -> None:
        self._pieces: dict[int, dict[int, int]] = {}  # by name: the ticks' upper bits; ascending
        self._names: list[int] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def get(self, tick: int) -> int:
        """The tick's number, 0 where it has none."""
        piece = self._pieces.get(tick >> _SHIFT)
        return 0 if piece is None else piece.get(tick, 0)

    def append(self, tick: int, number: int) -> None:
        """Add a tick that is greater than all before it."""
        name = tick >> _SHIFT
        piece = self._pieces.get(name)
        if piece is None:
            piece = self._pieces[name] = {}
            self._names.append(name)
        piece[tick] = number
        self._size += 1

    def take(self, tick: int, count: int) -> int:
        """Take ``count`` off a tick's number, or all of it; returns what it was, 0 for none."""
        name = tick >> _SHIFT
        piece = self._pieces.get(name)
        if piece is None:
            return 0
        number = piece.get(tick, 0)
        if count < number:
            piece[tick] = number - count
        elif number:
            del piece[tick]
            self._size -= 1
            if not piece:
                del self._pieces[name]
                del self._names[bisect_left(self._names, name)]
        return number

    def after(self, tick: int) -> tuple[int, int]:
        """The next tick that has a number, and the number. Raises IndexError after the last."""
        tick += 1
        while True:
            name = tick >> _SHIFT
            piece = self._pieces.get(name)
            if piece is None:
                tick = self._names[bisect_left(self._names, name)] << _SHIFT
                continue
            for candidate in range(tick, (name + 1) << _SHIFT):
                number = piece.get(candidate)
                if number is not None:
                    return candidate, number
            tick = (name + 1) << _SHIFT

    def clear(self) -> None:
        """Forget all."""
        self._pieces.clear()
        self._names.clear()
        self._size = 0
