"""Moved share Δ = ½ Σ_i |p_i - q_i|, p the shares of eigenvalues and q those of a random matrix's mean eigenvalues.

It is the part of ‖W‖_F² that would have to move between the ordered directions to give the matrix a random spectrum,
between 0 and 1 at any scale. Its parts compare the Lorenz curves D_k = Σ_{i ≤ k} (p_i - q_i): the strongest k hold
max_k D_k more at most, the weakest max_k -D_k; their sum is Δ where p - q changes sign at most twice, else less.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_real_numbers

Spectra = Float[np.ndarray, "... index"]


def moved_share(eigenvalues: Spectra, null_mean: Spectra) -> Float[np.ndarray, "..."]:
    """Return the moved share Δ = ½ Σ_i |λ_i/Σλ − E₀λ_i/ΣE₀λ| of each spectrum, between 0 and 1.

    Args:
        eigenvalues: eigenvalues of each matrix, descending, padded with NaN at the end.
        null_mean: mean ordered eigenvalues of a random matrix, on any scale, padded as ``eigenvalues``.

    Returns:
        The moved shares; NaN where all eigenvalues are zero, or an eigenvalue or a mean is not known.

    Raises:
        ParameterError: values that are not real numbers or are negative, or fewer means than eigenvalues.
    """
    return 0.5 * np.abs(_difference(eigenvalues, null_mean)).sum(axis=-1)


def moved_parts(eigenvalues: Spectra, null_mean: Spectra) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """Return the parts of the moved share towards fewer and towards more directions, max_k D_k and max_k −D_k.

    Arguments, NaN and errors are those of :func:`moved_share`.
    """
    lorenz = np.cumsum(_difference(eigenvalues, null_mean), axis=-1)
    return np.maximum(lorenz.max(axis=-1), 0.0), np.maximum(-lorenz.min(axis=-1), 0.0)


def _difference(eigenvalues: Spectra, null_mean: Spectra) -> Spectra:
    eigenvalues = require_real_numbers("eigenvalues", eigenvalues)
    null_mean = require_real_numbers("null_mean", null_mean)
    if not eigenvalues.ndim or not null_mean.ndim or not 0 < eigenvalues.shape[-1] <= null_mean.shape[-1]:
        raise ParameterError("null_mean", f"shape {null_mean.shape}", "at least a mean for each eigenvalue")
    if (eigenvalues < 0.0).any() or (null_mean < 0.0).any():
        raise ParameterError("eigenvalues, null_mean", "negative ones", "eigenvalues of WᵀW")
    eigenvalues, null_mean = np.broadcast_arrays(eigenvalues, null_mean[..., : eigenvalues.shape[-1]])
    present = ~np.isnan(eigenvalues)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        shares = [_shares(values, present) for values in (eigenvalues, null_mean)]
        difference = np.where(present, shares[0] - shares[1], 0.0)
    padded_at_end = (present[..., :-1] >= present[..., 1:]).all(axis=-1, keepdims=True)
    defined = padded_at_end & present[..., :1] & np.isfinite(difference).all(axis=-1, keepdims=True)
    return np.where(defined, difference, np.nan)


def _shares(values: Spectra, present: np.ndarray) -> Spectra:
    largest = np.max(values, axis=-1, keepdims=True, where=present, initial=0.0)
    unit = values / largest  # so that no sum leaves float64
    return unit / np.sum(unit, axis=-1, keepdims=True, where=present)
