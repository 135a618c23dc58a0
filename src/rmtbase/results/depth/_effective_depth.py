"""Effective depth: the residual path whose singular values are nearest to a matrix's, and a test of whether it fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.laws import ResidualPath, ResidualUpdate
from rmtbase.linalg import matrix_singular_values
from rmtbase.parameters import (
    require_positive_integer,
    require_positive_number,
    require_probability,
    require_real_array,
    require_repeats,
    require_seed,
)
from rmtbase.progress import SILENT, Progress
from rmtbase.shown import in_one_line

if TYPE_CHECKING:
    from rmtbase.ensembles import Ensemble

Law = ResidualPath | ResidualUpdate

PARTS: dict[str, type[Law]] = {"path": ResidualPath, "update": ResidualUpdate}
"""``"path"``: P = Π (I + σ G_l/√d), all paths; ``"update"``: P - I, all paths but the direct one."""

_SMALLEST_LOG = -600.0  # singular values below e^-600 of the largest count as zero, so that ratios stay finite
_NODES = 1024  # of a table of a distribution function, whose linear interpolation has an error up to 1e-5
_HALVINGS = 42


class Nearest(NamedTuple):
    """Distance of each spectrum from a law, or from the law of each depth, and the scale that minimizes it."""

    distance: Float[np.ndarray, "draw ..."]
    scale: Float[np.ndarray, "draw ..."]


def wasserstein(values: Float[np.ndarray, "draw n"], law: Law) -> Nearest:
    """Minimize W₁(s, c q) / mean(s), W₁ = Σ|s_i - c q_i|/n, over c in closed form, with q_i quantiles at (i - ½)/n.

    c is the weighted median of s_i/q_i with weights q_i. The result lies between 0 and 1, its value at c = 0.
    """
    quantiles = _quantiles(values.shape[1], law)
    ratio = values / quantiles
    order = np.argsort(ratio, axis=1)
    weight = np.cumsum(quantiles[order], axis=1)
    middle = np.argmax(weight >= 0.5 * weight[:, -1:], axis=1)
    row = np.arange(len(values))
    scale = ratio[row, order[row, middle]]
    distance = np.abs(values - scale[:, None] * quantiles).sum(axis=1) / values.sum(axis=1)
    return Nearest(distance, scale)


def kolmogorov_smirnov(values: Float[np.ndarray, "draw n"], law: Law) -> Nearest:
    """Minimize sup_x |F_n(x) - F(x/c)| over c by bisection, to an accuracy of 1e-5.

    It is the larger of max_i (i/n - F(s_i/c)), which grows with c, and max_i (F(s_i/c) - (i-1)/n), which falls.
    """
    nodes, levels = _distribution(law)
    with np.errstate(divide="ignore"):
        logs = np.log(values[:, ::-1])
    count = logs.shape[1]
    step = np.arange(count + 1) / count

    def sides(log_scale: Float[np.ndarray, " draw"]) -> tuple[np.ndarray, np.ndarray]:
        level = np.interp(logs - log_scale[:, None], nodes, levels)
        return (step[1:] - level).max(axis=1), (level - step[:-1]).max(axis=1)

    # At one end every nonzero value lies above the law, at the other end no value does.
    high = logs[:, -1] - nodes[0]
    low = np.where(np.isfinite(logs), logs, np.inf).min(axis=1) - nodes[-1]
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        above, below = sides(middle)
        low, high = np.where(above < below, middle, low), np.where(above < below, high, middle)
    return Nearest(np.maximum(*sides(high)), np.exp(high))


DISTANCES = {"wasserstein": wasserstein, "kolmogorov_smirnov": kolmogorov_smirnov}


@lru_cache(maxsize=1024)
def _quantiles(count: int, law: Law) -> Float[np.ndarray, " count"]:
    """Return the law's singular values at the levels (i - ½)/count, descending."""
    logs = 0.5 * np.asarray(law.log_eigenvalue.isf((np.arange(count) + 0.5) / count))
    return np.exp(np.maximum(logs, logs[0] + _SMALLEST_LOG))


@lru_cache(maxsize=512)
def _distribution(law: Law) -> tuple[np.ndarray, np.ndarray]:
    """Tabulate (ln s, level) of the law's singular values, ascending, denser towards both edges."""
    angle = 0.5 * math.pi * np.arange(1, _NODES) / _NODES
    nodes = np.append(np.asarray(law.log_eigenvalue.ppf(np.sin(angle) ** 2)), law.log_eigenvalue.support[1])
    return 0.5 * nodes, np.append(np.sin(angle) ** 2, 1.0)


