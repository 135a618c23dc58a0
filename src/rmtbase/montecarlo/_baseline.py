"""The baseline table: simulated and analytic nulls of W_QK side by side, as an xarray dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.laws import low_rank_product as low_rank_product_law
from rmtbase.laws import naive_marchenko_pastur
from rmtbase.linalg import DTYPE, MATMUL_PRECISION, PRNG_IMPLEMENTATION, SpectrumSolver
from rmtbase.montecarlo._analytic import AnalyticValue, analytic_values
from rmtbase.montecarlo._keys import require_seed
from rmtbase.montecarlo._shape import BINS, ShapeSimulation, simulate_shape
from rmtbase.parameters import (
    require_draws,
    require_head_shape,
    require_normalization,
    require_positive_number,
)
from rmtbase.statistics import SPECTRAL_STATISTICS, summarize
from rmtbase.tables import BASELINE_SCHEMA, SCHEMA_VERSION, describe, provenance, software_version

Normalization = Literal["sqrt_d", "none"]

PROBABILITIES = (
    0.001, 0.005, 0.01, 0.025, 0.05, 0.16, 0.25, 0.5, 0.75, 0.84, 0.95, 0.975, 0.99, 0.995, 0.999,
)  # fmt: skip
"""The probabilities at which every quantile of a table is given."""


_LEAST_SCALE = 1e-30  # beyond it the variance of trace_of_square, which goes as the eighth power, leaves float64


class Case(NamedTuple):
    """One row of a table."""

    d_model: int
    d_head: int
    sigma_q: float
    sigma_k: float


def baseline(
    d_model: int | Sequence[int],
    d_head: int | Sequence[int],
    sigma: float | tuple[float, float] | Sequence[float | tuple[float, float]] = 1.0,
    draws: int = 10_000,
    seed: int = 0,
    normalization: Normalization = "sqrt_d",
    progress: Callable[[int], None] | None = None,
) -> xr.Dataset:
    """The null of W_QK = W_Qᵀ W_K with Gaussian factors, for any (d_model, d_head, σ).

    Each shape is simulated once and every σ follows by exact scaling: λ at (σ_Q, σ_K) is σ_Q² σ_K² times λ at σ = 1.
    Beside each simulated value stand its standard error and the analytic value with the way it is known.

    Args:
        d_model: width of the residual stream; one, or a sequence paired with ``d_head``.
        d_head: head dimension; one, or a sequence paired with ``d_model``.
        sigma: standard deviation of the elements of W_Q and W_K; a pair for (σ_Q, σ_K); a list for several. The table
            holds every shape at every σ.
        draws: Monte Carlo draws per shape, at least 2.
        seed: the same seed gives the same numbers to the bit, whatever else is in the table.
        normalization: ``"sqrt_d"`` for W_QK / √d_model, ``"none"`` for the raw product.
        progress: called with the number of draws finished since the last call.

    Returns:
        A dataset with dims case, statistic, probability, index, bin, edge and draw; see
        ``rmtbase.tables.BASELINE_SCHEMA`` for each variable. Eigenvalues λ are those of W_QKᵀ W_QK, the d_head
        structurally nonzero ones, descending; where cases differ in d_head the shorter are padded with NaN. The table
        holds every draw's statistics and, while it is made, 8 · draws · d_head bytes of eigenvalues per shape.

    Raises:
        ParameterError: a dimension, σ, draws, seed or normalization outside its domain.
    """
    shapes, sigmas = _shapes(d_model, d_head), _sigmas(sigma)
    draws, seed = require_draws(draws), require_seed(seed)
    require_normalization(normalization)
    longest = max(shape[1] for shape in shapes)
    rows, cases = [], []
    for shape in shapes:
        simulation = simulate_shape(*shape, draws, seed, progress)
        analytic = analytic_values(*shape)
        cases += [Case(*shape, *pair) for pair in sigmas]
        rows += [_row(simulation, analytic, case, normalization, longest) for case in cases[-len(sigmas) :]]
    table = xr.concat(rows, dim="case", data_vars="all", coords="minimal", compat="override", join="exact")
    table = table.assign_coords(
        {name: ("case", np.array(column)) for name, column in zip(Case._fields, zip(*cases, strict=True), strict=True)}
    )
    table.attrs = {
        "schema_version": SCHEMA_VERSION,
        "kind": "baseline",
        "ensemble": "low_rank_product: W_QK = W_Q^T W_K, i.i.d. Gaussian factors of shape (d_head, d_model)",
        "normalization": normalization,
        "draws": draws,
        "seed": seed,
        **_record(shapes, sigmas, draws, seed, normalization),
    }
    return describe(table, BASELINE_SCHEMA)


def _shapes(d_model: int | Sequence[int], d_head: int | Sequence[int]) -> list[tuple[int, int]]:
    models, heads = _listed(d_model), _listed(d_head)
    if len(models) != len(heads) and 1 not in (len(models), len(heads)):
        raise ParameterError("d_head", heads, f"one value, or one for each of the {len(models)} of d_model")
    count = max(len(models), len(heads))
    models, heads = models * (count // len(models)), heads * (count // len(heads))
    shapes = [require_head_shape(d, h) for d, h in zip(models, heads, strict=True)]
    return list(dict.fromkeys(shapes))


def _sigmas(sigma: object) -> list[tuple[float, float]]:
    given = [sigma] if isinstance(sigma, tuple) else _listed(sigma)
    pairs = []
    for one in given:
        pair = one if isinstance(one, tuple) else (one, one)
        if len(pair) != 2:
            raise ParameterError("sigma", one, "a number, or a pair (sigma_q, sigma_k)")
        pair = tuple(require_positive_number("sigma", value) for value in pair)
        if not _LEAST_SCALE <= pair[0] * pair[1] <= 1 / _LEAST_SCALE:
            raise ParameterError("sigma", one, f"sigma_q * sigma_k from {_LEAST_SCALE:g} to {1 / _LEAST_SCALE:g}")
        pairs.append(pair)
    return list(dict.fromkeys(pairs))


def _listed(value: object) -> list:
    if isinstance(value, np.ndarray):
        value = value.reshape(-1).tolist()
    listed = list(value) if isinstance(value, Iterable) and not isinstance(value, str | tuple) else value
    if isinstance(listed, tuple):
        listed = list(listed)
    if not isinstance(listed, list):
        return [listed]
    if not listed:
        raise ParameterError("d_model, d_head or sigma", listed, "at least one value")
    return listed


def _row(
    simulation: ShapeSimulation,
    analytic: dict[str, AnalyticValue],
    case: Case,
    normalization: Normalization,
    longest: int,
) -> xr.Dataset:
    d, h = simulation.d_model, simulation.d_head
    scale = (case.sigma_q * case.sigma_k) ** 2 / (d if normalization == "sqrt_d" else 1)
    statistics = list(SPECTRAL_STATISTICS.values())
    sample = np.stack(
        [one.rescale(column, scale, h) for one, column in zip(statistics, simulation.sample.T, strict=True)],
        axis=-1,
    )
    summary = summarize(sample, PROBABILITIES)
    eigenvalues = summarize(simulation.eigenvalues * scale, PROBABILITIES)
    own = simulation.eigenvalues * (scale / simulation.scale_estimate)[:, None]
    own_quantile = np.moveaxis(np.quantile(own, PROBABILITIES, axis=0), 0, -1)
    edges = simulation.bin_edge * scale
    law = low_rank_product_law(d, h, case.sigma_q, case.sigma_k, normalization)
    naive = naive_marchenko_pastur(d, h, case.sigma_q, case.sigma_k, normalization)
    values = [analytic[one.name] for one in statistics]

    def padded(array: np.ndarray) -> np.ndarray:
        return np.pad(array, [(0, longest - h)] + [(0, 0)] * (array.ndim - 1), constant_values=np.nan)

    variables = {
        "mean": summary.mean,
        "std": summary.std,
        "standard_error": summary.standard_error,
        "std_standard_error": summary.std_standard_error,
        "quantile": summary.quantile,
        "analytic_mean": np.array(
            [one.rescale(v.mean, scale, h) for one, v in zip(statistics, values, strict=True)], dtype=float
        ),
        "analytic_std": np.array(
            [one.rescale_spread(v.std, scale) for one, v in zip(statistics, values, strict=True)], dtype=float
        ),
        "analytic_method": np.array([v.method for v in values], dtype=object),
        "sample": sample.T,
        "sigma_q_estimate": simulation.sigma_q_estimate * case.sigma_q,
        "sigma_k_estimate": simulation.sigma_k_estimate * case.sigma_k,
        "eigenvalue_mean": padded(eigenvalues.mean),
        "eigenvalue_std": padded(eigenvalues.std),
        "eigenvalue_quantile": padded(eigenvalues.quantile),
        "eigenvalue_quantile_self_normalized": padded(own_quantile),
        "bin_edge": edges,
        "density": simulation.density / scale,
        "density_standard_error": simulation.density_standard_error / scale,
        "density_marchenko_pastur": np.diff(naive.cdf(edges)) / np.diff(edges),
        "density_free": np.diff(law.cdf(edges)) / np.diff(edges),
        "edge_lower": np.float64(law.support[0]),
        "edge_upper": np.float64(law.support[1]),
    }
    # The schema names each variable's dims, case first; a row is the table without that dim.
    return xr.Dataset(
        {name: (BASELINE_SCHEMA[name].dims[1:], value) for name, value in variables.items()},
        coords={
            "statistic": [one.name for one in statistics],
            "symbol": ("statistic", [one.symbol for one in statistics]),
            "formula": ("statistic", [one.formula for one in statistics]),
            "convention": ("statistic", [one.convention for one in statistics]),
            "scaling": ("statistic", [str(one.scaling) for one in statistics]),
            "probability": np.array(PROBABILITIES),
            "index": np.arange(longest),
            "bin": np.arange(BINS),
            "edge": np.arange(BINS + 1),
            "draw": np.arange(simulation.sample.shape[0]),
        },
    )


def _record(
    shapes: list[tuple[int, int]],
    sigmas: list[tuple[float, float]],
    draws: int,
    seed: int,
    normalization: Normalization,
) -> dict[str, str]:
    import jax

    call = {
        "function": "rmtbase.baseline",
        "shapes": shapes,
        "sigmas": sigmas,
        "draws": draws,
        "seed": seed,
        "normalization": normalization,
    }
    numerics = {
        "dtype": DTYPE,
        "matmul_precision": MATMUL_PRECISION,
        "prng": PRNG_IMPLEMENTATION,
        "prng_partitionable": True,
        "key": "fold_in(fold_in(key(seed), crc32('low_rank_product {d_model}x{d_head}')), draw)",
        "sampler": "thin (Bartlett factors)",
        "solver": SpectrumSolver.name,
        "device": jax.devices()[0].device_kind,
        "backend": jax.default_backend(),
    }
    return {"rmtbase_version": software_version(), "provenance": provenance(call, numerics=numerics)}
