"""Weibull probability-plot fit of weight magnitudes: its anchor for every parent law, and its sampling error."""
