"""Tables of W_QK and of elements in one call, made in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import xarray as xr

from rmtbase import parameters
from rmtbase.ensembles import Ensemble, low_rank_product
from rmtbase.errors import ParameterError
from rmtbase.montecarlo._elements import BINS, ElementEnsemble, element_edges, require_element_ensemble
from rmtbase.montecarlo._machine import machine_settings, numerics_record
from rmtbase.montecarlo._plan import Case, Plan, listed, make_plan
from rmtbase.montecarlo._run import draw_in_memory, run_in_memory
from rmtbase.montecarlo._table import element_table
from rmtbase.progress import SILENT, Progress
from rmtbase.tables import provenance

Normalization = Literal["sqrt_d", "none"]
ElementCase = ElementEnsemble | Ensemble | tuple[int, int]


def baseline(
    d_model: int | Sequence[int],
    d_head: int | Sequence[int],
    sigma: float | tuple[float, float] | Sequence[float | tuple[float, float]] = 1.0,
    draws: int = 10_000,
    seed: int = 0,
    normalization: Normalization = "sqrt_d",
    progress: Progress = SILENT,
    precision: Literal["float64", "float32"] = "float64",
    *,
    sigma_q: float | None = None,
    sigma_k: float | None = None,
) -> xr.Dataset:
    """Simulate the null of W_QK = W_Qᵀ W_K with Gaussian factors, for any (d_model, d_head, σ).

    Each shape is simulated once, and every σ follows by exact scaling: λ at (σ_Q, σ_K) is σ_Q² σ_K² times λ at σ = 1.
    Each simulated value comes with its standard error and the analytic value with its method.

    Args:
        d_model: width of the residual stream; one, or a sequence paired with ``d_head``.
        d_head: head dimension; one, or a sequence paired with ``d_model``.
        sigma: standard deviation of the elements of W_Q and W_K, a pair (σ_Q, σ_K), or a list of either.
        sigma_q: standard deviation of only W_Q, in place of ``sigma``; 1 if only ``sigma_k`` is given.
        sigma_k: standard deviation of only W_K, likewise.
        draws: Monte Carlo draws per shape, at least 2.
        seed: the same seed gives the same numbers, whatever else is in the table; to the bit with processors of one
            kind and the same libraries.
        normalization: ``"sqrt_d"`` for W_QK / √d_model, ``"none"`` for the raw product.
        progress: receives the number of finished draws.
        precision: ``"float64"``, or ``"float32"`` with the error that :func:`rmtbase.montecarlo.draw_spectra` states.

    Returns:
        A dataset with dims case, statistic, probability, index, bin, edge and draw; see
        ``rmtbase.tables.BASELINE_SCHEMA`` for each variable. λ are the d_head structurally nonzero eigenvalues of
        W_QKᵀ W_QK, descending, padded with NaN. Memory holds the draws, 8 (d_head + 18) bytes each, and twice the
        table's sample, 144 bytes for each draw and σ; :func:`rmtbase.montecarlo.run_plan` keeps the draws on disk.

    Raises:
        ParameterError: an argument is outside its domain, or the draws do not fit in memory.
        AllocationError: one draw takes more memory than is available.
        ForkedProcessError: this process was forked from a process that had used JAX.
    """
    if sigma_q is not None or sigma_k is not None:
        if not isinstance(sigma, int | float) or sigma != 1.0:
            raise ParameterError("sigma", sigma, "none beside sigma_q or sigma_k, because it sets both factors")
        pair = {"sigma_q": 1.0 if sigma_q is None else sigma_q, "sigma_k": 1.0 if sigma_k is None else sigma_k}
        sigma = tuple(parameters.require_positive_number(name, value) for name, value in pair.items())
    parameters.require_normalization(normalization)
    options = {"sigma": sigma, "normalization": normalization, "precision": precision}
    return run_in_memory(baseline_plan(d_model, d_head, draws, seed, **options), progress)


def baseline_plan(d_model: object, d_head: object, draws: int = 10_000, seed: int = 0, **options: Any) -> Plan:
    """Make the plan of a W_QK table; arguments as for :func:`baseline`, options and errors as for make_plan."""
    shapes = _shapes(d_model, d_head)
    cases = [{"d_model": d, "d_head": h} for d, h in shapes]
    name = "baseline-{}x{}".format(*shapes[0])
    return make_plan("low_rank_product", cases, parameters.require_draws(draws), seed, name=name, **options)


def _shapes(d_model: object, d_head: object) -> list[tuple[int, int]]:
    models, heads = listed(d_model), listed(d_head)
    if len(models) != len(heads) and 1 not in (len(models), len(heads)):
        raise ParameterError("d_head", heads, f"one value, or one for each of the {len(models)} of d_model")
    count = max(len(models), len(heads))
    models, heads = models * (count // len(models)), heads * (count // len(heads))
    return [parameters.require_head_shape(d, h) for d, h in zip(models, heads, strict=True)]


def element_baseline(
    cases: ElementCase | Iterable[ElementCase],
    draws: int = 100,
    seed: int = 0,
    bins: int = BINS,
    range: tuple[float, float] | None = None,
    keep_sample: bool = True,
    progress: Progress = SILENT,
) -> xr.Dataset:
    """Simulate the null of element statistics: moments, histogram entropy and divergence, Weibull fit.

    The elements are those that the ensemble draws; for W_QK, the raw product of standard normal factors. If they are c
    times as large, ``mean``, ``std``, ``weibull_scale`` and the bin edges are c times as large, ``histogram_entropy``
    is larger by ln c, and nothing else changes: c = σ_Q σ_K, divided by √d_model for ``sqrt_d``.

    Args:
        cases: an ensemble that draws by rows, or (d_model, d_head) for W_QK; or several of them.
        draws: number of draws of each case, at least 2.
        seed: the same seed gives the same numbers, whatever else is in the table; to the bit with processors of one
            kind and the same libraries.
        bins: number of bins of the histogram.
        range: (low, high) of the histogram, for all cases; by default, for each case, six standard deviations of one
            element to either side of zero.
        keep_sample: whether the table holds every draw's statistics.
        progress: receives the number of finished draws.

    Returns:
        A table of ``kind`` elements with dims case, statistic, probability, bin, edge and draw.

    Raises:
        ParameterError: as :func:`draw_elements`; also for fewer than two draws, or no case.
    """
    ensembles, draws, seed = _element_ensembles(cases), parameters.require_draws(draws), parameters.require_seed(seed)
    edges = [element_edges(ensemble, bins, range) for ensemble in ensembles]
    plan = Plan(
        ensemble="element_baseline",
        cases=tuple(Case(ensemble, {"name": ensemble.name}, draws, draws) for ensemble in ensembles),
        seed=seed,
        measure="elements",
        keep_sample=keep_sample,
        bins=bins,
        range=range,
    )
    source, _ = draw_in_memory(plan, progress)
    call = {
        "function": "rmtbase.montecarlo.element_baseline",
        "cases": [ensemble.name for ensemble in ensembles],
        "draws": draws,
        "seed": seed,
        "bins": edges[0].size - 1,
        "range": [[float(edge[0]), float(edge[-1])] for edge in edges],
    }
    return element_table(source, {"provenance": provenance(call, numerics=numerics_record(machine_settings()))})


def _element_ensembles(cases: ElementCase | Iterable[ElementCase]) -> list[Any]:
    several: list[Any] = [cases] if _is_shape(cases) or not isinstance(cases, Iterable) else list(cases)
    if not several:
        raise ParameterError("cases", several, "at least one ensemble or (d_model, d_head)")
    ensembles = [low_rank_product(*case, method="dense") if _is_shape(case) else case for case in several]
    return list({ensemble.name: ensemble for ensemble in map(require_element_ensemble, ensembles)}.values())


def _is_shape(case: object) -> bool:
    return isinstance(case, tuple) and not any(isinstance(entry, tuple | ElementEnsemble) for entry in case)