MAX_DEPTH = 32  # of the candidates if none are named; for the update, those of them that have a law
SIGMAS = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0)  # candidates if σ is not given
WIDEST_DRAW = 512  # of the fitted ensemble: the matrix's own size up to this width

Advance = Callable[[int], None]
DRAWING = "drawing residual paths"


class DepthFit(NamedTuple):
    depth: Int[np.ndarray, " draw"]  # depth of the nearest candidate
    distance: Float[np.ndarray, " draw"]  # its distance
    nearest: Nearest  # distance and scale at each depth
    sigma: Float[np.ndarray, "draw depth"]  # σ at which that distance is attained


@dataclass(frozen=True)
class DepthFitter:
    """Fitter of depths to spectra, which keeps the fits of draws of each fitted ensemble."""

    candidates: tuple[tuple[Law, ...], ...]  # laws of each depth, one for each σ
    # part, distance, draws, level, width, seed: see :func:`effective_depth`
    part: str
    distance: str
    draws: int
    level: float
    width: int | None
    seed: int
    _refits: dict[tuple[int, Law], DepthFit] = field(default_factory=dict, repr=False, compare=False)

    @property
    def depths(self) -> tuple[int, ...]:
        return tuple(laws[0].depth for laws in self.candidates)

    def draw_width(self, count: int) -> int:
        return min(count, WIDEST_DRAW if self.width is None else self.width)

    def refit(self, width: int, law: Law, advance: Advance) -> DepthFit:
        """Fit draws of the ensemble whose limit is the law."""
        key = width, law
        if key not in self._refits:
            from rmtbase.montecarlo import draw_spectra

            spectra = []
            for chunk in draw_spectra(_residual_path(width, law, self.part), self.draws, self.seed):
                spectra.append(chunk.singular_values)
                advance(len(chunk.singular_values))
            self._refits[key] = self.fit(np.concatenate(spectra))
        return self._refits[key]

    def refit_distance(self, count: int, width: int, law: Law, advance: Advance) -> Float[np.ndarray, " draw"]:
        """Extrapolate the draws' distances to n = count: n times the distance grows linearly in ln n."""
        distance = self.refit(width, law, advance).distance
        if count == width:
            return distance
        half = width // 2
        narrower = self.refit(half, law, advance).distance
        growth = 1.0 - half * narrower.mean() / (width * distance.mean())
        return distance * (width / count) * (1.0 + growth * math.log(count / width) / math.log(width / half))

    def fit(self, values: Float[np.ndarray, "draw n"]) -> DepthFit:
        """Fit spectra (draw, n), each at its own scale."""
        largest, row, parts = values[:, :1], np.arange(len(values)), []
        for laws in self.candidates:  # at the best σ of each depth
            nearest = [DISTANCES[self.distance](values / largest, law) for law in laws]
            distance, scale = (np.stack(part) for part in zip(*nearest, strict=True))
            best = distance.argmin(axis=0)
            parts.append((distance[best, row], scale[best, row], np.array([law.sigma for law in laws])[best]))
        distance, scale, sigma = (np.stack(part, axis=1) for part in zip(*parts, strict=True))
        best = distance.argmin(axis=1)
        return DepthFit(np.array(self.depths)[best], distance.min(axis=1), Nearest(distance, scale * largest), sigma)


_cached_fitter = lru_cache(maxsize=32)(DepthFitter)


@dataclass(frozen=True)
class FitSettings:
    """Arguments of :func:`effective_depth` other than the matrix."""

    sigma: float | Sequence[float] | None
    depths: Iterable[int] | None
    part: str
    distance: str
    draws: int
    level: float
    width: int | None
    seed: int

    def fitter(self) -> DepthFitter:
        """Return the fitter, the same object for the same settings, so that draws are made once."""
        if self.part not in PARTS:
            raise ParameterError("part", self.part, "'path' or 'update'")
        if self.distance not in DISTANCES:
            raise ParameterError("distance", self.distance, "'wasserstein' or 'kolmogorov_smirnov'")
        level, draws = require_probability("level", self.level), require_repeats("draws", self.draws)
        if level * (draws + 1) < 1.0 - 1e-9:
            least = max(1.0 / level - 1.0, 1.0)  # infinite below the normal doubles
            raise ParameterError("draws", draws, f"at least {least:.10g}: fewer cannot give a p-value of {level:g}")
        width = None if self.width is None else require_positive_integer("width", self.width)
        if width is not None and width < 4:
            raise ParameterError("width", width, "at least 4, or None")
        if self.sigma is None or not isinstance(self.sigma, Iterable) or np.ndim(self.sigma) == 0:
            sigmas = SIGMAS if self.sigma is None else (require_positive_number("sigma", self.sigma),)
        else:
            sigmas = tuple(sorted({require_positive_number("sigma", sigma) for sigma in self.sigma}))
        if not sigmas:
            raise ParameterError("sigma", self.sigma, "at least one σ, or None")
        depths = None
        if self.depths is not None:
            depths = sorted(require_positive_integer("depths", depth) for depth in self.depths)
            if not depths or len(set(depths)) < len(depths):
                raise ParameterError("depths", depths, "distinct positive integers")
        candidates = _candidates(sigmas, depths, self.part)
        return _cached_fitter(candidates, self.part, self.distance, draws, level, width, require_seed(self.seed))


