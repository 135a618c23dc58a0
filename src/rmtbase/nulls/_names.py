"""Nulls by name, for the command line and for callers who write ``null="signs"``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.nulls._gaussian import Analytic, Gaussian, Table
from rmtbase.nulls._kurtosis import Kurtosis
from rmtbase.nulls._null import Null
from rmtbase.nulls._resampler import Axes, Signs

NULLS: Mapping[str, type[Null]] = MappingProxyType(
    {one.name: one for one in (Gaussian, Analytic, Kurtosis, Signs, Axes)}
)
"""Nulls that heads can be compared with, by name."""


OF_A_TABLE = (Gaussian.name, Kurtosis.name)
"""Names of the nulls that a baseline table can give."""


def find_null(
    null: Null | str,
    *,
    baseline: xr.Dataset | Path | str | None = None,
    initialization: str = "normal",
    draws: int | None = None,
    seed: int = 0,
) -> Null:
    """Return the given null, or make the null with the given name and these options.

    Args:
        null: a null, or one of :data:`NULLS`.
        baseline: baseline table or atlas to take the null of ``"gaussian"`` or ``"kurtosis"`` from.
        initialization: law of the entries; see :class:`Null`.
        draws: least number of null draws; None for the default.
        seed: seed of the draws.

    Raises:
        ParameterError: no null has that name, a baseline is given for a null that cannot use one, or an option is
            outside its domain.
    """
    if isinstance(null, Null):
        return null
    if not isinstance(null, str) or null not in NULLS:
        *others, last = map(repr, NULLS)
        raise ParameterError("null", null, f"{', '.join(others)} or {last}, or an object of rmtbase.nulls")
    if baseline is None:
        return NULLS[null](initialization=initialization, draws=draws, seed=seed)
    if null not in OF_A_TABLE:
        found = "a dataset" if isinstance(baseline, xr.Dataset) else str(baseline)
        raise ParameterError("baseline", found, f"none: the {null} null is taken from no table")
    base = Table(baseline, initialization=initialization, draws=draws, seed=seed)
    return base if null == "gaussian" else Kurtosis(base=base)
