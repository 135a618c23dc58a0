"""Effective depth: the residual path whose singular values are most like a matrix's, and whether it is like enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rmtbase.ensembles import residual_path
from rmtbase.errors import ParameterError
from rmtbase.linalg import matrix_singular_values
from rmtbase.montecarlo import draw_spectra, require_seed
from rmtbase.parameters import require_positive_integer, require_positive_number
from rmtbase.scoring._depth_distance import DISTANCES, PARTS, Nearest, check_law

MAX_DEPTH = 32
"""The candidates are 1, …, 32 where none are named, or as many of them as the law of the update has."""

SIGMAS = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0)
"""The candidates for σ where it is not given."""

WIDEST_DRAW = 512
"""Draws of the fitted ensemble are of the matrix's own size up to here, and of this size for larger matrices."""

Array = NDArray[np.float64]
Progress = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class EffectiveDepth:
    """The residual path nearest to a matrix.

    Attributes:
        depth: its depth, the candidate at the smallest distance (of equal ones the shallowest).
        interval: bootstrap interval (low, high) of the depth at confidence 1 - level, by reflection: 2 depth minus the
            quantiles of the depths found in draws of the fitted ensemble. It presumes that the depth fits.
        sigma: σ of the blocks: as given, or the candidate that came nearest.
        scale: c such that the matrix is like c P, or c (P - I); 0 where no scale brings it nearer than none.
        p_value: share of draws of the fitted ensemble, each refitted, that lie as far from their nearest law as the
            matrix does from its own, (b + 1)/(n + 1): a multiple of 1/100 with 99 draws, which all matrices of one
            size and one fitted depth and σ share.
        depths: the candidates.
        distances: smallest distance at each candidate, over scale and σ, (depth,).
        scales, sigmas: where it is attained, (depth,).
        singular_values: of the matrix, descending.
        shape: of the matrix; (n,) where singular values were given.
        part, distance_name, level, draws: as asked for.
        width: of the draws.
    """

    depth: int
    interval: tuple[int, int]
    sigma: float
    scale: float
    p_value: float
    depths: tuple[int, ...]
    distances: Array = field(repr=False)
    scales: Array = field(repr=False)
    sigmas: Array = field(repr=False)
    singular_values: Array = field(repr=False)
    shape: tuple[int, ...]
    part: str
    distance_name: str
    level: float
    draws: int
    width: int

    @property
    def distance(self) -> float:
        """The smallest distance: a share of the mean singular value (Wasserstein), or of the singular values (KS)."""
        return float(self.distances[self.depths.index(self.depth)])

    @property
    def fits(self) -> bool:
        """Whether the nearest depth is near enough: p_value > level. Else no depth fits."""
        return self.p_value > self.level

    def summary(self) -> str:
        """The finding in words."""
        what = {"path": "residual path", "update": "residual path without its direct term"}[self.part]
        away = f"{100 * self.distance:.3g} % of the " + (
            "mean singular value" if self.distance_name == "wasserstein" else "singular values"
        )
        if self.fits:
            low, high = self.interval
            found = (
                f"A {what} of depth {self.depth} fits ({100 * (1 - self.level):g} % interval {low} to {high}; "
                f"σ = {self.sigma:g}; p = {self.p_value:.2g}; distance {away})."
            )
        else:
            found = (
                f"No depth from {self.depths[0]} to {self.depths[-1]} fits: the nearest {what} has depth {self.depth}, "
                f"at a distance of {away} (p = {self.p_value:.2g})."
            )
        if len(self.depths) > 1 and self.depth == self.depths[-1]:
            found += f" It is the deepest candidate: one beyond {self.depth} may be nearer."
        if len(set(self.shape)) > 1:
            found += f" The law is of square matrices, and this one is {self.shape[0]} × {self.shape[1]}."
        return found


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
    progress: Progress | None = None,
) -> EffectiveDepth:
    """Find the depth L of the residual path P = Π_{l≤L} (I + σ G_l/√d) nearest to a matrix, whatever its scale.

    The distance is between the matrix's singular values and the limiting law of those of P (or of P - I), minimised
    over the scale in closed form (``"wasserstein"``: W₁ over the mean singular value) or by bisection
    (``"kolmogorov_smirnov"``: largest difference of the distribution functions). Neither changes when the matrix is
    rescaled or transposed.

    Singular values of one matrix repel each other: they fluctuate far less than independent draws, and no resampling of
    them is valid. So the interval and the p-value come from draws of the fitted ensemble at the matrix's own size,
    each fitted anew in the same way: what the fit's freedom, the law's finite-size error and the discreteness of
    the depth do to the matrix, they do to the draws. A matrix of no residual path gives a small p-value: no depth fits.

    A matrix of n > 512 singular values is compared with draws of width 512, if ``width`` is None. The number of
    singular values below a point fluctuates by O(√log n) alone, so that n times a distance hardly depends on n; how
    far it still grows (4 to 12 % per doubling) is measured between width 256 and 512 and continued, linearly in ln n.
    Such a p-value is approximate, such an interval too wide. Ask for ``width=n`` where that matters.

    The law is that of square matrices. A rectangular matrix is compared with the square law at min(rows, columns), as
    in the source: what its shape alone does to the spectrum (a gap above zero) counts against the fit.

    Args:
        matrix_or_singular_values: a matrix, or a vector of its singular values, structural zeros left out.
        sigma: σ of the blocks. 1 is the source's critical initialisation, entries of variance 1/d, under which the
            norm of every product of blocks keeps its expectation. A sequence, or None for :data:`SIGMAS`: the best of
            these; depth and σ are then hard to tell apart, as small-σ laws depend on L σ² alone.
        depths: candidates; 1 to 32 if None, for the update as far as its law goes (17 at σ = 1).
        part: ``"path"``, P itself, or ``"update"``, P - I: what the blocks add. The update of one block is Gaussian.
        distance: ``"wasserstein"`` or ``"kolmogorov_smirnov"``.
        draws: of the fitted ensemble; at least 1/level - 1.
        level: of the test, and one minus the interval's confidence.
        width: of the draws, at least 4; the matrix's own, at most 512, if None.
        seed: of the draws.
        progress: called with the number of draws finished since the last call.

    Raises:
        ParameterError: an argument outside its domain; a matrix that is not finite, is zero, or has one singular value.

    Source: the question is that of Conjecture's follow-up post on language model internals through training, which
        compares histograms by eye. Parametric bootstrap: A. C. Davison and D. V. Hinkley, Bootstrap Methods and their
        Application (1997), chapters 2, 4 and 5.
    """
    values, shape = _singular_values(matrix_or_singular_values)
    fitter = depth_fitter(sigma, depths, part, distance, draws, level, width, seed)
    return fitter.effective_depth(values, shape, progress)


