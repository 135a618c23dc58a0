"""Names of the tables package for what reasons and words have."""

from __future__ import annotations

from typing import Any

from rmtbase.reasons import NotTestable, not_testable_json
from rmtbase.words import of_tested as headline
from rmtbase.words import plural
from rmtbase.words import untested_words as not_testable_words

__all__ = ["NotTestable", "headline", "not_testable_json", "not_testable_words", "plural", "recorded"]


def recorded(reason: Any) -> str:
    """Return a reason from a file in words, or a text that says that none is recorded."""
    return str(reason) or "no reason is recorded in this file"