def _candidates(sigmas: tuple[float, ...], depths: list[int] | None, part: str) -> tuple[tuple[Law, ...], ...]:
    """Make the laws of each depth for every σ that has one; a requested depth must have at least one law."""
    candidates = []
    for depth in range(1, MAX_DEPTH + 1) if depths is None else depths:
        laws, refusal = [], None
        for sigma in sigmas:
            try:
                law = PARTS[part](depth, sigma)
                if law.log_eigenvalue.support[1] > -_SMALLEST_LOG:  # the law spans more than doubles can hold
                    expected = f"a depth at which the largest eigenvalue is below e^600 (sigma {sigma})"
                    raise ParameterError("depths", depth, expected)
                _residual_path(1, law, part)
                laws.append(law)
            except ParameterError as error:
                refusal = error
        if laws:
            candidates.append(tuple(laws))
        elif refusal is not None and (depths is not None or not candidates):
            raise refusal
    return tuple(candidates)


def _residual_path(width: int, law: Law, part: str) -> Ensemble:
    from rmtbase.ensembles import residual_path

    return residual_path(width, law.depth, law.sigma, part)  # type: ignore[arg-type]  # checked before


@in_one_line
@dataclass(frozen=True, eq=False)
class EffectiveDepth:
    """Residual path nearest to a matrix."""

    depth: int  #: depth of the path, the candidate at the smallest distance (the shallowest of equally near ones)
    #: bootstrap interval (low, high) of the depth at confidence 1 - level, by reflection: 2 depth minus the quantiles
    #: of the depths found in draws of the fitted ensemble. It assumes that the depth fits. If no depth fits, it is the
    #: interval of a matrix of the nearest path, and no confidence interval for this matrix.
    interval: tuple[int, int]
    sigma: float  #: σ of the blocks: the given value, or the nearest candidate
    scale: float  #: c such that the matrix is like c P, or c (P - I); 0 if no scale gives a smaller distance than c = 0
    #: share of draws of the fitted ensemble, each refitted, that lie at least as far from their nearest law as the
    #: matrix does from its own, (b + 1)/(n + 1): a multiple of 1/100 with 99 draws. All matrices of one size and one
    #: fitted depth and σ share the draws.
    p_value: float
    depths: tuple[int, ...]  #: the candidates
    distances: Float[np.ndarray, " depth"] = field(repr=False)  #: smallest distance at each candidate, over scale and σ
    scales: Float[np.ndarray, " depth"] = field(repr=False)  #: scale at which it is attained
    sigmas: Float[np.ndarray, " depth"] = field(repr=False)  #: σ at which it is attained
    singular_values: Float[np.ndarray, " n"] = field(repr=False)  #: singular values of the matrix, descending
    level: float  #: level of the test
    width: int  #: width of the draws

    @property
    def distance(self) -> float:
        """Smallest distance: a share of the mean singular value (Wasserstein), or of the singular values (KS)."""
        return float(self.distances[self.depths.index(self.depth)])

    @property
    def fits(self) -> bool:
        """True if the nearest depth fits: p_value > level. Otherwise no depth fits."""
        return self.p_value > self.level


