"""Checks of claims that need no model: statements about random matrices, and about the twins of another study."""

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy import stats

from rmtbase import laws
from rmtbase.laws import low_rank_product, naive_marchenko_pastur, null, product_element
from rmtbase.linalg import product_singular_values
from rmtbase.results import open_table
from studies.sources.course import TWINS
from studies.sources.published import PUBLISHED_BAND
from studies.sources.recipe import Null
from studies.sources.statements import correlation_claim, identity, rank_correlation
from studies.sources.verdicts import Claim, Kind, Side, beyond_normal, within

GPT2 = (768, 64)
POST_1 = (1000, 500)
NPR = "normalized_participation_ratio"
LEAST_APART = {"GQA": 1.10 - 0.99, "fused": 1.05 - 0.99}
"""Of the published ranges of k: that of MHA ends at 0.99, those of GQA and fused matrices begin at 1.10 and 1.05."""
ROUNDING = 1e-9
INDEPENDENT = 0.5
"""Margin of *independent*: of the rank correlation."""
_Z_95 = 1.96
_SEED = 0


class Found(NamedTuple):
    """Result of a check.

    Attributes:
        observed: a number or words; None if nothing is observed here.
        null: the same quantity for weights that learned nothing, if it is a number.
        claim: what decides it; None if this model, or no model, can.
        note: a few words.
    """

    observed: float | str | None = None
    null: Null | None = None
    claim: Claim | None = None
    note: str = ""


def _equal(observed: float, expected: float, margin: float = ROUNDING) -> Claim:
    """Claim that a number is another one, up to a margin."""
    return within(observed, expected, margin, kind=Kind.LAW)


def rank_of_a_product() -> Found:
    q, k = np.random.default_rng(_SEED).standard_normal((2, 16, 64))
    rank = int(np.linalg.matrix_rank(q.T @ k))
    return Found(rank, Null(16, of="d_head"), _equal(rank, 16), "one draw, d = 64")


def spectrum_of_one_matrix() -> Found:
    values = np.linalg.svd(np.random.default_rng(_SEED).standard_normal((300, 300)), compute_uv=False)
    below = (np.arange(300) + 0.5) / 300
    distance = float(np.abs(laws.marchenko_pastur(300, 300).cdf(np.sort(values**2)) - below).max())
    note = "largest distance of the distribution functions, one draw, d = 300; follows: within ln(d)/d"
    return Found(distance, None, Claim(Kind.LAW, distance, high=math.log(300) / 300), note)


def gap_of_the_product() -> Found:
    low, high = low_rank_product(*POST_1).support
    gap = float(np.sqrt(low / high))
    return Found(gap, None, Claim(Kind.LAW, gap, low=ROUNDING), "in singular values, d = 1000, d_h = 500; 0 at d_h = d")


def width_of_an_element() -> Found:
    ratios = [product_element(1000, h).std() / math.sqrt(h / 1000) for h in (100, 250, 500, 750, 1000)]
    farthest = max(ratios, key=lambda ratio: abs(ratio - 1))
    return Found(round(farthest, 9), Null(1.0), _equal(farthest, 1.0), "five d_h, W_QK/√d")


def divergence_at_200() -> Found:
    kl = product_element(1000, 200).kl_to_normal()
    note = "of the law; negligible: below 10⁻⁴; a histogram's bias is above it (errata, 6)"
    return Found(kl, None, Claim(Kind.LAW, kl, high=1e-4), note)


def dependence_of_elements() -> Found:
    d, h = GPT2
    z = 6.0 / h / math.sqrt(24.0 / d**2)
    note = f"6/d_h over √(24/d²) at ({d}, {h}), before any learning; of the spectrum the structure is all (errata, 2)"
    return Found(z, Null(0.0, 1.0, of="Gaussian matrix"), within(z, 0.0, _Z_95, kind=Kind.LAW), note)


def residual_is_divergence() -> Found:
    law = product_element(*GPT2)
    rest = law.entropy() - float(laws.normal_entropy(law.std())) + law.kl_to_normal()
    return Found(round(abs(rest), 9), Null(0.0), _equal(rest, 0.0), "sum of the two, element of W_QK")


def width_is_quadratic() -> Found:
    ratio = product_element(*GPT2, sigma_q=2.0, sigma_k=2.0).std() / product_element(*GPT2).std()
    return Found(ratio, Null(4.0), _equal(ratio, 4.0), "for all weights, trained or not")