def depth_fitter(
    sigma: float | Sequence[float] | None,
    depths: Iterable[int] | None,
    part: str,
    distance: str,
    draws: int,
    level: float,
    width: int | None,
    seed: int,
) -> DepthFitter:
    """The fitter with these settings, checked; the same one for the same settings, so that draws are made once."""
    if part not in PARTS:
        raise ParameterError("part", part, "'path' or 'update'")
    if distance not in DISTANCES:
        raise ParameterError("distance", distance, "'wasserstein' or 'kolmogorov_smirnov'")
    level = require_positive_number("level", level)
    if level >= 1.0:
        raise ParameterError("level", level, "a number between 0 and 1")
    draws = require_positive_integer("draws", draws)
    least = math.ceil(1.0 / level - 1e-9) - 1
    if draws < least:
        raise ParameterError("draws", draws, f"at least {least}: fewer cannot give a p-value of {level:g}")
    return _fitter(
        _candidates(_sigmas(sigma), depths, part),
        part,
        distance,
        draws,
        level,
        _width(width),
        require_seed(seed),
    )


class _Fit(NamedTuple):
    """The nearest candidates of each spectrum.

    Attributes:
        depth, distance: (draw,).
        nearest: distance and scale at each depth, (draw, depth) each.
        sigma: where the distance is attained, (draw, depth).
    """

    depth: NDArray[np.int64]
    distance: Array
    nearest: Nearest
    sigma: Array


