from .measure import trajectory
from .summary import TrajectorySummary, summarize_trajectory

__all__ = ["TrajectorySummary", "summarize_trajectory", "trajectory"]