def entropy_at_gpt2() -> Found:
    law = product_element(*GPT2)
    rest = law.entropy() - float(laws.normal_entropy(law.std()))
    note = "below what the figure shows: within 10⁻³"
    return Found(rest, Null(-3 / (4 * GPT2[1] ** 2), of="−3/(4 d_h²)"), _equal(rest, 0.0, 1e-3), note)


def pearson_s_bound() -> Found:
    """Check that two points with weights p and 1 − p have the least kurtosis that their skewness allows."""
    excess = []
    for p in (0.5, 0.2, 0.05):
        points, weights = np.array([0.0, 1.0]), np.array([1.0 - p, p])
        z = (points - p) / math.sqrt(p * (1.0 - p))
        excess.append(float(weights @ z**4) - float(laws.pearson_bound(float(weights @ z**3))))
    most = max(map(abs, excess))
    return Found(round(most, 9), Null(0.0), _equal(most, 0.0), "kurtosis of two points less γ² + 1")


def edge_beyond_marchenko_pastur() -> Found:
    ratio = low_rank_product(*GPT2).support[1] / naive_marchenko_pastur(*GPT2).support[1]
    note = "upper edges in λ at (768, 64); follows: within 1 %"
    return Found(ratio, Null(1.0, of="if it did"), _equal(ratio, 1.0, 0.01), note)


def wider_than_marchenko_pastur() -> Found:
    product, naive = (law(*GPT2).var() / law(*GPT2).mean() ** 2 for law in (low_rank_product, naive_marchenko_pastur))
    ratio = product / naive
    wider = Claim(Kind.LAW, ratio, low=1.0 + ROUNDING)
    return Found(ratio, Null(2.0, of="exact in the limit"), wider, "relative variances of λ")


def departure_without_learning() -> Found:
    d, h = GPT2
    plain, uniform = (null(NPR, d_model=d, d_head=h, excess_kurtosis=kurtosis) for kurtosis in (0.0, -1.2))
    shift = (uniform.mean() - plain.mean()) / plain.std()
    note = (
        "entries of another initial law move the spectrum of untrained heads; and 5 % of heads have p ≤ 0.05; "
        "none: within 0.1"
    )
    return Found(shift, Null(0.0, of="Gaussian entries"), _equal(shift, 0.0, 0.1), note)


def npr_is_free_of_scale() -> Found:
    d, h = GPT2
    mean = null(NPR, d_model=d, d_head=h).mean()
    moved = null(NPR, d_model=d, d_head=h, sigma_q=3.0, sigma_k=0.1).mean() - mean
    note = f"null at ({d}, {h}), σ_Q = 3 and σ_K = 0.1 less that at 1 and 1"
    return Found(round(abs(moved), 9), Null(0.0), _equal(moved, 0.0), note)


def moments_of_the_product() -> Found:
    """Compare the relative variance of the pooled eigenvalues of drawn heads with the law's."""
    d, h = GPT2
    q, k = np.random.default_rng(_SEED).standard_normal((2, 50, h, d))
    values = (product_singular_values(q, k) ** 2).ravel()
    law = low_rank_product(d, h)
    ratio = float(values.var() / values.mean() ** 2 / (law.var() / law.mean() ** 2))
    note = "relative variance of λ, 50 heads drawn; well: within 2 %"
    return Found(ratio, Null(1.0, of="law of the product"), _equal(ratio, 1.0, 0.02), note)


def norm_of_a_path() -> Found:
    each = [laws.ResidualPath(depth, 1.0).mean() / 2.0**depth for depth in (1, 4, 16)]
    farthest = max(each, key=lambda norm: abs(norm - 1))
    return Found(round(farthest, 9), Null(1.0), _equal(farthest, 1.0), "of P itself it is 2^L times this")


def spectra_and_elements() -> Found:
    w = np.random.default_rng(_SEED).standard_t(4, (64, 48))
    ratio = float((np.linalg.svd(w, compute_uv=False) ** 2).sum() / (w**2).sum())
    orthogonal = identity(abs(ratio - 1.0) > ROUNDING)
    return Found(round(ratio, 9), Null(1.0, of="an identity"), orthogonal,
                 "Σλ over Σw²: the scale of either is that of the other")  # fmt: skip


@cache
def twins() -> xr.DataTree:
    """Open the comparison of studies/attention_twins."""
    return open_table(TWINS, "comparison")


