"""The HTML page of a scores file."""

from rmtbase.results.scores.page._page import render

__all__ = ["render"]
