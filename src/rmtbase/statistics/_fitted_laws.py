"""Logistic and Student-t laws fitted to the elements of a matrix by maximum likelihood."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike, NDArray
from scipy.special import digamma, gammaln, polygamma

from rmtbase.errors import FitError, ParameterError
from rmtbase.parameters import require_finite_number, require_real_array
from rmtbase.shown import in_one_line

Numbers = Float[np.ndarray, " number"]
Vector = Float[np.ndarray, " parameter"]
Evaluation = tuple[float, Vector, Float[np.ndarray, "parameter parameter"]]
"""Mean log-likelihood, its gradient and its Hessian."""

Terms = Callable[[Numbers, Vector], Float[np.ndarray, " term"]]
"""(z, (location, ln scale, …)) → sums over z of ln f, its gradient, and the upper triangle of its Hessian by rows.

Derivatives with respect to the location are with respect to location/scale at a fixed scale, so that steps are in units
of the scale.
"""

_BLOCK = 1 << 13  # elements widened to float64 at a time: they fit in the cache, and BLAS sums them in one thread
_SAMPLE = 1 << 17  # elements used for the first steps of a fit
_WIDEST = 1e40  # in spreads: even at a scale of 1e-9 spreads, sums of sixth powers of elements fit in float64
_NORMAL_QUARTILE = 0.6744897501960817
_STEPS = 100
_LAST_GAIN = 1e-12  # in the mean log-likelihood: the Newton step of this gain leaves an error of order 1e-12
_FLATTEST = 1e-8  # share of the largest curvature that replaces smaller ones
_CLOSEST = 1e-9  # of the spread: a scale that small is on its way to zero
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
        maximum.scale * math.sqrt(3 / maximum.number) if location is None else 0.0,
        maximum.scale * math.sqrt(9 / ((3 + math.pi**2) * maximum.number)),
        maximum.log_likelihood,
        maximum.number,
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
    of_location, of_scale, of_kappa = np.sqrt(_inverse_information(kappa) / maximum.number)
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
        maximum.number,
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


class Elements(NamedTuple):
    flat: NDArray  # in the order in which they lie in memory
    # median and deviation (from the quartiles) of a subsample; z = (w - centre)/spread
    centre: float
    spread: float


def require_elements(matrix: ArrayLike) -> Elements:
    array = require_real_array("matrix", matrix)
    flat = array.ravel(order="K")
    if flat.size == 0:
        raise ParameterError("matrix", f"shape {array.shape}", "at least two elements")
    finite, low, high = 0, np.inf, -np.inf
    for block in _blocks(flat):
        finite += int(np.count_nonzero(np.isfinite(block)))
        low, high = min(low, block.min()), max(high, block.max())
    if finite < flat.size:
        raise ParameterError("matrix", f"{flat.size - finite} of {flat.size} elements not finite", "finite elements")
    if low == high:
        raise ParameterError("matrix", f"{flat.size} elements, all {low:g}", "elements that are not all equal")
    lower, centre, upper = np.quantile(_sample(flat).astype(np.float64), (0.25, 0.5, 0.75))
    spread = (upper - lower) / (2 * _NORMAL_QUARTILE)
    if spread == 0:  # at least half of the sample has one value
        spread = np.sqrt(np.mean([np.mean(((block - centre) / (high - low)) ** 2) for block in _blocks(flat)]))
        spread *= high - low
    if not 0.0 < spread < np.inf or max(high - centre, centre - low) / spread > _WIDEST:
        expected = f"none beyond {_WIDEST:g} times their spread"
        raise ParameterError("matrix", f"elements from {low:g} to {high:g}", expected)
    return Elements(flat, float(centre), float(spread))


def _sample(flat: NDArray) -> NDArray:
    step = -(-flat.size // _SAMPLE) | 1  # odd: it has no factor in common with usual widths, so all columns occur
    return flat[::step]


def _blocks(flat: NDArray) -> Iterator[Numbers]:
    for start in range(0, flat.size, _BLOCK):
        yield flat[start : start + _BLOCK].astype(np.float64)


class Maximum(NamedTuple):  # of the likelihood, in the units of the elements
    location: float
    scale: float
    further: Vector  # further parameters of the law
    log_likelihood: float
    number: int  # of the elements


def maximize_likelihood(
    law: str, terms: Terms, matrix: ArrayLike, location: float | None, start: ArrayLike = (), upper: ArrayLike = ()
) -> Maximum:
    """Fit location, scale and further parameters in [0, upper], by Newton steps on a sample, then on all elements."""
    fixed = None if location is None else require_finite_number("location", location)
    elements = require_elements(matrix)
    centre = 0.0 if fixed is None else (fixed - elements.centre) / elements.spread
    at = np.concatenate([[centre, 0.0], np.asarray(start, dtype=np.float64)])
    free = np.arange(at.size) >= (fixed is not None)
    ceiling = np.concatenate([[np.inf, np.inf], np.asarray(upper, dtype=np.float64)])
    sample = Elements(_sample(elements.flat), elements.centre, elements.spread)
    if sample.flat.size < elements.flat.size:
        with suppress(FitError):  # the sample may be degenerate even if the whole is not
            at, _ = _climb(law, terms, sample, at, free, ceiling)
    at, value = _climb(law, terms, elements, at, free, ceiling)
    return Maximum(
        elements.centre + elements.spread * float(at[0]) if fixed is None else fixed,
        elements.spread * math.exp(at[1]),
        at[2:],
        elements.flat.size * (value - math.log(elements.spread)),
        elements.flat.size,
    )


def _climb(
    law: str, terms: Terms, elements: Elements, start: Vector, free: Bool[np.ndarray, " parameter"], upper: Vector
) -> tuple[Vector, float]:
    size, triangle = start.size, np.triu_indices(start.size)

    def evaluate(at: Vector) -> Evaluation:
        sums = [terms((w - elements.centre) / elements.spread, at) for w in _blocks(elements.flat)]
        values = np.sum(sums, axis=0) / elements.flat.size
        hessian = np.zeros((size, size))
        hessian[triangle] = values[1 + size :]
        return float(values[0]), values[1 : 1 + size], hessian + np.triu(hessian, 1).T

    lower = np.concatenate([[-np.inf, math.log(_CLOSEST)], np.zeros(size - 2)])
    at, (value, gradient, hessian) = start, evaluate(start)
    for _ in range(_STEPS):
        moved = np.flatnonzero(free & ~((at <= lower) & (gradient <= 0)))
        # The step is |H|⁻¹ g; |H| instead of -H makes it ascend even where ln L is convex.
        curvature, axes = np.linalg.eigh(-hessian[np.ix_(moved, moved)])
        curvature = np.maximum(np.abs(curvature), _FLATTEST * np.abs(curvature).max())
        step = np.zeros_like(gradient)
        step[moved] = axes @ (axes.T @ gradient[moved] / curvature)
        gain = gradient @ step / 2
        step[0] *= math.exp(at[1])
        trial = np.clip(at + step, lower, upper)
        if gain < _LAST_GAIN and (trial == at + step).all():
            return trial, float(value + gain)
        for _ in range(_STEPS):
            evaluation = evaluate(trial)
            if evaluation[0] > value or gain < _LAST_GAIN:  # a smaller gain is lost in rounding
                break
            step = step / 2
            trial = np.clip(at + step, lower, upper)
        else:
            raise FitError(law, "no step along Newton's direction raises the likelihood")
        at, (value, gradient, hessian) = trial, evaluation
        if at[1] <= lower[1] or (at >= upper).any():
            raise FitError(law, "the likelihood has no maximum: too many elements are equal, or nearly so")
    raise FitError(law, f"no maximum within {_STEPS} steps")
