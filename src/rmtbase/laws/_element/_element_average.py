"""Averages over the elements of one matrix W_QK, which depend on each other through their rows and columns."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.laws._distribution import FloatArray, Moments
from rmtbase.laws._element._product_element import ProductElement, chi_square_rule, product_element

_LOG_STEP = 0.125
_LOG_REACH = 37.0  # below e^-37 of its standard deviation a normal variable has mass 1e-16


def element_average(
    function: Callable[[FloatArray], ArrayLike],
    d_model: int,
    d_head: int,
    sigma_q: float = 1.0,
    sigma_k: float = 1.0,
    normalization: str = "sqrt_d",
) -> Moments:
    """Return mean and standard deviation of Σ_ij f(w_ij) / d², over the d² elements of one W_QK, d = d_model.

    w_ij = q_i · k_j. Given q_i, the elements of row i are independent N(0, |q_i|²), and |q_i|² is σ² times a χ² of
    d_head degrees of freedom; so are the columns. Two elements in the same row or column share that and nothing
    else, others are independent (Hoeffding 1948), and

        variance = [Var f(w) + 2 (d - 1) Var E(f(w) | |q|²)] / d².

    The second term, absent for independent elements, is larger by about d/d_head for f = w². Exact for every d;
    numerical to about 1e-12 for f analytic in ln |w|, as powers of |w|, ln |w| and the law's own density are.

    Args:
        function: f, from an array of elements to an array of the same shape.
        d_model: d.
        d_head: the number of products in an element.
        sigma_q: standard deviation of the entries of W_Q.
        sigma_k: standard deviation of the entries of W_K.
        normalization: ``"sqrt_d"`` or ``"none"``.

    Raises:
        ParameterError: as :func:`rmtbase.laws.low_rank_product`, and for an f that does not return one finite number
            per element.
    """
    law = product_element(d_model, d_head, sigma_q, sigma_k, normalization)
    mean, spread, shared = average_parts(function, law)
    return Moments(mean, math.sqrt(spread + 2.0 * (d_model - 1) * shared) / d_model, "exact")


def average_parts(function: Callable[[FloatArray], ArrayLike], law: ProductElement) -> tuple[float, float, float]:
    """Return E f(w), Var f(w) and Var E(f(w) | row) for an element w."""
    x, kernel, weights = normal_mixture(law)
    values = np.stack([np.asarray(function(side), dtype=np.float64) for side in (x, -x)])
    if values.shape != (2, x.size) or not np.isfinite(values).all():
        raise ParameterError("function", function, "a function that returns one finite number per element")
    conditional = kernel @ values.sum(axis=0)
    mean = float(weights @ conditional)
    spread = float(weights @ (kernel @ ((values - mean) ** 2).sum(axis=0)))
    return mean, spread, float(weights @ (conditional - mean) ** 2)


def normal_mixture(law: ProductElement) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return x > 0, the kernel (node, x) and weights (node) with E f(w) = weights @ kernel @ (f(x) + f(-x)).

    A row of the kernel is the conditional law at one |q|²: the trapezoidal rule in ln x, in which e^x of a normal
    density is analytic in a strip of width π/2 and one step serves all variances.
    """
    v, weights = chi_square_rule(law.d_head)
    log_std = 0.5 * v
    t = np.arange(log_std[0] - _LOG_REACH, log_std[-1] + math.log(9.5), _LOG_STEP)
    ratio = t - log_std[:, None]
    kernel = _LOG_STEP / math.sqrt(2.0 * math.pi) * np.exp(ratio - 0.5 * np.exp(2.0 * ratio))
    return law.std() * np.exp(t), kernel, weights
