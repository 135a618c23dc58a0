"""Records that somebody may have put there: parsed only as far as is sane."""

from __future__ import annotations

import json
from typing import Any

_NESTED = 16  # levels that a record may have; ours have four


def parse_record(text: bytes) -> dict[str, Any]:
    """A JSON object of few levels.

    Raises:
        ValueError: it is none.
    """
    try:
        record = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(record, dict):
        raise ValueError("it is no JSON object")
    if not _is_flat(record, _NESTED):
        raise ValueError("it is nested too deeply")
    return record


def same_record(found: object, expected: object) -> bool:
    """Whether two values are the same JSON, where 1, 1.0 and true are three and the order of keys counts."""
    return json.dumps(found) == json.dumps(expected)


def _is_flat(value: object, levels: int) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    return not isinstance(value, list) or (levels > 0 and all(_is_flat(one, levels - 1) for one in value))
