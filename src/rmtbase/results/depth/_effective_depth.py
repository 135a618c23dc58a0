"""Effective depth: the residual path whose singular values are nearest to a matrix's, and a test of whether it fits."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.linalg import matrix_singular_values
from rmtbase.parameters import require_real_array
from rmtbase.progress import SILENT, Progress
from rmtbase.results.depth._depth_fitter import PARTS, Advance, DepthFitter, FitSettings
from rmtbase.shown import in_one_line

DRAWING = "drawing residual paths"


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
    #: scales, sigmas: scale and σ at which it is attained
    scales: Float[np.ndarray, " depth"] = field(repr=False)
    sigmas: Float[np.ndarray, " depth"] = field(repr=False)
    singular_values: Float[np.ndarray, " n"] = field(repr=False)  #: singular values of the matrix, descending
    shape: tuple[int, ...]  #: shape of the matrix; (n,) if singular values were given
    #: part, distance_name, level, draws: arguments of :func:`effective_depth`
    part: str
    distance_name: str
    level: float
    draws: int
    width: int  #: width of the draws

    @property
    def distance(self) -> float:
        """Smallest distance: a share of the mean singular value (Wasserstein), or of the singular values (KS)."""
        return float(self.distances[self.depths.index(self.depth)])

    @property
    def fits(self) -> bool:
        """True if the nearest depth fits: p_value > level. Otherwise no depth fits."""
        return self.p_value > self.level

    def summary(self) -> str:
        """State the result in words."""
        path = {"path": "residual path", "update": "residual path without its direct term"}[self.part]
        unit = {"wasserstein": "mean singular value", "kolmogorov_smirnov": "singular values"}[self.distance_name]
        away = f"{100 * self.distance:.3g} % of the {unit}"
        interval = f"{100 * (1 - self.level):g} % interval {self.interval[0]} to {self.interval[1]}"
        line = (
            f"A {path} of depth {self.depth} fits ({interval}; σ = {self.sigma:g}; p = {self.p_value:.2g}; "
            f"distance {away})."
        )
        if not self.fits:
            line = (
                f"No depth from {self.depths[0]} to {self.depths[-1]} fits: the nearest {path} has depth {self.depth}, "
                f"at a distance of {away} (p = {self.p_value:.2g}). A matrix of that path would have the {interval}; "
                "one that no path fits has none."
            )
        if len(self.depths) > 1 and self.depth == self.depths[-1]:
            line += f" It is the deepest candidate: one beyond {self.depth} may be nearer."
        if len(set(self.shape)) > 1:
            line += f" The law is of square matrices, and this one is {self.shape[0]} × {self.shape[1]}."
        return line


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
    return depth_of_spectrum(fitter, values, array.shape, progress.bar(DRAWING, fitter.draws_for(values.size)))


def depth_of_spectrum(
    fitter: DepthFitter, values: Float[np.ndarray, " n"], shape: tuple[int, ...], advance: Advance
) -> EffectiveDepth:
    """Find the nearest depth of one spectrum, given descending."""
    fit = fitter.fit(values[None])
    depth, place = int(fit.depth[0]), fitter.depths.index(int(fit.depth[0]))
    sigma = float(fit.sigma[0, place])
    law = PARTS[fitter.part](depth, sigma)
    width = fitter.draw_width(values.size)
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
        shape=shape,
        part=fitter.part,
        distance_name=fitter.distance,
        level=fitter.level,
        draws=fitter.draws,
        width=width,
    )
