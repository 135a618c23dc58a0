"""The baseline table of W_QK in one call, made in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.montecarlo._plan import Plan, listed, make_plan
from rmtbase.montecarlo._run import run_in_memory
from rmtbase.parameters import require_draws, require_head_shape, require_normalization, require_positive_number
from rmtbase.progress import SILENT, Progress

Normalization = Literal["sqrt_d", "none"]


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
    """The null of W_QK = W_Qᵀ W_K with Gaussian factors, for any (d_model, d_head, σ).

    Each shape is simulated once and every σ follows by exact scaling: λ at (σ_Q, σ_K) is σ_Q² σ_K² times λ at σ = 1.
    Beside each simulated value stand its standard error and the analytic value with the way it is known.

    Args:
        d_model: width of the residual stream; one, or a sequence paired with ``d_head``.
        d_head: head dimension; one, or a sequence paired with ``d_model``.
        sigma: standard deviation of the elements of W_Q and W_K; a pair for (σ_Q, σ_K); a list for several. The table
            holds every shape at every σ.
        sigma_q: that of W_Q alone, in place of ``sigma``; 1 if only ``sigma_k`` is given.
        sigma_k: that of W_K alone, likewise.
        draws: Monte Carlo draws per shape, at least 2.
        seed: the same seed gives the same numbers to the bit, whatever else is in the table.
        normalization: ``"sqrt_d"`` for W_QK / √d_model, ``"none"`` for the raw product.
        progress: told of the draws finished.
        precision: ``"float64"``, or ``"float32"`` with the error that :func:`rmtbase.montecarlo.draw_spectra` states.

    Returns:
        A dataset with dims case, statistic, probability, index, bin, edge and draw; see
        ``rmtbase.tables.BASELINE_SCHEMA`` for each variable. Eigenvalues λ are those of W_QKᵀ W_QK, the d_head
        structurally nonzero ones, descending; where cases differ in d_head the shorter are padded with NaN. The draws
        are held in memory, 8 (d_head + 18) bytes each, and with them, twice while it is made, the sample of the table,
        144 bytes for each draw and σ; :func:`rmtbase.montecarlo.run_plan` keeps the draws on disk.

    Raises:
        ParameterError: a dimension, σ, draws, seed or normalization outside its domain; more draws than memory holds.
        AllocationError: one draw takes more memory than is there.
        ForkedProcessError: this process was forked from one that had used JAX.
    """
    if sigma_q is not None or sigma_k is not None:
        if not isinstance(sigma, int | float) or sigma != 1.0:
            raise ParameterError("sigma", sigma, "none beside sigma_q or sigma_k: it is that of both factors")
        pair = {"sigma_q": 1.0 if sigma_q is None else sigma_q, "sigma_k": 1.0 if sigma_k is None else sigma_k}
        sigma = tuple(require_positive_number(name, one) for name, one in pair.items())
    return run_in_memory(baseline_plan(d_model, d_head, sigma, draws, seed, normalization, precision), progress)


def baseline_plan(
    d_model: int | Sequence[int],
    d_head: int | Sequence[int],
    sigma: object = 1.0,
    draws: int = 10_000,
    seed: int = 0,
    normalization: str = "sqrt_d",
    precision: str = "float64",
    keep_sample: bool = True,
) -> Plan:
    """The plan of a W_QK table; arguments and errors as :func:`baseline`."""
    shapes = _shapes(d_model, d_head)
    return make_plan(
        "low_rank_product",
        [{"d_model": d, "d_head": h} for d, h in shapes],
        require_draws(draws),
        seed,
        normalization=require_normalization(normalization),
        sigma=sigma,
        precision=precision,
        keep_sample=keep_sample,
        name="baseline-{}x{}".format(*shapes[0]),
    )


def _shapes(d_model: object, d_head: object) -> list[tuple[int, int]]:
    models, heads = listed(d_model), listed(d_head)
    if len(models) != len(heads) and 1 not in (len(models), len(heads)):
        raise ParameterError("d_head", heads, f"one value, or one for each of the {len(models)} of d_model")
    count = max(len(models), len(heads))
    models, heads = models * (count // len(models)), heads * (count // len(heads))
    return [require_head_shape(d, h) for d, h in zip(models, heads, strict=True)]
