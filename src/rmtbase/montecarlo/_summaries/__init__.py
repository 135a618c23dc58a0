"""What the draws of a run come to: summaries, and tables beside the analytic values."""
