"""Records of released sets: their files, and the digests that show whether one was damaged."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal, InvalidOperation
from importlib.resources import files
from typing import Any

from rmtbase.errors import RecordError

NEWEST = "v1"
"""The newest set."""


def read_record(name: str, sha256: str = "") -> dict[str, Any]:
    """The record of a set, as it stands in its file.

    Args:
        name: of the set.
        sha256: the :func:`digest` with which it was released; "" while it is being prepared.

    Raises:
        RecordError: if the file was damaged: no digit of it is given out then.
    """
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
    """What of a record is not as it was released, in words; of bounds that they enclose the digits is known alone."""
    if sha256 and digest(record) != sha256:
        return f"a record with the digest {digest(record)[:12]}…"
    for name, one in record.get("constants", {}).items():
        if "enclosure" in one and not encloses(one["enclosure"], one["digits"]):
            return f"bounds of {name} that do not enclose its digits"
    return ""


def encloses(bounds: Sequence[str], digits: str) -> bool:
    """Whether both bounds, in their order, round to the digits.

    Args:
        bounds: lower and upper, as decimals.
        digits: a decimal; to as many digits as it has both bounds are rounded.

    Raises:
        decimal.InvalidOperation: if one of them is no decimal.
    """
    low, high = map(Decimal, bounds)
    rounded = Context(prec=len(Decimal(digits).as_tuple().digits)).plus
    return low <= high and rounded(low) == Decimal(digits) == rounded(high)


def digest(record: Mapping[str, Any]) -> str:
    """SHA-256 of a record, however its file is laid out; without the enclosures, which may be added later."""
    numbers = {
        name: {field: value for field, value in one.items() if field != "enclosure"}
        for name, one in record.get("constants", {}).items()
    }
    canonical = json.dumps(dict(record) | {"constants": numbers}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
