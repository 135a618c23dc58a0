"""Trajectories: the scores of many checkpoints of one model, along the steps of its training."""

from rmtbase.trajectories._alarm import (
    ALARM_LEVEL,
    Spending,
    evidence,
    raised,
    spending_of,
    with_alarm,
    without_alarm,
)
from rmtbase.trajectories._along_steps import joined, one_step, until
from rmtbase.trajectories._attributes import StepName, failures
from rmtbase.trajectories._checkpoint_scores import Scoring
from rmtbase.trajectories._earlier_file import earlier_file
from rmtbase.trajectories._summary import Departure, StepSummary, TrajectorySummary, summarize_trajectory
from rmtbase.trajectories._trajectory import trajectory

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
    "failures",
    "joined",
    "one_step",
    "raised",
    "spending_of",
    "summarize_trajectory",
    "trajectory",
    "until",
    "with_alarm",
    "without_alarm",
]