@dataclass(frozen=True)
class DepthFitter:
    """Fits depths to spectra, and keeps what draws of each fitted ensemble gave.

    Coupling: spectra of one width that are fitted by one depth and σ are compared with the same draws, made once from
    the seed. Their p-values are each valid, dependent through these draws, and multiples of 1/(draws + 1); so are those
    of one model, or of two. A spectrum of more than ``width`` values also takes the draws of half that width. What the
    refits gave (distances and depths, not the draws) is kept as long as the object, and :func:`depth_fitter` keeps the
    objects of the last 32 settings for as long as the process lives. Not meant to be shared between threads: both would
    make the draws, with the same result.

    Attributes:
        candidates: each depth with its σ.
        part, distance, draws, level, width, seed: see :func:`effective_depth`.
    """

    candidates: tuple[tuple[int, tuple[float, ...]], ...]
    part: str
    distance: str
    draws: int
    level: float
    width: int | None
    seed: int
    _refits: dict[tuple[int, int, float], _Fit] = field(default_factory=dict, repr=False, compare=False)

    @property
    def depths(self) -> tuple[int, ...]:
        """The candidates for the depth, ascending."""
        return tuple(depth for depth, _ in self.candidates)

    def effective_depth(self, values: Array, shape: tuple[int, ...], progress: Progress | None) -> EffectiveDepth:
        """The nearest depth of one spectrum, descending."""
        fit = self.fit(values[None])
        depth, place = int(fit.depth[0]), self.depths.index(int(fit.depth[0]))
        sigma = float(fit.sigma[0, place])
        width = min(values.size, WIDEST_DRAW if self.width is None else self.width)
        refit = self.refit(width, depth, sigma, progress)
        farther = int((self.brought_to(values.size, refit, width, depth, sigma, progress) >= fit.distance[0]).sum())
        low, high = np.quantile(refit.depth, (0.5 * self.level, 1.0 - 0.5 * self.level), method="inverted_cdf")
        return EffectiveDepth(
            depth=depth,
            interval=(max(1, 2 * depth - int(high)), max(1, 2 * depth - int(low))),
            sigma=sigma,
            scale=float(fit.nearest.scale[0, place]),
            p_value=(farther + 1) / (self.draws + 1),
            depths=self.depths,
            distances=fit.nearest.distance[0],
            scales=fit.nearest.scale[0],
            sigmas=fit.sigma[0],
            singular_values=values,
            shape=shape,
            part=self.part,
            distance_name=self.distance,
            level=self.level,
            draws=self.draws,
            width=width,
        )

    def refit(self, width: int, depth: int, sigma: float, progress: Progress | None) -> _Fit:
        """Fits of draws of one ensemble."""
        key = width, depth, sigma
        if key not in self._refits:
            ensemble = residual_path(width, depth, sigma, self.part)  # type: ignore[arg-type]  # checked before
            chunks = draw_spectra(ensemble, self.draws, self.seed, progress=progress)
            self._refits[key] = self.fit(np.concatenate([chunk.singular_values for chunk in chunks]))
        return self._refits[key]

    def brought_to(
        self, count: int, refit: _Fit, width: int, depth: int, sigma: float, progress: Progress | None
    ) -> Array:
        """The draws' distances at n = count: as 1/n, but for n distance growing linearly in ln n."""
        if count == width:
            return refit.distance
        half = width // 2
        narrower = self.refit(half, depth, sigma, progress)
        growth = 1.0 - half * narrower.distance.mean() / (width * refit.distance.mean())
        return refit.distance * (width / count) * (1.0 + growth * math.log(count / width) / math.log(width / half))

    def fit(self, values: Array) -> _Fit:
        """Fit spectra (draw, n), each at its own scale."""
        largest = values[:, :1]
        parts = [self._at_depth(values / largest, depth, sigmas) for depth, sigmas in self.candidates]
        distance, scale, sigma = (np.stack(part, axis=1) for part in zip(*parts, strict=True))
        best = distance.argmin(axis=1)
        return _Fit(np.array(self.depths)[best], distance.min(axis=1), Nearest(distance, scale * largest), sigma)

    def _at_depth(self, values: Array, depth: int, sigmas: tuple[float, ...]) -> tuple[Array, Array, Array]:
        """(distance, scale, σ) at the best σ, (draw,) each."""
        measure = DISTANCES[self.distance]
        distance, scale = (
            np.stack(part) for part in zip(*(measure(values, depth, one, self.part) for one in sigmas), strict=True)
        )
        best, row = distance.argmin(axis=0), np.arange(len(values))
        return distance[best, row], scale[best, row], np.array(sigmas)[best]


