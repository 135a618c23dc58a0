"""Fit of depths to spectra: the nearest law of a residual path, and the same fit of draws of that path."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from rmtbase.errors import ParameterError
from rmtbase.laws import ResidualPath, ResidualUpdate
from rmtbase.parameters import (
    require_positive_integer,
    require_positive_number,
    require_probability,
    require_repeats,
    require_seed,
)

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
    """Minimize W₁(s, c q) / mean(s) over c in closed form: c is the weighted median of s_i/q_i with weights q_i.

    W₁ = Σ|s_i - c q_i|/n is the distance between the n singular values, descending, and the law's quantiles q_i at
    (i - ½)/n. The result lies between 0 and 1, its value at c = 0.
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

    The supremum is the larger of max_i (i/n - F(s_i/c)), which grows with c, and max_i (F(s_i/c) - (i-1)/n), which
    falls: the minimum lies where they cross. The singular values are descending.
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


MAX_DEPTH = 32
"""The candidates are 1, …, 32 if none are named; for the update, as many of them as have a law."""

SIGMAS = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0)
"""Candidates for σ if it is not given."""

WIDEST_DRAW = 512
"""Draws of the fitted ensemble have the matrix's own size up to this width, and this width for larger matrices."""

Advance = Callable[[int], None]


class DepthFit(NamedTuple):
    """Nearest candidates of each spectrum."""

    # depth, distance: depth and distance of the nearest candidate
    depth: Int[np.ndarray, " draw"]
    distance: Float[np.ndarray, " draw"]
    nearest: Nearest  # distance and scale at each depth
    sigma: Float[np.ndarray, "draw depth"]  # σ at which that distance is attained


@dataclass(frozen=True)
class DepthFitter:
    """Fitter of depths to spectra, which keeps the fits of draws of each fitted ensemble.

    Spectra of one width with the same fitted depth and σ are compared with the same draws: each of their p-values is
    valid, but they depend on each other.
    """

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

    def draws_for(self, count: int) -> int:
        """Return the number of draws for a spectrum; one wider than its draws also needs draws of half their width."""
        return self.draws * (1 if count == self.draw_width(count) else 2)

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
