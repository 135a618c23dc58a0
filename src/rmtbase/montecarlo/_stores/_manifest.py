"""``store.json``: what a store's chunks are draws of, and what they were drawn with, under a checksum of its own."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmtbase.errors import StoreError
from rmtbase.linalg import SOLVERS
from rmtbase.montecarlo._plans._plan import Plan
from rmtbase.montecarlo._stores._bounded import parse_record
from rmtbase.regular_files import open_regular
from rmtbase.shown import one_line
from rmtbase.tables import write_bytes

MANIFEST = "store.json"

_KIND = "rmtbase store"
_LARGEST = 1 << 24  # bytes: a hundred thousand cases
_ANEW = "remove the folder to begin anew"


@dataclass(frozen=True)
class Manifest:
    """What a store records of itself.

    Attributes:
        plan_hash: of the plan.
        plan: its record.
        settings: what else decides about bits: versions, processor, JAX's settings.
        solvers: of each case.
    """

    plan_hash: str
    plan: Mapping[str, Any]
    settings: Mapping[str, Any]
    solvers: Sequence[str]

    @property
    def digest(self) -> str:
        """Of settings and solvers: each chunk bears it, so that those of two installations never mix."""
        return _sha256({"settings": self.settings, "solvers": self.solvers})

    def write(self, folder: Path) -> None:
        """Write it into the store's folder.

        Raises:
            StoreError: it is larger than any that would be read again.
            OutputError: it cannot be written.
        """
        contents = {"kind": _KIND, **self.__dict__}
        text = json.dumps(contents | {"sha256": _sha256(contents)}, indent=1).encode()
        if len(text) > _LARGEST:
            raise StoreError(folder, f"a plan of {len(text):,} bytes", f"{_LARGEST:,} at most; split it into several")
        write_bytes(text, folder / MANIFEST)


def has_manifest(folder: Path) -> bool:
    """Whether there is anything under that name."""
    return os.path.lexists(folder / MANIFEST)


def read_manifest(folder: Path, plan: Plan) -> Manifest:
    """The manifest of a store.

    Args:
        folder: the store's.
        plan: the plan that is asked for; the manifest's may be another.

    Raises:
        StoreError: it is not there, not ours, damaged, changed after it was written, or an earlier version's.
    """
    try:
        with open_regular(folder / MANIFEST) as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST:,} bytes")
        found = parse_record(text)
        kinds = {"plan_hash": str, "plan": dict, "settings": dict}
        if found.pop("kind", None) != _KIND or not all(isinstance(found.get(key), kinds[key]) for key in kinds):
            raise ValueError("it is not that of a store")
    except (ValueError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else one_line(str(error), 200)
        raise StoreError(
            folder, f"an unreadable {MANIFEST} ({reason})", f"that of a plan's store; put back a copy of it, or {_ANEW}"
        ) from error
    recorded = found.pop("sha256", None)
    if recorded is None and "solvers" in found["settings"]:
        raise StoreError(
            folder,
            f"a {MANIFEST} without a checksum, as earlier versions wrote it",
            f"one of this version; finish the run with the version that began it, or {_ANEW}",
        )
    if recorded != _sha256({"kind": _KIND, **found}):
        raise StoreError(
            folder,
            f"a {MANIFEST} that was changed after it was written: its checksum does not fit",
            f"its plan, settings and solvers as they were written; put back a copy of it, or {_ANEW}",
        )
    _require_consistent(folder, found, plan)
    return Manifest(**found)


def _require_consistent(folder: Path, found: Mapping[str, Any], plan: Plan) -> None:
    """What a checksum that was made anew does not tell."""
    if set(found) != {"plan_hash", "plan", "settings", "solvers"} or found["plan_hash"] != _sha256(found["plan"]):
        raise StoreError(
            folder,
            f"a {MANIFEST} whose plan is not that of its hash",
            f"those of one plan; put back a copy, or {_ANEW}",
        )
    if found["plan_hash"] != plan.hash:
        return
    solvers = found["solvers"]
    known = ("none",) if plan.measure == "elements" else SOLVERS
    if not isinstance(solvers, list) or len(solvers) != len(plan.cases) or any(one not in known for one in solvers):
        raise StoreError(
            folder, f"a {MANIFEST} with the solvers {solvers}", f"one of {', '.join(known)} for each case, or {_ANEW}"
        )


def _sha256(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
