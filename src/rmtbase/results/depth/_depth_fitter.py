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
from rmtbase.parameters import (
    require_positive_integer,
    require_positive_number,
    require_probability,
    require_repeats,
    require_seed,
)
from rmtbase.results.depth._path_distance import DISTANCES, PARTS, Law, Nearest, require_law

if TYPE_CHECKING:
    from rmtbase.ensembles import Ensemble

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

    Spectra of one width with the same fitted depth and σ are compared with the same draws, made once from the seed.
    Each of their p-values is valid; they depend on each other through these draws, and are multiples of 1/(draws + 1).
    A spectrum of more than ``width`` values also uses draws of half that width. Objects are not meant to be shared
    between threads: each thread would make the draws, with the same result.
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
        """Candidates for the depth, ascending."""
        return tuple(laws[0].depth for laws in self.candidates)

    def draw_width(self, count: int) -> int:
        """Return the width of the draws that a spectrum of ``count`` values is compared with."""
        return min(count, WIDEST_DRAW if self.width is None else self.width)

    def draws_for(self, count: int) -> int:
        """Return the number of draws for a spectrum of ``count`` values.

        If it has more values than the width of the draws, it also needs as many draws of half that width.
        """
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
        largest = values[:, :1]
        parts = [self._at_depth(values / largest, laws) for laws in self.candidates]
        distance, scale, sigma = (np.stack(part, axis=1) for part in zip(*parts, strict=True))
        best = distance.argmin(axis=1)
        return DepthFit(np.array(self.depths)[best], distance.min(axis=1), Nearest(distance, scale * largest), sigma)

    def _at_depth(
        self, values: Float[np.ndarray, "draw n"], laws: tuple[Law, ...]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (distance, scale, σ) of each draw at the best σ."""
        nearest = [DISTANCES[self.distance](values, law) for law in laws]
        distance, scale = (np.stack(part) for part in zip(*nearest, strict=True))
        best, row = distance.argmin(axis=0), np.arange(len(values))
        return distance[best, row], scale[best, row], np.array([law.sigma for law in laws])[best]


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
        """Return the fitter, the same object for the same settings, so that draws are made once.

        Raises:
            ParameterError: a setting outside its domain.
        """
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
        candidates = _candidates(_sigmas(self.sigma), self.depths, self.part)
        return _cached_fitter(candidates, self.part, self.distance, draws, level, width, require_seed(self.seed))


def _sigmas(sigma: float | Sequence[float] | None) -> tuple[float, ...]:
    if sigma is None:
        return SIGMAS
    if not isinstance(sigma, Iterable) or np.ndim(sigma) == 0:
        return (require_positive_number("sigma", sigma),)
    sigmas = tuple(sorted({require_positive_number("sigma", candidate) for candidate in sigma}))
    if not sigmas:
        raise ParameterError("sigma", sigma, "at least one σ, or None")
    return sigmas


def _candidates(sigmas: tuple[float, ...], depths: Iterable[int] | None, part: str) -> tuple[tuple[Law, ...], ...]:
    """Make the laws of each depth for every σ that has one; a requested depth must have at least one law."""
    candidates = []
    for depth in range(1, MAX_DEPTH + 1) if depths is None else _depths(depths):
        laws, refusal = [], None
        for sigma in sigmas:
            try:
                law = PARTS[part](depth, sigma)
                require_law(law)
                _residual_path(1, law, part)
                laws.append(law)
            except ParameterError as error:
                refusal = error
        if laws:
            candidates.append(tuple(laws))
        elif refusal is not None and (depths is not None or not candidates):
            raise refusal
    return tuple(candidates)


def _depths(depths: Iterable[int]) -> list[int]:
    distinct = sorted(require_positive_integer("depths", depth) for depth in depths)
    if not distinct or len(set(distinct)) < len(distinct):
        raise ParameterError("depths", distinct, "distinct positive integers")
    return distinct


def _residual_path(width: int, law: Law, part: str) -> Ensemble:
    from rmtbase.ensembles import residual_path

    return residual_path(width, law.depth, law.sigma, part)  # type: ignore[arg-type]  # checked before
