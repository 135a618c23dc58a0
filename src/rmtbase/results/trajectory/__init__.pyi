from ._alarm import ALARM_LEVEL, Spending, evidence, raised, spending_of, with_alarm, without_alarm
from ._along_steps import joined, until
from ._attributes import StepName
from ._checkpoint_scores import Scoring
from .measure import earlier_file, trajectory
from .summary import Departure, StepSummary, TrajectorySummary, summarize_trajectory

__all__ = [
    "ALARM_LEVEL",
    "Departure",
    "Scoring",
    "Spending",
    "StepName",
    "StepSummary",
    "TrajectorySummary",
    "earlier_file",
    "evidence",
    "joined",
    "raised",
    "spending_of",
    "summarize_trajectory",
    "trajectory",
    "until",
    "with_alarm",
    "without_alarm",
]
