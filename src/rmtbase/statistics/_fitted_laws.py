"""Logistic and Student-t laws fitted to the elements of a matrix by maximum likelihood."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import digamma, gammaln, polygamma

from rmtbase.shown import in_one_line
from rmtbase.statistics._likelihood import Numbers, Vector, maximize_likelihood

_START = 0.1  # starting value of 1/ν
_LARGEST = 5.0  # largest 1/ν: ν = 0.2, the limit of student_t_matrix


@in_one_line
@dataclass(frozen=True)
class LogisticFit:
    """Logistic law fitted to n elements; its standard deviation is π s/√3."""

    #: location, scale: centre μ and scale s, in the units of the elements
    location: float
    scale: float
    location_standard_error: float  #: s √(3/n); 0 if the location was given
    scale_standard_error: float  #: s √(9/((3 + π²) n))
    log_likelihood: float  #: ln of the density of all the elements
    count: int  #: n


def fit_logistic(matrix: ArrayLike, location: float | None = None) -> LogisticFit:
    """Fit i.i.d. logistic elements, density 1/(4 s cosh²((w − μ)/(2 s))), by maximum likelihood.

    Standard errors are those of independent elements, from the Fisher information. To draw matrices from the fit::

        fit = rmtbase.statistics.fit_logistic(w)
        null = rmtbase.ensembles.logistic_matrix(*w.shape, fit.scale, fit.location)

    Args:
        matrix: elements of any shape and real dtype; widened to float64 block by block.
        location: μ, if it is known; fitted if None.

    Raises:
        ParameterError: the elements are not real, masked, not finite, fewer than two, or all equal; or the location is
            not finite.
        FitError: no maximum of the likelihood was found.
    """
    maximum = maximize_likelihood("logistic", _logistic_terms, matrix, location)
    return LogisticFit(
        maximum.location,
        maximum.scale,
        maximum.scale * math.sqrt(3 / maximum.count) if location is None else 0.0,
        maximum.scale * math.sqrt(9 / ((3 + math.pi**2) * maximum.count)),
        maximum.log_likelihood,
        maximum.count,
    )


def _logistic_terms(z: Numbers, at: Vector) -> Float[np.ndarray, " term"]:
    """Sum ln f, its gradient and Hessian in (m/s, ln s), with u = (z − m)/s and d(ln f)/du = −tanh(u/2)."""
    location, log_scale = at
    u = (z - location) * math.exp(-log_scale)
    magnitude = np.abs(u)
    decay = np.exp(-magnitude)
    slope = np.copysign((1 - decay) / (1 + decay), u)
    curvature = 2 * decay / (1 + decay) ** 2  # 1/(2 cosh²(u/2))
    u_slope = u @ slope
    return np.array(
        [
            -np.sum(magnitude) - 2 * np.sum(np.log1p(decay)) - z.size * log_scale,
            slope.sum(),
            u_slope - z.size,
            -curvature.sum(),
            -slope.sum() - u @ curvature,
            -u_slope - (u * u) @ curvature,
        ]
    )


@in_one_line
@dataclass(frozen=True)
class StudentTFit:
    """Student's t law, location + scale · t_ν, fitted to n elements."""

    #: ``"student_t"``, or ``"normal"`` if no ν is likelier than infinity, because the tails of the elements are no
    #: heavier than those of a normal law. Then the fit is that of the normal law.
    status: Literal["student_t", "normal"]
    df: float  #: ν; infinite if the status is ``"normal"``
    #: location, scale: centre and unit of t, in the units of the elements
    location: float
    scale: float
    df_standard_error: float  #: ν² times the standard error of 1/ν, the parameter that stays regular; infinite if ν is
    #: standard error of 1/ν; √(2/(3n)) for a normal law, where 1/ν is estimated as 0 half of the time
    inverse_df_standard_error: float
    location_standard_error: float  #: s √((ν + 3)/((ν + 1) n)), or 0 if the location was given
    scale_standard_error: float  #: standard error of the scale
    log_likelihood: float  #: ln of the density of all the elements
    count: int  #: n


def fit_student_t(matrix: ArrayLike, location: float | None = None) -> StudentTFit:
    """Fit i.i.d. elements μ + s t_ν, with density of t_ν ∝ (1 + t²/ν)^(−(ν+1)/2), by maximum likelihood.

    The likelihood is maximised over 1/ν ≥ 0, in which it is smooth up to the normal law at 1/ν = 0: its slope there is
    n/4 times the sample's excess kurtosis. Standard errors are those of independent elements, from the Fisher
    information. To draw matrices from the fit, whatever its status::

        fit = rmtbase.statistics.fit_student_t(w)
        null = rmtbase.ensembles.student_t_matrix(*w.shape, fit.df, fit.scale, fit.location)

    Args:
        matrix: elements of any shape and real dtype; widened to float64 block by block.
        location: μ, if it is known; fitted if None.

    Raises:
        ParameterError: the elements are not real, masked, not finite, fewer than two, or all equal; or the location is
            not finite.
        FitError: no maximum with ν > 0.2 was found. There is none if many elements are equal, because the likelihood
            then grows without bound as the law concentrates on their value.

    Source: K. L. Lange, R. J. A. Little and J. M. G. Taylor, J. Am. Stat. Assoc. 84, 881 (1989).
    """
    maximum = maximize_likelihood("Student-t", _student_t_terms, matrix, location, [_START], [_LARGEST])
    kappa = float(maximum.further[0])
    of_location, of_scale, of_kappa = np.sqrt(_inverse_information(kappa) / maximum.count)
    return StudentTFit(
        "student_t" if kappa > 0 else "normal",
        1 / kappa if kappa > 0 else math.inf,
        maximum.location,
        maximum.scale,
        float(of_kappa) / kappa**2 if kappa > 0 else math.inf,
        float(of_kappa),
        maximum.scale * float(of_location) if location is None else 0.0,
        maximum.scale * float(of_scale),
        maximum.log_likelihood,
        maximum.count,
    )


