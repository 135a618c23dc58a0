"""Report: one self-contained HTML page from the scores of a model."""

from rmtbase.report._page import render

__all__ = ["render"]
