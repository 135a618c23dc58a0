"""Nulls of all element statistics, for independent weights and for the elements of one W_QK."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np

from rmtbase.errors import ParameterError
from rmtbase.laws._distribution import Distribution, StatedLaw
from rmtbase.laws._element._expansion import Expansion, Panels, mean_square, panels
from rmtbase.laws._element._product_sum import Element, element_of_product
from rmtbase.laws._element.parents import Normal, Parent, require_parent
from rmtbase.laws._null import _cell_entropies as cells
from rmtbase.laws._null import _largest_magnitude as tails
from rmtbase.laws._null import _reference_law as smooth
from rmtbase.laws._null._element_laws import (
    ElementLaw,
    Estimated,
    Largest,
    Laws,
    Mean,
    Mended,
    NearlyFlat,
    NormalSample,
    Odd,
    OfLargest,
    Smooth,
)
from rmtbase.laws._null._pearson import IDENTITY, logarithm, reciprocal
from rmtbase.laws._null._reference_law import reference_law
from rmtbase.laws._weibull._closure import body_tail_gap, std_closure
from rmtbase.laws._weibull._plot import weibull_plot
from rmtbase.parameters import require_positive_integer

_FEWEST, _FEWEST_NORMAL = 100, 20  # weights; normal ones for mean, skewness, kurtosis and largest magnitude
_FEWEST_ROWS, _FEWEST_TERMS = 32, 3
_FEWEST_AT_A_JUMP = 1000


@dataclass(frozen=True)
class ElementNull(StatedLaw):
    """Distribution of one element statistic over independent draws of the matrix.

    Attributes:
        statistic: registered name of the statistic.
        shape: (n,), or (d_query, d_head, d_key) of W_QK.
        parent: the law of the weights, or of the elements of W_QK.
        distribution: the law itself.
        limit: the limit for n → ∞, the value for the parent itself; nan if there is none.
        method: method and accuracy, in words.
    """

    statistic: str
    shape: tuple[int, ...]
    parent: Parent
    distribution: Distribution
    limit: float
    method: str


def _on_panels(function: Callable[[Panels], Expansion]) -> Callable[[Parent], Expansion]:
    return lambda parent: function(panels(parent))


def _core_sigma(parent: Parent) -> Expansion:
    end = float(parent.ppf(0.8))
    return smooth.core_sigma(panels(parent, [end]), 0.1, end)


def _decile_ratio(parent: Parent) -> Expansion:
    low, high = parent.ppf(np.array([0.1, 0.9]))
    grid = panels(parent, [low, high])
    # numpy.quantile uses the rank (n − 1) p, at which the mean of F is p + (1 − 2p)/n.
    return (smooth.log_quantile(grid, 0.9, high, -0.8) - smooth.log_quantile(grid, 0.1, low, 0.8)).exp()


def _to_rms(log_scale: Expansion) -> Expansion:
    return (log_scale - 0.5 * mean_square(log_scale.grid).log()).exp()


def _negative_divergence(parent: Parent) -> float:
    return -reference_law(parent).divergence


def _counted(
    simulated: str,
    estimate: Callable[[Parent, int], cells.Estimate],
    limit: Callable[[Parent], float],
    reflected: Callable[[int], float] | None = None,
) -> Mended:
    return Mended(Estimated(estimate, limit), simulated, reflected, _FEWEST_AT_A_JUMP)


@dataclass(frozen=True)
class _Recipe:
    law: ElementLaw  # its laws
    order: float  # the parent must have finite moments up to this order
    approach: str  # the method, in words
    # measured range of the size of a test at 0.05, for all elements of one W_QK
    size_of_product: tuple[float, float] = (0.035, 0.065)
    size: tuple[float, float] = (0.04, 0.06)  # the same for independent weights
    fewest_normal: int = _FEWEST  # fewest normal weights for which the law holds

    def method(self, of_product: bool) -> str:
        low, high = self.size_of_product if of_product else self.size
        measured = (
            "for W_QK from (64, 8) on, with factors whose entries"
            if of_product
            else "from n = 100 on, for weights that"
        )
        return (
            f"{self.approach}; measured {measured} are normal, uniform or normal truncated at 2 σ: the size of a test "
            f"at 0.05 is from {low:g} to {high:g}"
        )


# Sizes are from studies/element_nulls/results.json, corrections from its corrections.py.
_EXPANSION = "influence function and curvature about the parent, by quadrature: mean, spread and skewness to O(1/n)"
_MENDED = "for fewer than 1000 weights of a parent that was simulated, corrected by simulated quantiles"
_COUNTED = f"counts in cells: their noise exactly, the rest to second order; {_MENDED}"
_MAXIMUM = "the largest magnitude by its exact law, the rest to second order"
_OF_LARGEST = (0.025, 0.075)

_RECIPES: dict[str, _Recipe] = {
    "mean": _Recipe(
        Mean(),
        4.0,
        "exact for normal weights; for W_QK of normal factors exact with σ in place of s",
        fewest_normal=_FEWEST_NORMAL,
    ),
    "skewness": _Recipe(
        NormalSample("skewness", Odd(smooth.skewness_influence)),
        6.0,
        f"for normal weights D'Agostino's transform; for others {_EXPANSION}",
        fewest_normal=_FEWEST_NORMAL,
    ),
    "excess_kurtosis": _Recipe(
        Mended(
            NormalSample("excess_kurtosis", Smooth(_on_panels(smooth.excess_kurtosis), reciprocal(-3.0), (4.0, 0.0))),
            "excess_kurtosis",
            exact_moments=True,
        ),
        8.0,
        "for normal weights Anscombe and Glynn's transform, corrected by simulated quantiles up to 10 000 weights "
        "(without which low values are three times as frequent as stated at n = 100 and 0.001); "
        f"for others {_EXPANSION}",
        (0.03, 0.065),
        fewest_normal=_FEWEST_NORMAL,
    ),
    "largest_magnitude": _Recipe(Largest(), 6.0, _MAXIMUM, _OF_LARGEST, fewest_normal=_FEWEST_NORMAL),
    "l_scale": _Recipe(
        NearlyFlat(_on_panels(smooth.l_scale), lambda n: math.sqrt((n + 1.0) / (3.0 * n)), 1e-3),
        4.0,
        f"{_EXPANSION}; for uniform weights, which have the largest L-scale of all, conservative in the upper tail",
    ),
    "l_skewness": _Recipe(Odd(smooth.l_skewness_influence), 2.0, _EXPANSION),
    "l_kurtosis": _Recipe(Smooth(_on_panels(smooth.l_kurtosis), IDENTITY, (9.5, 0.0)), 2.0, _EXPANSION),
    "entropy_residual": _Recipe(
        _counted("entropy_residual", cells.entropy_residual, _negative_divergence), 4.0, _COUNTED
    ),
    "kl_matched_normal": _Recipe(
        _counted(
            "entropy_residual",
            partial(cells.divergence, of_core=False),
            lambda parent: reference_law(parent).divergence,
            lambda n: 0.5 / n,
        ),
        4.0,
        _COUNTED,
    ),
    "core_sigma": _Recipe(Smooth(_core_sigma), 4.0, _EXPANSION),
    "kl_core_normal": _Recipe(
        _counted(
            "kl_core_normal",
            partial(cells.divergence, of_core=True),
            lambda parent: reference_law(parent).core_divergence,
        ),
        4.0,
        _COUNTED,
    ),
    "histogram_entropy_residual": _Recipe(
        Estimated(cells.histogram_residual, _negative_divergence),
        4.0,
        "given the range, the counts in its bins and their noise",
    ),
    "kde_entropy_residual": _Recipe(
        Mended(Estimated(cells.kernel_residual, _negative_divergence), "kde_entropy_residual"),
        4.0,
        f"log-normal law with the cumulants of a quadratic form in the convolved noise; {_MENDED}",
    ),
    "max_to_q99": _Recipe(
        OfLargest(tails.LargestToQuantile, tails.product_largest_to_quantile), 0.0, _MAXIMUM, _OF_LARGEST, (0.03, 0.06)
    ),
    "gini": _Recipe(Smooth(_on_panels(smooth.gini)), 2.0, _EXPANSION),
    "q90_to_q10": _Recipe(Smooth(_decile_ratio, logarithm(), (-5.0, 0.0)), 0.0, _EXPANSION),
    "log10_tail_probability": _Recipe(
        OfLargest(tails.tail_probability, tails.product_tail_probability), 0.0, _MAXIMUM, _OF_LARGEST
    ),
    "weibull_shape": _Recipe(
        Smooth(lambda parent: weibull_plot(parent).sample_shape, logarithm(), (0.8, 0.0)), 0.0, _EXPANSION
    ),
    "weibull_scale": _Recipe(
        Smooth(lambda parent: _to_rms(weibull_plot(parent).sample_log_scale), logarithm()), 4.0, _EXPANSION
    ),
    "weibull_r_squared": _Recipe(
        Mended(NearlyFlat(lambda parent: weibull_plot(parent).sample_r_squared, lambda _: 1.0), "weibull_r_squared"),
        0.0,
        f"{_EXPANSION}; {_MENDED}",
    ),
    "weibull_closure": _Recipe(Smooth(std_closure, logarithm(-1.0), (5.3, 0.0)), 4.0, _EXPANSION),
    "body_tail_gap": _Recipe(
        Smooth(lambda parent: body_tail_gap(parent, Fraction(1, 10), Fraction(0)), IDENTITY, (-10.0, -27.0)),
        0.0,
        f"{_EXPANSION}; the bias of order ln n/n, below 0.06 standard deviations, is left out",
    ),
    "weibull_shape_ml": _Recipe(
        Smooth(_on_panels(lambda grid: smooth.maximum_likelihood(grid)[0]), logarithm(), (1.5, 0.0)), 0.0, _EXPANSION
    ),
    "weibull_scale_ml": _Recipe(
        Smooth(_on_panels(lambda grid: _to_rms(smooth.maximum_likelihood(grid)[1]))), 4.0, _EXPANSION
    ),
}


def _require_recipe(statistic: object, parent: Parent) -> _Recipe:
    if not isinstance(statistic, str) or statistic not in _RECIPES:
        raise ParameterError("statistic", statistic, f"one of {', '.join(_RECIPES)}")
    recipe = _RECIPES[statistic]
    if parent.moment_order() <= recipe.order:
        raise ParameterError(
            "distribution", parent, f"a law with finite moments to order {recipe.order:g} for the null of {statistic}"
        )
    return recipe


def element_null(statistic: str, n: int, distribution: str | Parent = "normal") -> ElementNull:
    """Return the law of an element statistic of n independent weights.

    ``statistic`` is one of ``rmtbase.statistics.ELEMENT_STATISTICS``; ``distribution`` is the law of a weight, as in
    :func:`weibull_anchor`, whose σ does not matter. ``n`` is at least 100; at least 20 for the mean, skewness, excess
    kurtosis and largest magnitude of normal weights.

    Raises:
        ParameterError: for an unknown statistic, too few weights, an unknown distribution, or a distribution without
            the moments that the spread of the statistic requires.
    """
    parent = require_parent(distribution)
    recipe, n = _require_recipe(statistic, parent), require_positive_integer("n", n)
    fewest = recipe.fewest_normal if isinstance(parent, Normal) else _FEWEST
    if n < fewest:
        raise ParameterError("n", n, f"at least {fewest} weights")
    return _element_null(statistic, parent, (n,), recipe.method(False))


def product_element_null(
    statistic: str, d_query: int, d_head: int, d_key: int, distribution: str | Parent = "normal"
) -> ElementNull:
    """Return the law of an element statistic of all d_query × d_key elements of one W_QK = W_Qᵀ W_K.

    ``statistic`` and ``distribution``, that of the entries of the factors, are as for :func:`element_null`. W_QK has at
    least 32 rows, d_query, and columns, d_key, and elements of d_head ≥ 3 products, 8 if the entries are not normal.

    Raises:
        ParameterError: for an unknown statistic or distribution, dimensions that are smaller or not positive integers,
            or a distribution whose tails fall more slowly than those of a normal law.
    """
    entry = require_parent(distribution)
    sizes = {"d_query": d_query, "d_head": d_head, "d_key": d_key}
    shape = tuple(require_positive_integer(name, value) for name, value in sizes.items())
    for name, value, least in zip(sizes, shape, (_FEWEST_ROWS, _FEWEST_TERMS, _FEWEST_ROWS), strict=True):
        if value < least:
            raise ParameterError(name, value, f"at least {least} for the null of the elements of W_QK")
    parent = element_of_product(entry, shape[1])
    return _element_null(statistic, parent, shape, _require_recipe(statistic, parent).method(True))


@lru_cache(maxsize=512)
def _laws(statistic: str, parent: Parent, of_product: bool) -> Laws:
    law = _RECIPES[statistic].law
    if of_product:
        assert isinstance(parent, Element)
        return law.product(parent)
    return law.independent(parent)


@lru_cache(maxsize=8192)
def _element_null(statistic: str, parent: Parent, shape: tuple[int, ...], method: str) -> ElementNull:
    laws = _laws(statistic, parent, len(shape) > 1)
    size = (shape[0], shape[-1]) if len(shape) > 1 else shape
    return ElementNull(statistic, shape, parent, laws.at(*size), laws.limit, method)