def _student_t_terms(z: Numbers, at: Vector) -> Float[np.ndarray, " term"]:
    """Sum ln f, its gradient and Hessian in (m/s, ln s, κ = 1/ν).

    With u = (z − m)/s, q = u², x = κ q and L(x) = ln(1 + x)/x,
    ln f = A(κ) − ln s − ln(2π)/2 − (1 + κ) q L(x)/2, and d(ln f)/du = −(1 + κ) u/(1 + x).
    """
    location, log_scale, kappa = at
    n, grown = z.size, 1 + kappa
    u = (z - location) * math.exp(-log_scale)
    q = u * u
    x = kappa * q
    r = 1 / (1 + x)
    log_ratio, first, second = _log_ratio(x, r, kappa)
    slope = grown * u * r
    curvature = grown * r * r * (1 - x)
    mixed = u * r * (1 - grown * q * r)  # minus the derivative of ln f in u and κ
    constant, d_constant, dd_constant = _log_gamma_ratio(kappa)
    q_first = q * first
    u_slope = u @ slope
    return np.array(
        [
            n * (constant - log_scale - 0.5 * math.log(2 * math.pi)) - 0.5 * grown * (q @ log_ratio),
            slope.sum(),
            u_slope - n,
            n * d_constant - 0.5 * (q @ (log_ratio + grown * q_first)),
            -curvature.sum(),
            -slope.sum() - u @ curvature,
            mixed.sum(),
            -u_slope - q @ curvature,
            u @ mixed,
            n * dd_constant - q @ (q_first + 0.5 * grown * q * (q * second)),
        ]
    )


def _log_ratio(x: Numbers, r: Numbers, kappa: float) -> tuple[Numbers, Numbers, Numbers]:
    """L(x) = ln(1 + x)/x and its first two derivatives, with r = 1/(1 + x)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.log1p(x) / x
        first = (r - value) / x
        second = -(r * r + 2 * first) / x
    small = x < 1e-3
    if kappa < 1e-4 or small.any():
        near = x[small]
        value[small] = np.polyval([1 / 7, -1 / 6, 1 / 5, -1 / 4, 1 / 3, -1 / 2, 1], near)
        first[small] = np.polyval([-7 / 8, 6 / 7, -5 / 6, 4 / 5, -3 / 4, 2 / 3, -1 / 2], near)
        second[small] = np.polyval([-21 / 4, 30 / 7, -10 / 3, 12 / 5, -3 / 2, 2 / 3], near)
    return value, first, second


def _log_gamma_ratio(kappa: float) -> tuple[float, float, float]:
    """A(κ) = ln Γ((ν + 1)/2) − ln Γ(ν/2) − ln(ν/2)/2 at ν = 1/κ, and its first two derivatives in κ."""
    if kappa < 0.03:  # Stirling's series; the next term is 8 κ¹¹
        series = np.polynomial.Polynomial([0, -1 / 4, 0, 1 / 24, 0, -1 / 20, 0, 17 / 112, 0, -31 / 36])
        return float(series(kappa)), float(series.deriv()(kappa)), float(series.deriv(2)(kappa))
    x = 0.5 / kappa
    value = gammaln(x + 0.5) - gammaln(x) - 0.5 * math.log(x)
    d_x = digamma(x + 0.5) - digamma(x) - 0.5 / x
    dd_x = polygamma(1, x + 0.5) - polygamma(1, x) + 0.5 / x**2
    return float(value), float(-2 * x**2 * d_x), float(4 * x**4 * dd_x + 8 * x**3 * d_x)


def _inverse_information(kappa: float) -> Float[np.ndarray, "3"]:
    """Variances, times n, of the estimates of m/s, ln s and κ: the inverse of the Fisher information."""
    _, d_constant, dd_constant = _log_gamma_ratio(kappa)
    tail = 1 + 3 * kappa
    excess = 2 * (d_constant + 0.25) / kappa if kappa > 0 else 0.0
    of_kappa = (7 + 3 * kappa) / (2 * (1 + kappa) * tail) - dd_constant - excess
    of_scale, of_both = 2 / tail, 2 / ((1 + kappa) * tail)
    determinant = of_scale * of_kappa - of_both**2
    scale_variance = of_kappa / determinant if kappa > 0 else 1 / of_scale  # κ = 0 is then fixed, not estimated
    return np.array([tail / (1 + kappa), scale_variance, of_scale / determinant])
