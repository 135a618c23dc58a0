"""Records of released sets: their files, and digests that reveal damage."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal, InvalidOperation
from importlib.resources import files
from typing import Any

from rmtbase.errors import RecordError

NEWEST = "v1"
"""Name of the newest set."""


def read_record(name: str, sha256: str = "") -> dict[str, Any]:
    """Read the record of a set from its file."""
    file = files("rmtbase.constants").joinpath(f"{name}.json")
    expected = f"constants.{name} as released; install rmtbase again"
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(record, dict):
            raise RecordError(str(file), "no record", expected)
        damaged = _damaged(record, sha256)
    except (ValueError, TypeError, AttributeError, KeyError, InvalidOperation) as error:
        raise RecordError(str(file), f"no record ({type(error).__name__})", expected) from error
    if damaged:
        raise RecordError(str(file), damaged, expected)
    return record


def _damaged(record: Mapping[str, Any], sha256: str) -> str:
    """Say how a record differs from its release; bounds can only be checked to enclose the digits."""
    if sha256 and digest(record) != sha256:
        return f"a record with the digest {digest(record)[:12]}…"
    for name, one in record.get("constants", {}).items():
        if "enclosure" in one and not encloses(one["enclosure"], one["digits"]):
            return f"bounds of {name} that do not enclose its digits"
    return ""


def encloses(bounds: Sequence[str], digits: str) -> bool:
    """Return True if both bounds, in ascending order, round to the digits."""
    low, high = map(Decimal, bounds)
    rounded = Context(prec=len(Decimal(digits).as_tuple().digits)).plus
    return low <= high and rounded(low) == Decimal(digits) == rounded(high)


def digest(record: Mapping[str, Any]) -> str:
    """SHA-256 of a record, whatever the layout of its file, without enclosures, which may be added later."""
    numbers = {
        name: {field: value for field, value in one.items() if field != "enclosure"}
        for name, one in record.get("constants", {}).items()
    }
    canonical = json.dumps(dict(record) | {"constants": numbers}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
