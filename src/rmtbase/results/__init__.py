"""Kinds of result: one folder each, with its measure, schema, rows, figures and command."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # not imported from typing: the command line reads KINDS, and must start fast
if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    import xarray as xr

__all__ = ["KINDS", "open_table", "register_all"]

KINDS = {
    "baseline": "baseline",
    "spectra": "baseline",
    "elements": "baseline",
    "atlas": "baseline",
    "scores": "scores",
    "signal": "signal",
    "composition": "composition",
    "effective_depth": "depth",
    "changes": "diff",
    "trajectory": "trajectory",
    "comparison": "comparison",
}
"""The folder of each kind of file, whose contents docs/architecture.md describes; a new kind is one more line here."""

FOLDERS = tuple(dict.fromkeys(KINDS.values()))
"""All folders, in the order of the commands."""


def __getattr__(name: str) -> ModuleType:
    if name in (*FOLDERS, "figures"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def register_all() -> None:
    """Make every kind known to :mod:`rmtbase.tables`."""
    for folder in FOLDERS:
        import_module(f"{__name__}.{folder}.schema")


def open_table(path: Path | str, *kinds: str) -> xr.Dataset | xr.DataTree:
    """Open a file of any kind, or of the named kinds; see :func:`rmtbase.tables.open_table`, also for its errors."""
    from rmtbase import tables

    register_all()
    return tables.open_table(path, *kinds)
