"""Initialization that the entries of a model still look like; the Gaussian null assumes normal entries."""

from __future__ import annotations

import math
from types import MappingProxyType

import numpy as np
import xarray as xr


def _truncated_kurtosis(at: float) -> float:
    """Excess kurtosis of N(0, 1) cut at ±a: m₂ = 1 - 2aφ(a)/P, m₄ = 3 - 2(a³ + 3a)φ(a)/P, with P = P(-a < x < a)."""
    density = 2.0 * math.exp(-0.5 * at**2) / math.sqrt(2.0 * math.pi) / math.erf(at / math.sqrt(2.0))
    return (3.0 - (at**3 + 3.0 * at) * density) / (1.0 - at * density) ** 2 - 3.0


KURTOSIS = MappingProxyType({"normal": 0.0, "uniform": -1.2, "truncated_normal": _truncated_kurtosis(2.0)})
"""Excess kurtosis of independent entries by how they were drawn (``rmtbase.parameters.INITIALIZATIONS``)."""

_WITHIN = 5.0  # standard errors
_READ = ("attention_query", "attention_key")
_WORDS = MappingProxyType(
    {
        "normal": "as by normal initialisation",
        "uniform": "as by uniform initialisation (torch.nn.Linear's own)",
        "truncated_normal": "as by normal initialisation truncated at two standard deviations",
    }
)


def initialization(matrices: xr.Dataset) -> str:
    """Find the initialization that all query and key matrices of a model are compatible with, or "" if there is none.

    A matrix of N entries is compatible with a law of :data:`KURTOSIS` if the excess kurtosis of its entries lies within
    5 standard errors √(24 / N) of that of the law. Training moves the kurtosis: a trained model is compatible with no
    law, unless it was trained so little that its entries do not show it.
    """
    components = [name for name in _READ if name in matrices["component"]]
    factors = matrices.sel(component=components)
    kurtosis = factors["observed"].sel(statistic="excess_kurtosis")
    error = np.sqrt(24.0 / (factors["n_rows"] * factors["n_columns"]))
    scored = kurtosis.notnull()
    if not components or not bool(scored.any()):
        return ""
    fits = {name: (abs(kurtosis - expected) < _WITHIN * error) | ~scored for name, expected in KURTOSIS.items()}
    compatible = [name for name, fit in fits.items() if bool(fit.all())]
    return compatible[0] if len(compatible) == 1 else ""  # tiny matrices are compatible with several


def initialization_note(matrices: xr.Dataset, of_null: str = "normal") -> str | None:
    """Tell in words what the initialization of a model means for p-values of the null of another; None if unknown."""
    name = initialization(matrices)
    if not name:
        return None
    kurtosis = KURTOSIS[name]
    line = f"entries of W_Q and W_K are distributed {_WORDS[name]}: excess kurtosis {kurtosis:.2f}"
    if name == of_null:
        return line
    shift = abs(kurtosis - KURTOSIS[of_null]) / math.sqrt(2.0)
    return (
        f"{line}, but the null is that of {of_null.replace('_', ' ')} entries. At any size this shifts the log-"
        f"determinant of an untrained head by {shift:.2f} standard deviations, so that its p-values are not "
        f"calibrated; with initialization={name!r} they are"
    )
