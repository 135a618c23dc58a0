"""Records of released sets: their files, and digests that reveal damage."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal, InvalidOperation
from importlib.resources import files
from typing import Any

from rmtbase.errors import RecordError

NEWEST = "v1"  #: Name of the newest set

_RELEASED = ("set", "date", "withdrawn")
_RELEASED_OF_EACH = ("id", "definition", "conditions", "digits", "uncertainty", "parameters", "values")


def read_record(name: str, sha256: str = "") -> dict[str, Any]:
    file = files("rmtbase.constants").joinpath(f"{name}.json")
    expected = f"constants.{name} as released; install rmtbase again"
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(record, dict):
            raise RecordError(str(file), "no record", expected)
        damage = f"a record with the digest {digest(record)[:12]}…" if sha256 and digest(record) != sha256 else ""
        for entry_name, entry in () if damage else record.get("constants", {}).items():
            # Bounds can only be checked to enclose the digits.
            if "enclosure" in entry and not encloses(entry["enclosure"], entry["digits"]):
                damage = damage or f"bounds of {entry_name} that do not enclose its digits"
    except (ValueError, TypeError, AttributeError, KeyError, InvalidOperation) as error:
        raise RecordError(str(file), f"no record ({type(error).__name__})", expected) from error
    if damage:
        raise RecordError(str(file), damage, expected)
    return record


def encloses(bounds: Sequence[str], digits: str) -> bool:
    """Return True if both bounds, in ascending order, round to the digits."""
    low, high = map(Decimal, bounds)
    rounded = Context(prec=len(Decimal(digits).as_tuple().digits)).plus
    return low <= high and rounded(low) == Decimal(digits) == rounded(high)


def released(record: Mapping[str, Any]) -> dict[str, Any]:
    """Select the part of a record that never changes; words may be improved, and enclosures added."""
    entries = {
        part: {
            name: {field: entry[field] for field in _RELEASED_OF_EACH if field in entry}
            for name, entry in record.get(part, {}).items()
        }
        for part in ("constants", "functions")
    }
    return {field: record[field] for field in _RELEASED if field in record} | entries


def digest(record: Mapping[str, Any]) -> str:
    """SHA-256 of what a record released, whatever the layout of its file."""
    canonical = json.dumps(released(record), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
