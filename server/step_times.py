"""Where a step's time goes, part by part, and when the engine last got on."""

from __future__ import annotations

from time import perf_counter

# In their order. ``commands``: what was asked of the engine since the step before, such as new
# requests and looks at the tree. ``compute`` is the model's forward pass; where a device computes,
# launching it and waiting for it. ``garbage``: Python's collector, every few steps.
PARTS = ("commands", "plan", "copy", "compute", "sample", "commit", "hand_out", "garbage")
COMMANDS, PLAN, COPY, COMPUTE, SAMPLE, COMMIT, HAND_OUT, GARBAGE = range(len(PARTS))


class StepTimes:
    """Seconds by part, in the order of `PARTS`, summed over all steps since the start.

    The engine's thread alone writes, any thread may read. Cost: a quarter of a microsecond a part.
    ``longest_s``: of the longest step. ``turn_began``: when the step before ended, or work came
    after a time without, on the clock of ``perf_counter``; None while there is nothing to do.
    """

    __slots__ = ("_at", "longest_s", "seconds", "steps", "turn_began")

    def __init__(self) -> None:
        self.seconds = [0.0] * len(PARTS)
        self.steps = 0
        self.longest_s = 0.0
        self.turn_began: float | None = None
        self._at = 0.0

    def begin(self) -> None:
        """There is something to do: a turn of the engine's loop begins."""
        self._at = self.turn_began = perf_counter()

    def lap(self, part: int) -> None:
        """What was done since the last call was this part."""
        now = perf_counter()
        self.seconds[part] += now - self._at
        self._at = now

    def end_step(self) -> None:
        """The turn had a step, and it is over. To be called right after a `lap`."""
        self.steps += 1
        if self.turn_began is not None and self._at - self.turn_began > self.longest_s:
            self.longest_s = self._at - self.turn_began

    def rest(self) -> None:
        """There is nothing to do."""
        self.turn_began = None

    def stalled_s(self) -> float:
        """Seconds since the engine last ended a step, or found work; 0.0 while it has none."""
        began = self.turn_began
        return 0.0 if began is None else max(0.0, perf_counter() - began)
