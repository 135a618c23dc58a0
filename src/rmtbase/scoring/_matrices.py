"""Scoring whole weight matrices: their elements always, their spectrum where asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache

import numpy as np
import xarray as xr
from jaxtyping import Float, Shaped

from rmtbase.laws import gaussian_sample_statistic, marchenko_pastur
from rmtbase.linalg import appended_rows, matrix_singular_values
from rmtbase.models import MatrixName, Place
from rmtbase.nulls import EDGE_LEVEL, SMALLEST_P_VALUE
from rmtbase.scoring._find_null import DRAWS_PER_TEST
from rmtbase.scoring._heads import layer_coordinates
from rmtbase.statistics import (
    ELEMENT_STATISTICS,
    CentralSums,
    ExtremeMoments,
    benjamini_hochberg,
    drawn_moments,
    element_sums,
    get_statistic,
    inverse_moment_order,
    moment_order,
    monte_carlo_p_value,
    normal_score,
    spectral_statistics,
)
from rmtbase.tables import SCORES_SCHEMA, describe, experts_schema, matrices_present

MATRIX_MODES = ("none", "elements", "spectra")

MATRIX_SPECTRAL_STATISTICS = (
    "largest_eigenvalue",
    "smallest_eigenvalue",
    "trace_of_square",
    "normalized_participation_ratio",
    "condition_number",
    "stable_rank",
    "log_determinant",
)
"""Statistics of a whole matrix's spectrum, at σ̂ = 1 and on λ / max(m, n); all from the extremes and the traces, so that
the null costs O(min(m, n)) a draw."""

_FACTS = ("sigma", "n_rows", "n_columns")
_SPECTRAL_FACTS = ("outliers_above", "outliers_below", "marchenko_pastur_distance")
_FIELDS = ("observed", "null_mean", "null_std", "z_score", "p_value")
_NULL_DRAWS = 5_000


class MatrixScorer:
    """Scores matrices one at a time, then gives the dataset ``/matrices``, or of experts ``/experts``.

    The null is i.i.d. Gaussian elements with the matrix's own standard deviation. Element-wise statistics have
    analytic nulls; the spectrum's is simulated once per shape from its exact bidiagonal form.
    """

    def __init__(self, names: Sequence[MatrixName], spectra: bool, seed: int) -> None:
        self.names, self.spectra, self.seed = names, spectra, seed
        self.draws = _null_draws(len(names))
        self.statistics = ELEMENT_STATISTICS + (MATRIX_SPECTRAL_STATISTICS if spectra else ())
        self.constant: list[str] = []
        self._facts = _FACTS + (_SPECTRAL_FACTS if spectra else ())
        experts = sorted({name.expert for name in names if name.expert is not None})
        self._axes = {
            "layer": _in_order([name.place for name in names]),
            **({"expert": experts} if experts else {}),
            "component": list(dict.fromkeys(name.component for name in names)),
        }
        shape = tuple(map(len, self._axes.values()))
        self._score_values = np.full((*shape, len(self.statistics), len(_FIELDS)), np.nan)
        self._fact_values = np.full((*shape, len(self._facts)), np.nan)

    def add(
        self,
        name: MatrixName,
        blocks: Iterable[Shaped[np.ndarray, "row column"]],
        shape: tuple[int, int],
        map_spans: Callable[..., Iterable[CentralSums]] = map,
    ) -> None:
        """Score one matrix, given in blocks of rows, or of the rows of its transpose. A constant one has no shape: NaN.

        One block, some four times as much as its width squared, and of the spectrum's solver as much again are held.

        Args:
            name: one of the names.
            blocks: all of its elements, in order.
            shape: (outputs, inputs).
            map_spans: as that of ``element_moments``.
        """
        sums: CentralSums | None = None
        triangle: Float[np.ndarray, "row column"] | None = None
        for block in blocks:
            own = element_sums(block, map_spans)
            sums = own if sums is None else sums.merged(own)
            if self.spectra:
                triangle = appended_rows(triangle, block)
        assert sums is not None
        moments = sums.moments()
        if moments.std == 0:
            self.constant.append(f"{name}: constant, so the matrix has no shape and is not scored")
        observed = {
            "mean": moments.mean / moments.std if moments.std > 0 else np.nan,
            "skewness": moments.skewness,
            "excess_kurtosis": moments.excess_kurtosis,
            "largest_magnitude": moments.largest_magnitude,
        }
        rows = [self._element(one, observed[one], moments.count) for one in ELEMENT_STATISTICS]
        facts: tuple[float, ...] = (moments.std, *shape)
        if triangle is not None:
            spectrum, outliers = self._spectrum(matrix_singular_values(triangle), shape)
            rows += spectrum
            facts += outliers
        of_name = {"layer": name.place, "expert": name.expert, "component": name.component}
        place = tuple(held.index(of_name[axis]) for axis, held in self._axes.items())
        self._score_values[place], self._fact_values[place] = rows, facts

    @staticmethod
    def _element(name: str, observed: float, count: int) -> tuple[float, ...]:
        law = gaussian_sample_statistic(name, count)
        mean, std = law.mean(), law.std()
        p_value = float(np.maximum(law.p_value(observed), SMALLEST_P_VALUE))
        return observed, mean, std, (observed - mean) / std, p_value

    def _spectrum(
        self, values: Float[np.ndarray, " rank"], shape: tuple[int, int]
    ) -> tuple[list[tuple[float, ...]], tuple[float, ...]]:
        rank, long = min(shape), max(shape)
        if values[0] == 0:
            return [(np.nan,) * len(_FIELDS)] * len(MATRIX_SPECTRAL_STATISTICS), (0.0, 0.0, np.nan)
        # At σ̂ = 1, where Σλ = m n, and per long dimension, so that the bulk lies between (1 ± √(r/N))².
        standard = values / np.sqrt((values**2).sum() / rank)
        observed = spectral_statistics(standard, MATRIX_SPECTRAL_STATISTICS)
        null = matrix_null(long, rank, self.draws, self.seed)
        extremes, rows = ExtremeMoments(smallest=inverse_moment_order(shape)), []
        for name, value in zip(MATRIX_SPECTRAL_STATISTICS, observed, strict=True):
            sample, order = null[name], moment_order(get_statistic(name), extremes, rank)
            mean, std = drawn_moments(sample.mean(), sample.std(ddof=1), order)
            p_value = monte_carlo_p_value(value, sample)
            z_score = normal_score(p_value, value > np.median(sample)) if np.isnan(std) else (value - mean) / std
            rows.append(tuple(map(float, (value, mean, std, z_score, p_value))))
        eigenvalues = standard**2
        upper = np.quantile(null["largest_eigenvalue"], 1.0 - EDGE_LEVEL)
        lower = np.quantile(null["smallest_eigenvalue"], EDGE_LEVEL)
        law = marchenko_pastur(rank, long, sigma=long**-0.5, normalization="none")
        level = law.cdf(eigenvalues[::-1])
        step = np.arange(rank) / rank
        distance = np.maximum(np.abs(level - step), np.abs(level - step - 1.0 / rank)).max()
        return rows, (float((eigenvalues > upper).sum()), float((eigenvalues < lower).sum()), float(distance))

    def dataset(self) -> xr.Dataset:
        """The scores of all the matrices added, with q-values over all of them, each statistic by itself.

        NaN where a layer lacks a component, or an expert.
        """
        dims, scores = (*self._axes, "statistic"), self._score_values
        variables: dict[str, tuple] = {name: (dims, scores[..., k]) for k, name in enumerate(_FIELDS)}
        p_value = np.moveaxis(scores[..., _FIELDS.index("p_value")], -1, 0)
        variables["q_value"] = dims, np.stack([benjamini_hochberg(one) for one in p_value], axis=-1)
        variables |= {name: (dims[:-1], self._fact_values[..., k]) for k, name in enumerate(self._facts)}
        names = {axis: self._axes[axis] for axis in dims[1:-1]} | {"statistic": list(self.statistics)}
        dataset = xr.Dataset(variables, coords=layer_coordinates(self._axes["layer"]) | names)
        of_matrices = SCORES_SCHEMA["matrices"] | (SCORES_SCHEMA["spectra"] if self.spectra else {})
        return describe(dataset, experts_schema(self.spectra) if "expert" in self._axes else of_matrices)


def _in_order(places: Iterable[Place]) -> list[Place]:
    """Each once: what lies outside the layers first, then as they come."""
    return sorted(dict.fromkeys(places), key=lambda place: place.layer >= 0)


@cache
def matrix_null(long: int, rank: int, draws: int, seed: int) -> dict[str, Float[np.ndarray, " draw"]]:
    """The null of each spectral statistic at σ̂ = 1 on λ / max(m, n), every draw at its own σ̂."""
    from rmtbase.montecarlo import simulate_gaussian_matrix

    sample = simulate_gaussian_matrix(long, rank, draws, seed)
    unit = sample.trace / rank  # brings every draw to Σλ = rank
    largest, smallest = sample.largest_eigenvalue / unit, sample.smallest_eigenvalue / unit
    square = sample.trace_of_square / unit**2
    return {
        "largest_eigenvalue": largest,
        "smallest_eigenvalue": smallest,
        "trace_of_square": square,
        "normalized_participation_ratio": rank / square,
        "condition_number": largest / smallest,
        "stable_rank": rank / largest,
        "log_determinant": sample.log_determinant - rank * np.log(unit),
    }


def matrix_p_value_floors(matrices: xr.Dataset) -> dict[str, float]:
    """The smallest p-value of each statistic of ``/matrices`` or ``/experts``: of its law, or of its null's draws."""
    draws = _null_draws(int(matrices_present(matrices).sum()))
    floors: dict[str, float] = dict.fromkeys(MATRIX_SPECTRAL_STATISTICS, 2 / (draws + 1))
    return floors | dict.fromkeys(ELEMENT_STATISTICS, SMALLEST_P_VALUE)


def _null_draws(n_matrices: int) -> int:
    """How many draws the null of the spectra of so many matrices has."""
    return max(_NULL_DRAWS, DRAWS_PER_TEST * n_matrices)
