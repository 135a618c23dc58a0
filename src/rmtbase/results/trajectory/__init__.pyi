from .measure import trajectory
from .report import TrajectorySummary, summarize_trajectory

__all__ = ["TrajectorySummary", "summarize_trajectory", "trajectory"]