def effective_depth(
    matrix_or_singular_values: ArrayLike,
    sigma: float | Sequence[float] | None = 1.0,
    depths: Iterable[int] | None = None,
    part: str = "path",
    distance: str = "wasserstein",
    draws: int = 99,
    level: float = 0.05,
    width: int | None = None,
    seed: int = 0,
    progress: Progress = SILENT,
) -> EffectiveDepth:
    """Find the depth L of the residual path P = Π_{l≤L} (I + σ G_l/√d) nearest to a matrix, whatever its scale.

    The distance between the matrix's singular values and the limiting law of those of P (or of P - I) is minimized
    over the scale in closed form (``"wasserstein"``: W₁ over the mean singular value) or by bisection
    (``"kolmogorov_smirnov"``: largest difference of the distribution functions). Neither changes when the matrix is
    rescaled or transposed.

    Singular values of one matrix repel each other: they fluctuate far less than independent draws, and no resampling of
    them is valid. So the interval and the p-value come from draws of the fitted ensemble at the matrix's own size,
    each fitted in the same way: the freedom of the fit, the finite-size error of the law and the discreteness of
    the depth affect the draws as they affect the matrix. A matrix unlike any residual path gives a small p-value: no
    depth fits.

    A matrix of n > 512 singular values is compared with draws of width 512, if ``width`` is None. The number of
    singular values below a point fluctuates only by O(√log n), so that n times a distance hardly depends on n. Its
    remaining growth (4 to 12 % per doubling) is measured between width 256 and 512 and extrapolated linearly in ln n.
    Such a p-value is approximate, and such an interval is too wide. Use ``width=n`` if that matters.

    The law holds for square matrices. A rectangular matrix is compared with the square law at min(rows, columns), as
    in the source: the effect of its shape on the spectrum (a gap above zero) counts against the fit.

    Args:
        matrix_or_singular_values: a matrix, or a vector of its singular values without structural zeros.
        sigma: σ of the blocks. 1 is the source's critical initialization, with entries of variance 1/d, under which the
            norm of every product of blocks keeps its expectation. With a sequence, or None for :data:`SIGMAS`, the
            best of them is found; depth and σ are then hard to tell apart, as small-σ laws depend only on L σ².
        depths: candidates; 1 to 32 if None, for the update as far as its law goes (17 at σ = 1).
        part: ``"path"`` for P itself, or ``"update"`` for P - I, which the blocks add. The update of one block is
            Gaussian.
        distance: ``"wasserstein"`` or ``"kolmogorov_smirnov"``.
        draws: number of draws of the fitted ensemble; at least 1/level - 1.
        level: significance level of the test; the interval has confidence 1 − level.
        width: width of the draws, at least 4; if None, the matrix's own, up to 512.
        seed: seed of the draws.
        progress: shows the draws.

    Raises:
        ParameterError: an argument outside its domain; a matrix that is not finite, is zero, or has one singular value.

    Source: Conjecture's follow-up post on language model internals through training asks the question, and compares
        histograms by eye. Parametric bootstrap: A. C. Davison and D. V. Hinkley, Bootstrap Methods and their
        Application (1997), chapters 2, 4 and 5.
    """
    name = "matrix_or_singular_values"
    array = require_real_array(name, matrix_or_singular_values)
    if array.ndim not in (1, 2) or min(array.shape, default=0) < 2:
        raise ParameterError(name, array.shape, "a matrix, or a vector of singular values, at least 2 of them")
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise ParameterError(name, "NaN or infinity", "finite numbers")
    if not array.any():
        raise ParameterError(name, "zeros", "one with a shape to compare: some number in it is not zero")
    if array.ndim == 1 and (array < 0.0).any():
        raise ParameterError(name, "a negative number", "singular values, or a matrix (two dimensions)")
    values = matrix_singular_values(array) if array.ndim == 2 else np.sort(array)[::-1]
    fitter = FitSettings(sigma, depths, part, distance, draws, level, width, seed).fitter()
    # A spectrum wider than its draws also needs draws of half their width.
    draws_made = fitter.draws * (1 if values.size == fitter.draw_width(values.size) else 2)
    return depth_of_spectrum(fitter, values, progress.bar(DRAWING, draws_made))


def depth_of_spectrum(fitter: DepthFitter, values: Float[np.ndarray, " n"], advance: Advance) -> EffectiveDepth:
    """Find the nearest depth of one spectrum, given descending."""
    fit, width = fitter.fit(values[None]), fitter.draw_width(values.size)
    depth, place = int(fit.depth[0]), fitter.depths.index(int(fit.depth[0]))
    sigma = float(fit.sigma[0, place])
    law = PARTS[fitter.part](depth, sigma)
    refit = fitter.refit(width, law, advance)
    farther = int((fitter.refit_distance(values.size, width, law, advance) >= fit.distance[0]).sum())
    low, high = np.quantile(refit.depth, (0.5 * fitter.level, 1.0 - 0.5 * fitter.level), method="inverted_cdf")
    return EffectiveDepth(
        depth=depth,
        interval=(max(1, 2 * depth - int(high)), max(1, 2 * depth - int(low))),
        sigma=sigma,
        scale=float(fit.nearest.scale[0, place]),
        p_value=(farther + 1) / (fitter.draws + 1),
        depths=fitter.depths,
        distances=fit.nearest.distance[0],
        scales=fit.nearest.scale[0],
        sigmas=fit.sigma[0],
        singular_values=values,
        level=fitter.level,
        width=width,
    )
