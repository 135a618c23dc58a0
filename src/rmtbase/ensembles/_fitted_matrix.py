"""Matrices of independent logistic or Student-t elements, a law to be fitted to the elements of a trained matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import SupportsFloat

from rmtbase.ensembles._element_laws import Logistic, StudentT
from rmtbase.ensembles._ensemble import as_pytree
from rmtbase.ensembles._full_matrix import IndependentMatrix
from rmtbase.errors import ParameterError
from rmtbase.parameters import require_finite_number, require_positive_integer, require_positive_number

_FEWEST = 0.2  # degrees of freedom; with fewer, squares of elements overflow float64


@as_pytree
@dataclass(frozen=True)
class LogisticMatrix(IndependentMatrix):
    """Matrix of independent logistic elements with standard deviation π scale/√3; scale and location are data."""

    scale: float
    location: float = 0.0

    @property
    def name(self) -> str:
        return f"logistic_matrix {self.n_rows}x{self.n_columns} scale={self.scale} location={self.location}"

    @property
    def law(self) -> Logistic:
        return Logistic(self.scale, self.location)


def logistic_matrix(n_rows: int, n_columns: int, scale: float, location: float = 0.0) -> LogisticMatrix:
    """Ensemble of matrices with i.i.d. logistic elements, density 1/(4 s cosh²((w − location)/(2 s))), s = scale.

    To compare the spectrum of a trained matrix ``w`` with that of logistic noise fitted to its elements::

        fit = rmtbase.statistics.fit_logistic(w)
        null = rmtbase.ensembles.logistic_matrix(*w.shape, fit.scale, fit.location)

    Raises:
        ParameterError: a dimension is not a positive integer, the scale is not a finite positive number, or the
            location is not finite.
    """
    return LogisticMatrix(
        require_positive_integer("n_rows", n_rows),
        require_positive_integer("n_columns", n_columns),
        require_positive_number("scale", scale),
        require_finite_number("location", location),
    )


@as_pytree
@dataclass(frozen=True)
class StudentTMatrix(IndependentMatrix):
    """Matrix of independent elements location + scale · t_ν, ν = ``df``; df, scale and location are data."""

    df: float
    scale: float
    location: float = 0.0

    @property
    def name(self) -> str:
        parameters = f"df={self.df} scale={self.scale} location={self.location}"
        return f"student_t_matrix {self.n_rows}x{self.n_columns} {parameters}"

    @property
    def law(self) -> StudentT:
        return StudentT(self.df, self.scale, self.location)


def student_t_matrix(n_rows: int, n_columns: int, df: float, scale: float, location: float = 0.0) -> StudentTMatrix:
    """Ensemble of matrices with i.i.d. elements location + scale · t_ν, density ∝ (1 + t²/ν)^(−(ν+1)/2), ν = df.

    To compare the spectrum of a trained matrix ``w`` with that of equally heavy-tailed noise::

        fit = rmtbase.statistics.fit_student_t(w)
        null = rmtbase.ensembles.student_t_matrix(*w.shape, fit.df, fit.scale, fit.location)

    With df > 4 the bulk and its edges tend to those of Marchenko and Pastur at the elements' standard deviation. With
    df ≤ 4 the largest singular values are outliers, each about as large as one of the largest elements (Soshnikov,
    Elect. Comm. in Probab. 9, 82, 2004; Auffinger, Ben Arous and Péché, Ann. IHP 45, 589, 2009).

    Args:
        n_rows: number of rows.
        n_columns: number of columns.
        df: ν ≥ 0.2; infinity gives normal elements with standard deviation ``scale``.
        scale: unit of t. The standard deviation is scale √(ν/(ν − 2)) for ν > 2 and infinite otherwise.
        location: centre of the law.

    Raises:
        ParameterError: a dimension is not a positive integer, or a parameter is outside its domain.
    """
    infinite = isinstance(df, SupportsFloat) and float(df) == math.inf
    degrees = math.inf if infinite else require_positive_number("df", df)
    if degrees < _FEWEST:
        raise ParameterError("df", df, f"at least {_FEWEST}, or infinity for the normal law")
    return StudentTMatrix(
        require_positive_integer("n_rows", n_rows),
        require_positive_integer("n_columns", n_columns),
        degrees,
        require_positive_number("scale", scale),
        require_finite_number("location", location),
    )
