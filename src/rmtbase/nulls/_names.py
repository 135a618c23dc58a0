"""Nulls by name, for the command line and for callers who write ``null="signs"``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.nulls._gaussian import Analytic, Gaussian, Kurtosis, Table
from rmtbase.nulls._null import Null
from rmtbase.nulls._resampler import Axes, Signs

NULLS: dict[str, type[Null]] = {null.name: null for null in (Gaussian, Analytic, Kurtosis, Signs, Axes)}
"""Nulls that heads can be compared with, by name."""


def find_null(
    null: Null | xr.Dataset | Path | str, *, initialization: str = "normal", draws: int | None = None, seed: int = 0
) -> Null:
    """Return the given null, or make the null with the given name, or from the given table, and with these options.

    Args:
        null: a null; one of :data:`NULLS`; or a baseline table, or the path of one, for a :class:`Table`.
        initialization: law of the entries; see :class:`Null`.
        draws: least number of null draws; None for the default.
        seed: seed of the draws.

    Raises:
        ParameterError: there is neither a null nor a file of that name, or an option is outside its domain.
    """
    if isinstance(null, Null):
        return null
    options: dict[str, Any] = {"initialization": initialization, "draws": draws, "seed": seed}
    if isinstance(null, str) and null in NULLS:
        return NULLS[null](**options)
    if isinstance(null, xr.Dataset | Path) or (isinstance(null, str) and any(mark in null for mark in "./\\")):
        return Table(null, **options)
    raise ParameterError("null", null, f"{', '.join(map(repr, NULLS))}, a baseline table (.nc), or a null as object")
