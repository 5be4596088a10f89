"""Which requests run in the next step, and how far. Decides; touches no tensor and no clock."""

from scheduler.budget import Limits, QueueFull
from scheduler.counters import Counters
from scheduler.order import ORDERS
from scheduler.plan import Ended, NewToken, RowCopy, ScheduledSpan, StepPlan
from scheduler.request import Request, State
from scheduler.scheduler import Scheduler

__all__ = [
    "ORDERS",
    "Counters",
    "Ended",
    "Limits",
    "NewToken",
    "QueueFull",
    "Request",
    "RowCopy",
    "ScheduledSpan",
    "Scheduler",
    "State",
    "StepPlan",
]
