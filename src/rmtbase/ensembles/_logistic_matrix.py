"""A matrix with independent logistic elements."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax

from rmtbase.ensembles._element_laws import Logistic
from rmtbase.ensembles._independent_matrix import IndependentMatrix
from rmtbase.parameters import require_finite_number, require_positive_integer, require_positive_number


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LogisticMatrix(IndependentMatrix):
    """A matrix of independent logistic elements, of standard deviation π scale/√3; scale and location are data."""

    n_rows: int = field(metadata={"static": True})
    n_columns: int = field(metadata={"static": True})
    scale: float
    location: float = 0.0

    @property
    def name(self) -> str:
        """``logistic_matrix {n_rows}x{n_columns} scale={scale} location={location}``."""
        return f"logistic_matrix {self.n_rows}x{self.n_columns} scale={self.scale} location={self.location}"

    @property
    def law(self) -> Logistic:
        """The law of one element; its ``std`` is exact."""
        return Logistic(self.scale, self.location)


def logistic_matrix(n_rows: int, n_columns: int, scale: float, location: float = 0.0) -> LogisticMatrix:
    """The ensemble of matrices with i.i.d. logistic elements, density 1/(4 s cosh²((w − location)/(2 s))), s = scale.

    The spectrum of a trained matrix ``w`` beside that of logistic noise fitted to its elements::

        fit = rmtbase.statistics.fit_logistic(w)
        null = rmtbase.ensembles.logistic_matrix(*w.shape, fit.scale, fit.location)

    Raises:
        ParameterError: a dimension is not a positive integer, the scale no finite positive number, or the location not
            finite.
    """
    return LogisticMatrix(
        require_positive_integer("n_rows", n_rows),
        require_positive_integer("n_columns", n_columns),
        require_positive_number("scale", scale),
        require_finite_number("location", location),
    )
