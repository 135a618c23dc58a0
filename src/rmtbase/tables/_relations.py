"""Checks across the variables of a table: sizes, and the checksum of each case.

Each check takes all groups of a table and returns None, or what was found and what was expected. The digest already
shows that the values are those that were written, so these checks do not compare values with one another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import xarray as xr

from rmtbase.tables._digest import case_checksums

Groups = Mapping[str, xr.Dataset]
Fault = tuple[str, str] | None
Relation = Callable[[Groups], Fault]


def edges_enclose_bins(groups: Groups) -> Fault:
    """Check that there is one more edge than bins."""
    sizes = groups[""].sizes
    bins, edges = sizes["bin"], sizes["edge"]
    return None if edges == bins + 1 else (f"{edges} edges of {bins} bins", f"{bins + 1} edges")


def sample_has_all_draws(groups: Groups) -> Fault:
    """Check that the sample, if there is one, has the number of draws of every case."""
    table = groups[""]
    if "draw" not in table.sizes:
        return None
    size = table.sizes["draw"]
    counts = table["draws"].values.tolist() if "draws" in table else [int(table.attrs["draws"])]
    mismatch = next((count for count in counts if count != size), None)
    return None if mismatch is None else (f"a sample of {size} draws", f"{mismatch}, the draws of its case")


def checksums_fit(groups: Groups) -> Fault:
    """Check each case of an atlas against its checksum, which serves as its digest when only that case is read."""
    atlas = groups[""]
    wrong = atlas["checksum"].values != case_checksums(atlas)
    return ("contents that do not fit their checksum", "an atlas as it was written") if wrong.any() else None
