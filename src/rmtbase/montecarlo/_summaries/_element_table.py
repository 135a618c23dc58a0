"""The table of element nulls: simulated and analytic values side by side, as an xarray dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from rmtbase.ensembles import Ensemble, low_rank_product
from rmtbase.errors import ParameterError
from rmtbase.linalg import DTYPE, MATMUL_PRECISION, PRNG_IMPLEMENTATION
from rmtbase.montecarlo._draws._elements import (
    BINS,
    ElementEnsemble,
    element_edges,
    element_statistics_chunk,
    require_element_ensemble,
)
from rmtbase.montecarlo._plans._settings import machine_settings
from rmtbase.montecarlo._stores._source import in_blocks
from rmtbase.montecarlo._summaries._analytic import NONE, AnalyticValue
from rmtbase.montecarlo._summaries._element_analytic import element_density, element_values, head_shape
from rmtbase.nulls import PROBABILITIES
from rmtbase.parameters import require_draws, require_seed
from rmtbase.statistics import summarize_stream
from rmtbase.tables import ELEMENT_FORMULAS, ELEMENTS_SCHEMA, SCHEMA_VERSION, describe, provenance, software_version

Case = ElementEnsemble | Ensemble | tuple[int, int]
Arrays = Mapping[str, NDArray[Any]]
Reading = Callable[[str], Iterable[NDArray[Any]]]

_UNKNOWN = AnalyticValue(np.nan, np.nan, NONE)


def element_baseline(
    cases: Case | Iterable[Case],
    draws: int = 100,
    seed: int = 0,
    bins: int = BINS,
    range: tuple[float, float] | None = None,
    keep_sample: bool = True,
    progress: Callable[[int], None] | None = None,
) -> xr.Dataset:
    """The null of the statistics of a matrix's elements: moments, histogram entropy and divergence, Weibull fit.

    The elements are those the ensemble draws, of W_QK the raw product of standard normal factors. Where they are c
    times as large, ``mean``, ``std``, ``weibull_scale`` and the bin edges are c times as large, ``histogram_entropy``
    is larger by ln c, and nothing else changes: c = σ_Q σ_K, divided by √d_model for ``sqrt_d``.

    Args:
        cases: an ensemble that draws by rows, or (d_model, d_head) for W_QK; or several of them.
        draws: of each case, at least 2.
        seed: the same seed gives the same numbers to the bit, whatever else is in the table.
        bins: of the histogram.
        range: (low, high) of the histogram, for all cases; by default each case's own six standard deviations of one
            element to either side of zero.
        keep_sample: whether the table holds every draw's statistics.
        progress: called with the number of draws finished since the last call.

    Returns:
        A table of ``kind`` elements: dims case, statistic, probability, bin, edge and draw; see
        :data:`rmtbase.tables.ELEMENTS_SCHEMA`.

    Raises:
        ParameterError: as :func:`draw_elements`; fewer than two draws; no case at all.
    """
    ensembles = _ensembles(cases)
    draws, seed = require_draws(draws), require_seed(seed)
    samples = [
        element_statistics_chunk(ensemble, seed, None, 0, draws, bins, range, progress) for ensemble in ensembles
    ]
    return element_table(ensembles, samples, seed, range, keep_sample)


def element_table(
    ensembles: Sequence[ElementEnsemble | Ensemble],
    samples: Sequence[Arrays],
    seed: int,
    range: tuple[float, float] | None = None,
    keep_sample: bool = True,
    attributes: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    """The table of draws that are there already.

    Args:
        ensembles: one for each case.
        samples: of each, what :func:`element_statistics_chunk` gives, chunks joined along the last axis.
        seed: of the draws.
        range: as the draws had it.
        keep_sample: whether the table holds every draw's statistics; all cases then have the same number of draws.
        attributes: further attributes, or others in place of those that are set here.

    Raises:
        ParameterError: an ensemble that draws no rows, fewer than two draws.
    """
    draws = [sample["statistic"].shape[-1] for sample in samples]
    readings = [lambda name, sample=sample: in_blocks([sample[name]]) for sample in samples]
    return element_table_of_readings(ensembles, draws, readings, seed, range, keep_sample, attributes)


def element_table_of_readings(
    ensembles: Sequence[ElementEnsemble | Ensemble],
    draws: Sequence[int],
    readings: Sequence[Reading],
    seed: int,
    range: tuple[float, float] | None = None,
    keep_sample: bool = True,
    attributes: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    """As :func:`element_table`, of draws that are read block by block, as often as the table needs.

    ``draws`` are how many of each case; each of ``readings``, called with the name of an array, gives its blocks (row,
    draw).
    """
    ensembles = [require_element_ensemble(ensemble) for ensemble in ensembles]
    several = zip(ensembles, draws, readings, strict=True)
    rows = [_row(ensemble, number, reading, range, keep_sample) for ensemble, number, reading in several]
    table = xr.concat(rows, dim="case", data_vars="all", coords="minimal", compat="override", join="exact")
    shapes = np.array([ensemble.element_shape for ensemble in ensembles])
    columns = {
        "name": np.array([ensemble.name for ensemble in ensembles], dtype=object),
        "n_rows": shapes[:, 0],
        "n_columns": shapes[:, 1],
        **_head_coordinates(ensembles),
    }
    table = table.assign_coords({name: ("case", column) for name, column in columns.items()})
    table.attrs = {
        "schema_version": SCHEMA_VERSION,
        "kind": "elements",
        "draws": max(draws),
        "seed": seed,
        "rmtbase_version": software_version(),
        "provenance": _provenance(ensembles, max(draws), seed, table),
        **(attributes or {}),
    }
    return describe(table, ELEMENTS_SCHEMA)


def _head_coordinates(ensembles: Sequence[ElementEnsemble]) -> dict[str, NDArray[Any]]:
    """Shape and σ as a baseline table has them, of W_QK, whose factors are standard normal; NaN for any other."""
    shapes = [head_shape(ensemble) for ensemble in ensembles]
    columns = zip(*((np.nan,) * 4 if shape is None else (*shape, 1.0, 1.0) for shape in shapes), strict=True)
    names = ("d_model", "d_head", "sigma_q", "sigma_k")
    return {name: np.array(column) for name, column in zip(names, columns, strict=True)}


def _ensembles(cases: Case | Iterable[Case]) -> list[ElementEnsemble]:
    several: list[Any] = [cases] if _is_shape(cases) or not isinstance(cases, Iterable) else list(cases)
    if not several:
        raise ParameterError("cases", several, "at least one ensemble or (d_model, d_head)")
    ensembles = [low_rank_product(*case, method="dense") if _is_shape(case) else case for case in several]
    unique = {ensemble.name: ensemble for ensemble in map(require_element_ensemble, ensembles)}
    return list(unique.values())


def _is_shape(case: object) -> bool:
    return isinstance(case, tuple) and not any(isinstance(one, tuple | ElementEnsemble) for one in case)


def _row(
    ensemble: ElementEnsemble, draws: int, reading: Reading, interval: tuple[float, float] | None, keep_sample: bool
) -> xr.Dataset:
    """One case: the table without that dim."""
    summary = summarize_stream(lambda: reading("statistic"), PROBABILITIES)
    count = summarize_stream(lambda: (block.astype(float) for block in reading("histogram")), [])
    edges = element_edges(ensemble, count.mean.size, interval)
    inside = sum(int(block.sum()) for block in reading("histogram"))
    elements = float(np.prod(ensemble.element_shape))
    per_count = elements * np.diff(edges)
    known = element_values(ensemble, edges)
    values = [known.get(name, _UNKNOWN) for name in ELEMENT_FORMULAS]
    variables: dict[str, Any] = {
        "draws": np.int64(draws),
        "mean": summary.mean,
        "std": summary.std,
        "standard_error": summary.standard_error,
        "std_standard_error": summary.std_standard_error,
        "quantile": summary.quantile,
        "analytic_mean": np.array([value.mean for value in values]),
        "analytic_std": np.array([value.std for value in values]),
        "analytic_method": np.array([value.method for value in values], dtype=object),
        "bin_edge": edges,
        "density": count.mean / per_count,
        "density_standard_error": count.standard_error / per_count,
        "density_law": element_density(ensemble, edges),
        "share_outside": np.float64(1.0 - inside / (elements * draws)),
    }
    coordinates = {
        "statistic": list(ELEMENT_FORMULAS),
        "formula": ("statistic", list(ELEMENT_FORMULAS.values())),
        "probability": np.array(PROBABILITIES),
        "bin": np.arange(count.mean.size),
        "edge": np.arange(edges.size),
    }
    if keep_sample:
        variables["sample"] = np.concatenate(list(reading("statistic")), axis=1)
        coordinates["draw"] = np.arange(draws)
    dims = {name: ELEMENTS_SCHEMA[name].dims[1:] for name in variables}
    return xr.Dataset({name: (dims[name], value) for name, value in variables.items()}, coords=coordinates)


def _provenance(ensembles: Sequence[ElementEnsemble], draws: int, seed: int, table: xr.Dataset) -> str:
    call = {
        "function": "rmtbase.montecarlo.element_baseline",
        "cases": [ensemble.name for ensemble in ensembles],
        "draws": draws,
        "seed": seed,
        "bins": table.sizes["bin"],
        "range": [[float(edges[0]), float(edges[-1])] for edges in table["bin_edge"].values],
    }
    numerics = {
        "dtype": DTYPE,
        "matmul_precision": MATMUL_PRECISION,
        "prng": PRNG_IMPLEMENTATION,
        "prng_partitionable": True,
        "key": "fold_in(fold_in(key(seed), crc32(name of the case)), draw)",
        **machine_settings(),
    }
    return provenance(call, numerics=numerics)