_fitter = lru_cache(maxsize=32)(DepthFitter)


def _width(width: int | None) -> int | None:
    if width is None:
        return None
    number = require_positive_integer("width", width)
    if number < 4:
        raise ParameterError("width", width, "at least 4, or None")
    return number


def _sigmas(sigma: float | Sequence[float] | None) -> tuple[float, ...]:
    if sigma is None:
        return SIGMAS
    if isinstance(sigma, str) or not isinstance(sigma, Iterable):
        return (require_positive_number("sigma", sigma),)
    several = tuple(sorted({require_positive_number("sigma", one) for one in sigma}))
    if not several:
        raise ParameterError("sigma", sigma, "at least one σ, or None")
    return several


def _candidates(
    sigmas: tuple[float, ...], depths: Iterable[int] | None, part: str
) -> tuple[tuple[int, tuple[float, ...]], ...]:
    """Each depth with those σ that its law is offered for; a depth that was asked for must have one."""
    found = []
    for depth in range(1, MAX_DEPTH + 1) if depths is None else _depths(depths):
        offered, refusal = [], None
        for sigma in sigmas:
            try:
                check_law(depth, sigma, part)
                residual_path(1, depth, sigma, part)  # type: ignore[arg-type]  # checked before
                offered.append(sigma)
            except ParameterError as error:
                refusal = error
        if offered:
            found.append((depth, tuple(offered)))
        elif refusal is not None and (depths is not None or not found):
            raise refusal
    return tuple(found)


def _depths(depths: Iterable[int]) -> list[int]:
    expected = "distinct positive integers"
    if isinstance(depths, str) or not isinstance(depths, Iterable):
        raise ParameterError("depths", depths, expected)
    found = sorted(require_positive_integer("depths", depth) for depth in depths)
    if not found or len(set(found)) < len(found):
        raise ParameterError("depths", found, expected)
    return found


def _singular_values(given: ArrayLike) -> tuple[Array, tuple[int, ...]]:
    """Singular values, descending, and the shape of what was given."""
    name = "matrix_or_singular_values"
    try:
        array = np.asarray(given)
    except (ValueError, TypeError, RuntimeError) as error:  # a ragged list, a tensor that is no NumPy array
        raise ParameterError(name, type(given).__name__, f"a NumPy array of real numbers ({error})") from error
    if array.ndim not in (1, 2) or min(array.shape, default=0) < 2:
        raise ParameterError(name, array.shape, "a matrix, or a vector of singular values, at least 2 of them")
    if array.dtype.kind in "bcOSUmMV":
        raise ParameterError(name, array.dtype, "an array of real floating-point numbers")
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise ParameterError(name, "NaN or infinity", "finite numbers")
    if not array.any():
        raise ParameterError(name, "zeros", "one with a shape to compare: some number in it is not zero")
    if array.ndim == 2:
        return matrix_singular_values(array), array.shape
    if (array < 0.0).any():
        raise ParameterError(name, "a negative number", "singular values, or a matrix (two dimensions)")
    return np.sort(array)[::-1], array.shape