def _contrast(contrast: str) -> tuple[float, float, str]:
    """Change of k of keys from one group of twins to another at the last step, its error, and its 95 % interval."""
    groups = twins()["groups"].to_dataset().sel(contrast=contrast, measure="attention_key weibull_shape")
    change, low, high = (float(groups[name]) for name in ("difference", "interval_low", "interval_high"))
    return change, (high - low) / (2 * _Z_95), f"95 %: {low:+.3f} to {high:+.3f}"


def band_of_the_twins() -> Found:
    along = twins()["along/members"].to_dataset()["value"].sel(measure="transmission weibull_shape")
    low, high = PUBLISHED_BAND
    first, shape = along.isel(step=0).values, along.isel(step=-1).values
    before, inside = (float(np.mean((k >= low) & (k <= high))) for k in (first, shape))
    note = f"{shape.size} small twins, k from {shape.min():.3f} to {shape.max():.3f}; fused GELU ones are lowest"
    return Found(inside, Null(before, of="the same before training"), Claim(Kind.PRINTED, inside, low=1.0), note)


def mha_against_gqa() -> Found:
    change, error, interval = _contrast("gqa | mha")
    note = f"{interval}, small models on the same bytes; published −{LEAST_APART['GQA']:.2f} at least"
    return Found(change, Null(0.0), Claim(Kind.PRINTED, change, high=-LEAST_APART["GQA"], error=error), note)


def fused_against_separate() -> Found:
    """Compare the fused matrix as stored, values included, as the paper fits it, with separate queries and keys."""
    members = twins()["members"].to_dataset()
    group_of = members["group_of"].values

    def shape(component: str, group: str) -> np.ndarray:
        return members["value"].sel(measure=f"{component} weibull_shape").values[group_of == group]

    fused = shape("attention_query_key_value", "neox")
    separate = 0.5 * (shape("attention_query", "mha") + shape("attention_key", "mha"))
    change = float(fused.mean() - separate.mean())
    low, high = stats.ttest_ind(fused, separate, equal_var=False).confidence_interval(0.95)
    note = (
        f"95 %: {low:+.3f} to {high:+.3f}, small models; published +{LEAST_APART['fused']:.2f} at least. "
        "Its parts have unequal σ, which lowers k by itself"
    )
    error = float(high - low) / (2 * _Z_95)
    return Found(change, Null(0.0), Claim(Kind.PRINTED, change, low=LEAST_APART["fused"], error=error), note)


def with_qk_norm() -> Found:
    change, error, interval = _contrast("gqa | qk-norm")
    claim = beyond_normal(change, 0.0, error, Side.ABOVE)
    return Found(change, Null(0.0, error), claim, f"{interval}; controlled, in small models")


def with_less_budget() -> Found:
    change, error, interval = _contrast("gqa | gqa, little decay")
    claim = beyond_normal(change, 0.0, error, Side.ABOVE)
    return Found(change, Null(0.0, error), claim, f"{interval}, T/τ from 9 to 0.3; in small models")


def shape_and_scale_of_the_twins() -> Found:
    members = twins()["members"].to_dataset()["value"]
    shape, scale = (members.sel(measure=f"transmission {name}").values for name in ("weibull_shape", "scale"))
    r = float(rank_correlation(shape, scale))
    by_sampling = Null(laws.weibull_null().correlation, of="of k̂ and λ̂ by sampling")
    note = f"{shape.size} small twins of five recipes; independent: within ± {INDEPENDENT:g}"
    return Found(r, by_sampling, correlation_claim(r, shape.size, INDEPENDENT), note)


LAWS: dict[str, Callable[[], Found]] = {
    check.__name__: check
    for check in (
        rank_of_a_product, spectrum_of_one_matrix, gap_of_the_product, width_of_an_element, divergence_at_200,
        dependence_of_elements, residual_is_divergence, width_is_quadratic, entropy_at_gpt2, pearson_s_bound,
        edge_beyond_marchenko_pastur, wider_than_marchenko_pastur, departure_without_learning, npr_is_free_of_scale,
        moments_of_the_product, norm_of_a_path, spectra_and_elements, band_of_the_twins, mha_against_gqa,
        fused_against_separate, with_qk_norm, with_less_budget, shape_and_scale_of_the_twins,
    )
}  # fmt: skip
"""By the names that ``claims.json`` uses."""
