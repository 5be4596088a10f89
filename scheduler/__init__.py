"""Which requests run in the next step, and how far. Decides; touches no tensor and no clock."""

from scheduler.budget import Limits
from scheduler.counters import Counters
from scheduler.plan import NewToken, RowCopy, ScheduledSpan, StepPlan
from scheduler.request import Request, State
from scheduler.scheduler import Scheduler

__all__ = [
    "Counters",
    "Limits",
    "NewToken",
    "Request",
    "RowCopy",
    "ScheduledSpan",
    "Scheduler",
    "State",
    "StepPlan",
]
