"""The table of element nulls: simulated and analytic values side by side, as an xarray dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from rmtbase.ensembles import Ensemble, low_rank_product
from rmtbase.errors import ParameterError
from rmtbase.montecarlo._analytic import UNKNOWN, element_density, element_values, head_shape
from rmtbase.montecarlo._elements import (
    BINS,
    ElementEnsemble,
    element_edges,
    element_statistics_chunk,
    require_element_ensemble,
)
from rmtbase.montecarlo._machine import machine_settings, numerics_record
from rmtbase.montecarlo._summary import Block, in_blocks, join_rows, make_row
from rmtbase.nulls import PROBABILITIES
from rmtbase.parameters import require_draws, require_seed
from rmtbase.progress import SILENT, Progress
from rmtbase.statistics import summarize_stream
from rmtbase.tables import ELEMENT_FORMULAS, ELEMENTS_SCHEMA, provenance

Case = ElementEnsemble | Ensemble | tuple[int, int]
Reading = Callable[[str], Iterable[Block]]


def element_baseline(
    cases: Case | Iterable[Case],
    draws: int = 100,
    seed: int = 0,
    bins: int = BINS,
    range: tuple[float, float] | None = None,
    keep_sample: bool = True,
    progress: Progress = SILENT,
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
        progress: told of the draws finished.

    Returns:
        A table of ``kind`` elements: dims case, statistic, probability, bin, edge and draw; see
        :data:`rmtbase.tables.ELEMENTS_SCHEMA`.

    Raises:
        ParameterError: as :func:`draw_elements`; fewer than two draws; no case at all.
    """
    ensembles = _ensembles(cases)
    draws, seed = require_draws(draws), require_seed(seed)
    advance = progress.bar("drawing", draws * len(ensembles))
    samples = [element_statistics_chunk(ensemble, seed, None, 0, draws, bins, range, advance) for ensemble in ensembles]
    return element_table(ensembles, samples, seed, range, keep_sample)


def element_table(
    ensembles: Sequence[ElementEnsemble | Ensemble],
    samples: Sequence[Mapping[str, Block] | Reading],
    seed: int,
    range: tuple[float, float] | None = None,
    keep_sample: bool = True,
    attributes: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    """The table of draws that are there already.

    Args:
        ensembles: one for each case.
        samples: of each, what :func:`element_statistics_chunk` gives, chunks joined along the last axis; or a function
            that reads an array's blocks (row, draw), called with its name as often as the table needs.
        seed: of the draws.
        range: as the draws had it.
        keep_sample: whether the table holds every draw's statistics; all cases then have the same number of draws.
        attributes: further attributes, or others in place of those that are set here.

    Raises:
        ParameterError: an ensemble that draws no rows, fewer than two draws.
    """
    ensembles = [require_element_ensemble(ensemble) for ensemble in ensembles]
    readings = [sample if callable(sample) else partial(_blocks_of, sample) for sample in samples]
    rows = [_row(*case, range, keep_sample) for case in zip(ensembles, readings, strict=True)]
    shapes = np.array([ensemble.element_shape for ensemble in ensembles])
    coordinates = {
        "name": np.array([ensemble.name for ensemble in ensembles], dtype=object),
        "n_rows": shapes[:, 0],
        "n_columns": shapes[:, 1],
        **_head_coordinates(ensembles),
    }
    given = attributes or {}
    own = {"kind": "elements", "draws": max(int(row["draws"]) for row in rows), "seed": seed}
    made = given.get("provenance") or _provenance(ensembles, rows, own["draws"], seed)
    return join_rows(rows, coordinates, ELEMENTS_SCHEMA, own, {"provenance": made, **given})


def _blocks_of(sample: Mapping[str, Block], name: str) -> Iterator[Block]:
    return in_blocks([sample[name]])


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
    ensemble: ElementEnsemble, reading: Reading, interval: tuple[float, float] | None, keep_sample: bool
) -> xr.Dataset:
    """One case: the table without that dim."""
    count = summarize_stream(lambda: (block.astype(float) for block in reading("histogram")), [])
    edges = element_edges(ensemble, count.mean.size, interval)
    inside = draws = 0
    for block in reading("histogram"):
        inside, draws = inside + int(block.sum()), draws + block.shape[1]
    elements = float(np.prod(ensemble.element_shape))
    per_count = elements * np.diff(edges)
    known = element_values(ensemble, edges)
    values = [known.get(name, UNKNOWN) for name in ELEMENT_FORMULAS]
    variables: dict[str, Any] = {
        "draws": np.int64(draws),
        **summarize_stream(lambda: reading("statistic"), PROBABILITIES)._asdict(),
        "analytic_mean": np.array([value.mean for value in values]),
        "analytic_std": np.array([value.std for value in values]),
        "analytic_method": np.array([value.method for value in values], dtype=object),
        "bin_edge": edges,
        "density": count.mean / per_count,
        "density_standard_error": count.standard_error / per_count,
        "density_law": element_density(ensemble, edges),
        "share_outside": np.float64(1.0 - inside / (elements * draws)),
    }
    if keep_sample:
        variables["sample"] = np.concatenate(list(reading("statistic")), axis=1)
    coordinates = {
        "statistic": list(ELEMENT_FORMULAS),
        "formula": ("statistic", list(ELEMENT_FORMULAS.values())),
        "probability": np.array(PROBABILITIES),
        "bin": np.arange(count.mean.size),
        "edge": np.arange(edges.size),
    }
    return make_row(variables, coordinates, ELEMENTS_SCHEMA)


def _provenance(ensembles: Sequence[ElementEnsemble], rows: Sequence[xr.Dataset], draws: int, seed: int) -> str:
    call = {
        "function": "rmtbase.montecarlo.element_baseline",
        "cases": [ensemble.name for ensemble in ensembles],
        "draws": draws,
        "seed": seed,
        "bins": rows[0].sizes["bin"],
        "range": [[float(row["bin_edge"][0]), float(row["bin_edge"][-1])] for row in rows],
    }
    return provenance(call, numerics=numerics_record(machine_settings()))
