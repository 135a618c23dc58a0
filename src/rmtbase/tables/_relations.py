"""Checks of what several variables of a table share: sizes, and the checksum of each case.

Each check takes all groups of a table, and returns what is found and what is expected, or None. The digest shows that
values are those that were written, so that no check compares them with one another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import xarray as xr

from rmtbase.tables._digest import case_checksums

Groups = Mapping[str, xr.Dataset]
Fault = tuple[str, str] | None
Relation = Callable[[Groups], Fault]


def edges_enclose_bins(groups: Groups) -> Fault:
    """There is one edge more than bins."""
    sizes = groups[""].sizes
    bins, edges = sizes["bin"], sizes["edge"]
    return None if edges == bins + 1 else (f"{edges} edges of {bins} bins", f"{bins + 1} edges")


def sample_has_all_draws(groups: Groups) -> Fault:
    """A sample, where there is one, has as many draws as every case says."""
    table = groups[""]
    if "draw" not in table.sizes:
        return None
    held = table.sizes["draw"]
    counts = table["draws"].values.tolist() if "draws" in table else [int(table.attrs["draws"])]
    other = next((count for count in counts if count != held), None)
    return None if other is None else (f"a sample of {held} draws", f"{other}, the draws of its case")


def checksums_fit(groups: Groups) -> Fault:
    """Every case of an atlas has the checksum of its contents: the digest of one that is read without the others."""
    atlas = groups[""]
    wrong = atlas["checksum"].values != case_checksums(atlas)
    return ("contents that do not fit their checksum", "an atlas as it was written") if wrong.any() else None
