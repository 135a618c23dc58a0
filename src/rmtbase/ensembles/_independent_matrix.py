"""Matrices of independent elements: weights at initialization, and laws that are fitted to trained matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import SupportsFloat

from rmtbase.ensembles._element_laws import ElementLaw, Logistic, StudentT
from rmtbase.ensembles._ensemble import as_pytree
from rmtbase.ensembles._full_matrix import IndependentMatrix
from rmtbase.ensembles._initializers import INITIALIZERS, Initializer, Orthogonal
from rmtbase.ensembles._orthogonal_matrix import OrthogonalMatrix
from rmtbase.errors import ParameterError
from rmtbase.parameters import require_finite_number, require_positive_integer, require_positive_number


@as_pytree
@dataclass(frozen=True)
class InitializedMatrix(IndependentMatrix):
    """Matrix (fan_out, fan_in) with independent elements drawn by an initialiser, whose numbers are data."""

    initializer: Initializer

    @property
    def name(self) -> str:
        return f"initialized_matrix {self.n_rows}x{self.n_columns} {self.initializer.label}"

    @property
    def law(self) -> ElementLaw:
        return self.initializer.law(self.n_rows, self.n_columns)


def initialized_matrix(
    n_rows: int, n_columns: int, initializer: str = "normal", **options: object
) -> InitializedMatrix | OrthogonalMatrix:
    """Ensemble of weight matrices (n_rows, n_columns) drawn by an initialiser, stored as torch.nn.Linear stores them.

    ================  ======================================================  =================================
    initializer       law of an element                                       options
    ================  ======================================================  =================================
    normal            N(mean, std²)                                           mean = 0, std = 1
    truncated_normal  N(0, std²) cut off at ±bound · std, std that of the     std = 1, bound = 2,
                      normal law (``parent``) or of the ``elements``          std_of = "parent"
    uniform           U(−bound, bound)                                        bound
    xavier_uniform    U(−b, b), b = gain √(6/(fan_in + fan_out))              gain = 1
    xavier_normal     N(0, s²), s = gain √(2/(fan_in + fan_out))              gain = 1
    kaiming_uniform   U(−b, b), b = gain(nonlinearity, a) √(3/fan)            a = 0, mode = "fan_in",
    kaiming_normal    N(0, s²), s = gain(nonlinearity, a)/√fan                nonlinearity = "leaky_relu"
    torch_linear      U(−b, b), b = 1/√fan_in: torch.nn.Linear's default,     none
                      which is kaiming_uniform with a = √5
    small_init        N(0, s²), s = √(2/(5 d_model))                          d_model
    wang_init         N(0, s²), s = 2/(n_layers √d_model)                     n_layers, d_model
    scaled_normal     N(0, s²), s = std/√(2 n_layers): GPT-2's projections    n_layers, std = 0.02
    orthogonal        gain · Q, Q Haar on the Stiefel manifold                gain = 1
    ================  ======================================================  =================================

    Names, options and defaults are those of torch.nn.init if it has the scheme. Each initialiser's docstring gives its
    source.

    Args:
        n_rows: fan_out, the number of output features.
        n_columns: fan_in, the number of input features.
        initializer: a name from the table.
        options: options of that initialiser.

    Raises:
        ParameterError: a dimension is not a positive integer, the initialiser is unknown, or one of its options is
            unknown, missing or outside its domain.
    """
    shape = require_positive_integer("n_rows", n_rows), require_positive_integer("n_columns", n_columns)
    if not isinstance(initializer, str) or initializer not in INITIALIZERS:
        raise ParameterError("initializer", initializer, "one of " + ", ".join(INITIALIZERS))
    recipe = INITIALIZERS[initializer].from_options(options)
    return OrthogonalMatrix(*shape, recipe) if isinstance(recipe, Orthogonal) else InitializedMatrix(*shape, recipe)


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

    With df > 4 the bulk and its edges tend to those of Marchenko and Pastur; with df ≤ 4 the largest singular values
    are outliers, each about as large as one of the largest elements (Soshnikov, Elect. Comm. in Probab. 9, 82, 2004;
    Auffinger, Ben Arous and Péché, Ann. IHP 45, 589, 2009).

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
