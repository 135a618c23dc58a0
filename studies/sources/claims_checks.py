"""Checks of claims: computation for laws and printed numbers, the run's model for statements about checkpoints."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.stats import binom, spearmanr, ttest_ind, wasserstein_distance

from rmtbase import laws
from rmtbase.laws import low_rank_product, naive_marchenko_pastur, null, product_element
from rmtbase.linalg import product_singular_values
from rmtbase.models import Model
from rmtbase.results import open_table
from rmtbase.results.comparison import TRANSMISSION, weibull_scales
from rmtbase.results.scores.figures._statistic_by_layer import PUBLISHED_BAND
from rmtbase.results.trajectory.schema import scores_at
from studies.sources.course import STUDIES, TWINS, course, steps_of
from studies.sources.first import thin_of
from studies.sources.published import published_table
from studies.sources.recipe import Null, Run
from studies.sources.spectra import COMPONENTS
from studies.sources.training import RAPID, courses, way_gone
from studies.sources.training_figures import NAMES, middle, references

GPT2 = (768, 64)
POST_1 = (1000, 500)
PYTHIA_SHAPES = ((512, 64), (5120, 128))
"""(d_model, d_head) of Pythia-70m and Pythia-12B."""
NPR = "normalized_participation_ratio"
LEAST_APART = {"GQA": 1.10 - 0.99, "fused": 1.05 - 0.99}
"""Of the published ranges of k: that of MHA ends at 0.99, those of GQA and fused matrices begin at 1.10 and 1.05."""
_LAYERS_TO_TELL = 6
_SEED = 0


class Found(NamedTuple):
    """Result of a check.

    Attributes:
        observed: a number or words; None if nothing is observed here.
        null: the same quantity for weights that learned nothing, if it is a number.
        holds: whether the claim holds here; None if this model, or no model, can decide it.
        note: a few words.
    """

    observed: float | str | None = None
    null: Null | None = None
    holds: bool | None = None
    note: str = ""


@dataclass(frozen=True)
class Evidence:
    """Evidence for the checks: the run's model, its scores, its scores along training if known, and the twins."""

    run: Run

    @cached_property
    def along(self) -> xr.DataTree | None:
        """Scores along training, or None."""
        return course(self.run)

    @cached_property
    def scores(self) -> xr.DataTree:
        """Scores of the last checkpoint."""
        return self.run.scores() if self.along is None else scores_at(self.along, steps_of(self.along)[-1])

    @cached_property
    def heads(self) -> xr.Dataset:
        """Group /heads of the scores."""
        return self.scores["heads"].to_dataset()

    @cached_property
    def matrices(self) -> xr.Dataset:
        """Group /matrices of the scores."""
        return self.scores["matrices"].to_dataset()

    @cached_property
    def twins(self) -> xr.DataTree:
        """The comparison of studies/attention_twins."""
        return open_table(TWINS, "comparison")

    def twin_contrast(self, contrast: str, measure: str) -> tuple[float, float, float]:
        """Change from one group of twins to another at the last step, and its 95 % interval."""
        one = self.twins["groups"].to_dataset().sel(contrast=contrast, measure=measure)
        change, low, high = (float(one[name]) for name in ("difference", "interval_low", "interval_high"))
        return change, low, high

    def queries_and_keys(self, statistic: str, what: str) -> np.ndarray:
        """Select a score of the query and key matrices, fused or not, (layer, component)."""
        held = self.matrices["component"].values.tolist()
        wanted = [one for one in ("attention_query", "attention_key", "attention_query_key_value") if one in held][:2]
        chosen = self.matrices[what].sel(statistic=statistic, component=wanted)
        return chosen.transpose("layer", "component").values


def rank_of_a_product(_: Evidence) -> Found:
    rng = np.random.default_rng(_SEED)
    q, k = rng.standard_normal((2, 16, 64))
    rank = int(np.linalg.matrix_rank(q.T @ k))
    return Found(rank, Null(16, of="d_head"), rank == 16, "one draw, d = 64")


def spectrum_of_one_matrix(_: Evidence) -> Found:
    values = np.linalg.svd(np.random.default_rng(_SEED).standard_normal((300, 300)), compute_uv=False)
    law = laws.marchenko_pastur(300, 300)
    below = (np.arange(300) + 0.5) / 300
    distance = float(np.abs(law.cdf(np.sort(values**2)) - below).max())
    return Found(distance, None, distance < 0.02, "largest distance of the distribution functions, one draw, d = 300")


def gap_of_the_product(_: Evidence) -> Found:
    low, high = low_rank_product(*POST_1).support
    return Found(float(np.sqrt(low / high)), None, low > 0, "in singular values, d = 1000, d_h = 500; 0 at d_h = d")


def width_of_an_element(_: Evidence) -> Found:
    ratios = [product_element(1000, h).std() / math.sqrt(h / 1000) for h in (100, 250, 500, 750, 1000)]
    return Found(round(max(ratios), 9), Null(1.0), max(abs(ratio - 1) for ratio in ratios) < 1e-9, "five d_h, W_QK/√d")


def divergence_at_200(_: Evidence) -> Found:
    kl = product_element(1000, 200).kl_to_normal()
    return Found(kl, None, kl < 1e-4, "of the law; a histogram's bias is above it (errata, 6)")


def dependence_of_elements(_: Evidence) -> Found:
    d, h = GPT2
    z = 6.0 / h / math.sqrt(24.0 / d**2)
    note = f"6/d_h over √(24/d²) at ({d}, {h}), before any learning; of the spectrum the structure is all (errata, 2)"
    return Found(z, Null(0.0, 1.0, of="Gaussian matrix"), abs(z) < 1.96, note)


def residual_is_divergence(_: Evidence) -> Found:
    law = product_element(*GPT2)
    rest = law.entropy() - float(laws.normal_entropy(law.std())) + law.kl_to_normal()
    return Found(round(abs(rest), 9), Null(0.0), abs(rest) < 1e-9, "sum of the two, element of W_QK")


def kurtosis_of_queries_and_keys(evidence: Evidence) -> Found:
    """Compare with normal up to 0.5, as the recipe ``post1`` does; the null of large matrices is much narrower."""
    z = evidence.queries_and_keys("excess_kurtosis", "z_score")
    kurtosis = evidence.queries_and_keys("excess_kurtosis", "observed")
    found = float(np.median(kurtosis[np.isfinite(kurtosis)]))
    share = float(np.mean(np.abs(z[np.isfinite(z)]) < 1.96))
    note = f"{100 * share:.0f} % of matrices within 95 % of the null"
    return Found(found, Null(0.0, of="normal entries"), abs(found) < 0.5, note)


def width_by_layer(evidence: Evidence) -> Found:
    sigma = evidence.heads["sigma_q"].mean("head").values
    return _by_layer(sigma)


def _rank_correlation(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return Spearman's rank correlation and its p-value."""
    found = spearmanr(x, y)
    return float(found.statistic), float(found.pvalue)  # pyright: ignore[reportAttributeAccessIssue]


def _of_transmission(values: xr.DataArray) -> xr.DataArray:
    """Select the components of the Transmission Class that the model has."""
    return values.sel(component=[name for name in TRANSMISSION if name in values["component"].values])


def _by_layer(values: np.ndarray, falls: bool = True) -> Found:
    """Correlate values with the layer by rank, and test whether they fall (or rise) beyond chance."""
    known = np.isfinite(values)
    r, p = _rank_correlation(np.flatnonzero(known), values[known])
    note = f"{int(known.sum())} layers" + (f", p = {p:.2g}" if np.isfinite(p) else "")
    holds = bool((r < 0) == falls and p < 0.05) if known.sum() >= _LAYERS_TO_TELL else None
    return Found(r, Null(0.0, of="untrained"), holds, note + ("" if holds is not None else ": too few to tell"))


def kurtosis_of_a_product(_: Evidence) -> Found:
    kurtosis = 6.0 / GPT2[1]
    law = product_element(*GPT2)
    measured = float(law.moment(4) / law.moment(2) ** 2 - 3.0)
    assert math.isclose(kurtosis, measured, rel_tol=1e-6)
    return Found(None, Null(kurtosis, of="at (768, 64), 6/d_head"), None, "kurtosis of W_QK beyond this, not beyond 0")


def width_is_quadratic(_: Evidence) -> Found:
    ratio = product_element(*GPT2, sigma_q=2.0, sigma_k=2.0).std() / product_element(*GPT2).std()
    return Found(ratio, Null(4.0), math.isclose(ratio, 4.0), "for all weights, trained or not")


def entropy_at_gpt2(_: Evidence) -> Found:
    law = product_element(*GPT2)
    rest = law.entropy() - float(laws.normal_entropy(law.std()))
    return Found(rest, Null(-3 / (4 * GPT2[1] ** 2), of="−3/(4 d_h²)"), abs(rest) < 1e-3, "below what the figure shows")


def kurtosis_by_layer(evidence: Evidence) -> Found:
    return _by_layer(np.abs(evidence.queries_and_keys("excess_kurtosis", "observed")[:, 0]))


def pearson_s_bound(_: Evidence) -> Found:
    """Check that two points with weights p and 1 − p have the least kurtosis that their skewness allows."""
    excess = []
    for p in (0.5, 0.2, 0.05):
        points, weights = np.array([0.0, 1.0]), np.array([1.0 - p, p])
        z = (points - p) / math.sqrt(p * (1.0 - p))
        excess.append(float(weights @ z**4) - float(laws.pearson_bound(float(weights @ z**3))))
    return Found(
        round(max(map(abs, excess)), 9), Null(0.0), max(map(abs, excess)) < 1e-9, "kurtosis of two points less γ² + 1"
    )


def edge_beyond_marchenko_pastur(_: Evidence) -> Found:
    ratio = low_rank_product(*GPT2).support[1] / naive_marchenko_pastur(*GPT2).support[1]
    return Found(ratio, Null(1.0, of="if it did"), bool(abs(ratio - 1) < 0.01), "upper edges in λ at (768, 64)")


def wider_than_marchenko_pastur(_: Evidence) -> Found:
    both = [one(*GPT2) for one in (low_rank_product, naive_marchenko_pastur)]
    product, naive = (one.var() / one.mean() ** 2 for one in both)
    return Found(product / naive, Null(2.0, of="exact in the limit"), product > naive, "relative variances of λ")


def departure_without_learning(_: Evidence) -> Found:
    d, h = GPT2
    plain, uniform = (null(NPR, d_model=d, d_head=h, excess_kurtosis=one) for one in (0.0, -1.2))
    shift = (uniform.mean() - plain.mean()) / plain.std()
    note = "entries of another initial law move the spectrum of untrained heads; and 5 % of heads have p ≤ 0.05"
    return Found(shift, Null(0.0, of="Gaussian entries"), bool(abs(shift) < 0.1), note)


def npr_is_free_of_scale(_: Evidence) -> Found:
    d, h = GPT2
    one = null(NPR, d_model=d, d_head=h).mean()
    moved = null(NPR, d_model=d, d_head=h, sigma_q=3.0, sigma_k=0.1).mean() - one
    note = f"null at ({d}, {h}), σ_Q = 3 and σ_K = 0.1 less that at 1 and 1"
    return Found(round(abs(moved), 9), Null(0.0), abs(moved) < 1e-9, note)


def entropy_against_width(evidence: Evidence) -> Found:
    """Correlate the entropy of trained heads with Σλ; that of random heads has no scale, and decides nothing."""
    heads = evidence.heads["observed"]
    trace, entropy = (heads.sel(statistic=name).values.ravel() for name in ("trace", "spectral_entropy"))
    known = np.isfinite(trace) & np.isfinite(entropy)
    r, _ = _rank_correlation(trace[known], entropy[known])
    return Found(r, Null(0.0, float(1.0 / np.sqrt(known.sum() - 1)), of="random heads"), abs(r) < 0.5,
                 f"{int(known.sum())} heads; Σλ, which is d² σ², for σ")  # fmt: skip


def npr_within_null(evidence: Evidence) -> Found:
    p = evidence.heads["p_value"].sel(statistic=NPR).values
    share = float(np.mean(p[np.isfinite(p)] > 0.05))
    singular = evidence.heads["p_value"].sel(statistic=f"{NPR}_singular").values
    other = float(np.mean(singular[np.isfinite(singular)] > 0.05))
    return Found(share, Null(0.95, of="random heads"), share > 0.5, f"of s: {other:.2g}; errata, 4 and 8")


def largest_by_layer(evidence: Evidence) -> Found:
    return _by_layer(evidence.heads["observed"].sel(statistic="largest_eigenvalue").mean("head").values)


def npr_and_entropy(evidence: Evidence) -> Found:
    heads = evidence.heads["observed"]
    own = [heads.sel(statistic=name).values.ravel() for name in (NPR, "spectral_entropy")]
    known = np.isfinite(own[0])
    observed = float(np.corrcoef(own[0][known], own[1][known])[0, 1])
    d = int(evidence.scores.attrs.get("d_model", GPT2[0]))
    h = int(evidence.heads.sizes["index"])
    rng = np.random.default_rng(_SEED)
    drawn = []
    for _ in range(100):
        q, k = (np.asarray(np.linalg.qr(rng.standard_normal((d, h)), mode="r")) for _ in range(2))
        values = np.linalg.svd(q @ k.T, compute_uv=False) ** 2
        p = values / values.sum()
        drawn.append((1.0 / (h * float(p @ p)), -float(p @ np.log(p))))
    expected = float(np.corrcoef(np.array(drawn).T)[0, 1])
    return Found(
        observed,
        Null(expected, of=f"100 random heads ({d}, {h})"),
        observed > 0.9,
        "so that it says nothing of learning",
    )


def npr_by_size(_: Evidence) -> Found:
    return _by_size(NPR)


def entropy_by_size(_: Evidence) -> Found:
    return _by_size("spectral_entropy")


def condition_by_size(_: Evidence) -> Found:
    return _by_size("condition_number")


def _by_size(statistic: str) -> Found:
    small, large = (null(statistic, d_model=d, d_head=h).mean() for d, h in PYTHIA_SHAPES)
    note = f"untrained: {small:.4g} for Pythia-70m, {large:.4g} for 12B, on λ"
    return Found(None, Null(None, None, min(small, large), max(small, large), "untrained, by size"), None, note)


def means_before_training(evidence: Evidence) -> Found:
    """Compare means of the run's matrices at step 0, or of matrices with Pythia-70m's sizes if step 0 is unknown."""
    table = published_table("weibull-table-5")
    d, layers = (int(table.number("Pythia-70m", name)) for name in ("width", "layers"))
    sizes, observed = np.tile([3 * d * d, d * d, 4 * d * d, 4 * d * d], layers), None
    if evidence.along is not None and steps_of(evidence.along)[0] == 0:
        held = evidence.along["matrices"].to_dataset().isel(step=0)
        sizes = (held["n_rows"] * held["n_columns"]).values.ravel()
        sizes = sizes[sizes > 0]
        observed = 100 * float(np.abs(held["observed"].sel(statistic="mean")).max())
    drawn = np.abs(np.random.default_rng(_SEED).standard_normal((4000, sizes.size)) / np.sqrt(sizes)).max(axis=1)
    low, high = (100 * float(one) for one in np.quantile(drawn, [0.025, 0.975]))
    null_ = Null(None, None, low, high, "% of σ, 95 % of untrained models")
    chance = float(np.mean(drawn < 0.003))
    holds = None if observed is None else observed < 0.3
    return Found(observed, null_, holds, f"chance of less than 0.3 % in {sizes.size} matrices: {chance:.2g}")


def r_squared_of_the_null(evidence: Evidence) -> Found:
    value = laws.weibull_anchor().r_squared
    found = float(_of_transmission(evidence.matrices["observed"]).sel(statistic="weibull_r_squared").min())
    note = "no test of anything: untrained weights pass"
    return Found(found, Null(value, of="half-normal weights"), found >= 0.99, note)


def band_of_the_twins(evidence: Evidence) -> Found:
    along = evidence.twins["along/members"].to_dataset()["value"].sel(measure="transmission weibull_shape")
    low, high = PUBLISHED_BAND
    first, shape = along.isel(step=0).values, along.isel(step=-1).values
    before, inside = (float(np.mean((one >= low) & (one <= high))) for one in (first, shape))
    note = f"{shape.size} small twins, k from {shape.min():.3f} to {shape.max():.3f}; fused GELU ones are lowest"
    return Found(inside, Null(before, of="the same before training"), inside == 1.0, note)


def unfitted(evidence: Evidence) -> Found:
    """Explain that no k is fitted if every query or key matrix has exact zeros, as quantised matrices may."""
    return Found(
        None, note=f"no k of queries and keys is fitted to {evidence.run.label}, whose weights have exact zeros"
    )


def queries_and_keys_below(evidence: Evidence) -> Found:
    z = evidence.queries_and_keys("weibull_shape", "z_score")
    z = z[np.isfinite(z)]
    if not z.size:
        return unfitted(evidence)
    below = int(np.sum(z < -1.96))
    p = float(binom.sf(below - 1, z.size, 0.025))
    return Found(below / z.size, Null(0.025, of="untrained"), p < 0.01, f"{below} of {z.size}, p = {p:.1g}")


def mha_against_gqa(evidence: Evidence) -> Found:
    change, low, high = evidence.twin_contrast("gqa | mha", "attention_key weibull_shape")
    note = (
        f"95 %: {low:+.3f} to {high:+.3f}, small models on the same bytes; published −{LEAST_APART['GQA']:.2f} at least"
    )
    return Found(change, Null(0.0), low <= -LEAST_APART["GQA"], note)


def fused_against_separate(evidence: Evidence) -> Found:
    """Compare the fused matrix as stored, values included, as the paper fits it, with separate queries and keys."""
    members = evidence.twins["members"].to_dataset()
    group_of = members["group_of"].values

    def shape(component: str, group: str) -> np.ndarray:
        return members["value"].sel(measure=f"{component} weibull_shape").values[group_of == group]

    fused = shape("attention_query_key_value", "neox")
    separate = 0.5 * (shape("attention_query", "mha") + shape("attention_key", "mha"))
    change = float(fused.mean() - separate.mean())
    low, high = ttest_ind(fused, separate, equal_var=False).confidence_interval(0.95)
    note = (
        f"95 %: {low:+.3f} to {high:+.3f}, small models; published +{LEAST_APART['fused']:.2f} at least. "
        "Its parts have unequal σ, which lowers k by itself"
    )
    return Found(change, Null(0.0), bool(high >= LEAST_APART["fused"]), note)


def with_qk_norm(evidence: Evidence) -> Found:
    change, low, high = evidence.twin_contrast("gqa | qk-norm", "attention_key weibull_shape")
    return Found(change, Null(0.0), low > 0, f"95 %: {low:+.3f} to {high:+.3f}; controlled, in small models")


def with_less_budget(evidence: Evidence) -> Found:
    change, low, high = evidence.twin_contrast("gqa | gqa, little decay", "attention_key weibull_shape")
    return Found(change, Null(0.0), low > 0, f"95 %: {low:+.3f} to {high:+.3f}, T/τ from 9 to 0.3; in small models")


def order_of_five(_: Evidence) -> Found:
    budgets = published_table("weibull-table-3").numbers("budget")
    ties = math.prod(math.factorial(budgets.count(one)) for one in set(budgets))
    chance = ties / math.factorial(len(budgets))
    return Found(None, Null(chance, of="chance of the order"), None, "the five medians are not printed")


def depth_of_selection(evidence: Evidence) -> Found:
    shape = evidence.queries_and_keys("weibull_shape", "observed").mean(axis=1)
    if np.isnan(shape).all():
        return unfitted(evidence)
    return Found(
        float((np.nanargmin(shape) + 0.5) / shape.size), Null(0.5, of="any layer"), None, f"{shape.size} layers"
    )


def shape_and_scale_of_the_twins(evidence: Evidence) -> Found:
    members = evidence.twins["members"].to_dataset()["value"]
    shape, scale = (members.sel(measure=f"transmission {one}").values for one in ("weibull_shape", "scale"))
    r, p = _rank_correlation(shape, scale)
    by_sampling = Null(laws.weibull_null().correlation, of="of k̂ and λ̂ by sampling")
    return Found(r, by_sampling, p > 0.05, f"{shape.size} small twins of five recipes, p = {p:.1g}")


def retreat_of_the_scale(evidence: Evidence) -> Found:
    if evidence.along is None:
        return Found(None)
    scale = (
        weibull_scales(evidence.along["matrices"].to_dataset()).sel(component="attention_output").mean("layer").values
    )
    at = steps_of(evidence.along)[int(np.argmax(scale))]
    return Found(float(scale[-1] / scale.max()), Null(1.0), bool(scale[-1] < 0.99 * scale.max()), f"peak at step {at}")


def near_zero_of_square_matrices(evidence: Evidence) -> Found:
    expected = float(laws.marchenko_pastur(128, 128, 128**-0.5).cdf(0.01))
    found = _residual_depth(evidence)
    if found is None:
        return Found(None, Null(expected, of="Gaussian square matrix"))
    own = [one["near_zero"] for one in found if one["shape"][0] == one["shape"][1]]
    return Found(float(np.median(own)), Null(expected, of="Gaussian square matrix"), bool(min(own) > expected),
                 f"median of {len(own)} square matrices (studies/residual_depth)")  # fmt: skip


def formed_by_a_tenth(evidence: Evidence) -> Found:
    """Check early formation as the recipe ``training`` does: on the follow-up's own matrices, not on W_QK."""
    if evidence.along is None:
        return Found(None)
    run = courses(evidence.run)[0]
    gone = way_gone(run, 0.1)
    return Found(gone, Null(0.1, of="evenly"), None if gone is None else gone > RAPID, f"{run.name}; recipe training")


def norm_of_a_path(_: Evidence) -> Found:
    each = [laws.ResidualPath(depth, 1.0).mean() / 2.0**depth for depth in (1, 4, 16)]
    return Found(
        round(max(each), 9), Null(1.0), max(abs(one - 1) for one in each) < 1e-9, "of P itself it is 2^L times this"
    )


def depth_of_trained_matrices(evidence: Evidence) -> Found:
    found = _residual_depth(evidence)
    if found is None:
        return Found(None)
    fits = [one["fits"]["path wasserstein"] for one in found]
    depths = [one["depth"] for one in fits]
    count = sum(one["fits"] for one in fits)
    note = f"of {len(fits)} matrices; nearest depths {min(depths)} to {max(depths)} (studies/residual_depth)"
    return Found(count, Null(0.95 * len(fits), of="true paths, at p > 0.05"), count > len(fits) / 2, note)


def depth_by_layer(evidence: Evidence) -> Found:
    found = _residual_depth(evidence)
    if found is None:
        return Found(None)
    depths = [one["fits"]["path wasserstein"]["depth"] for one in found if one["component"] == "attention_output"]
    out = [one["fits"]["path wasserstein"]["depth"] for one in found if one["component"] == "mlp_out"]
    words = f"attention output {', '.join(map(str, depths))}; MLP out {', '.join(map(str, out))}"
    return Found(words, Null(1.0), depths[0] > depths[-1] and out[0] > out[-1], "nearest depth, layer by layer")


def _residual_depth(evidence: Evidence) -> list[dict[str, Any]] | None:
    """Read the demo's trained matrices from studies/residual_depth; None for another model."""
    if evidence.run.model != "demo":
        return None
    return json.loads((STUDIES / "residual_depth" / "results.json").read_text(encoding="utf-8"))["trained"]["final"]


def spread_of_seeds(evidence: Evidence) -> Found:
    members = evidence.twins["along/members"].to_dataset()
    own = members["value"].sel(measure="transmission scale").transpose("model", "step").values
    own = own[members["group_of"].values == "gqa, little decay"]
    growth = own[:, -1] - own[:, 0]
    ratio = float(growth.std(ddof=1) / growth.mean())
    return Found(ratio, None, ratio < 0.05, f"{len(own)} seeds of one recipe (twins, little decay)")


def between_noise_and_one_value(evidence: Evidence) -> Found:
    """Share of heads that differ from the null and have a participation ratio above 2."""
    heads = evidence.heads
    beyond = heads["p_value"].sel(statistic=NPR).values < 0.05
    modes = heads["observed"].sel(statistic="participation_ratio").values
    known = np.isfinite(modes)
    share = float(np.mean((beyond & (modes > 2.0))[known]))
    return Found(
        share, Null(0.05, of="random heads"), share > 0.5, f"NPR outside 95 %, PR of λ above 2, {known.sum()} heads"
    )


def moments_of_the_product(_: Evidence) -> Found:
    """Compare the relative variance of the pooled eigenvalues of drawn heads with the law's."""
    d, h = GPT2
    q, k = np.random.default_rng(_SEED).standard_normal((2, 50, h, d))
    values = (product_singular_values(q, k) ** 2).ravel()
    law = low_rank_product(d, h)
    ratio = float(values.var() / values.mean() ** 2 / (law.var() / law.mean() ** 2))
    return Found(
        ratio, Null(1.0, of="law of the product"), abs(ratio - 1.0) < 0.02, "relative variance of λ, 50 heads drawn"
    )


def low_npr_and_heavy_tails(evidence: Evidence) -> Found:
    found = evidence.run.arrays("npr-and-kurtosis", _npr_and_kurtosis)
    r, _ = _rank_correlation(found["npr"], found["kurtosis"])
    error = float(1.0 / np.sqrt(found["npr"].size - 1))
    note = f"{found['npr'].size} heads; NPR of λ, excess kurtosis of W_QK's elements"
    return Found(r, Null(0.0, error, of="random heads"), r < -1.96 * error, note)


def _npr_and_kurtosis(model: Model) -> dict[str, np.ndarray]:
    npr, kurtosis = [], []
    for site in range(len(model.sites)):
        values = thin_of(model, site) ** 2
        npr += (values.sum(axis=1) ** 2 / (values**2).sum(axis=1) / values.shape[1]).tolist()
        queries, keys = np.asarray(model.queries(site)), np.asarray(model.keys(site))
        for head, query in enumerate(queries):
            one = query.T @ keys[head // (len(queries) // len(keys))]
            kurtosis.append(float(np.mean((one - one.mean()) ** 4) / one.var() ** 2) - 3.0)
    return {"npr": np.array(npr), "kurtosis": np.array(kurtosis)}


def full_data_underestimates(evidence: Evidence) -> Found:
    whole, body = laws.weibull_anchor(0.0).shape, laws.weibull_anchor().shape
    held = _of_transmission(evidence.matrices["observed"])
    share = 100 * float((held.sel(statistic="body_tail_gap") / held.sel(statistic="weibull_shape")).median())
    null_ = Null(100 * (1.0 - whole / body), of="half-normal weights, which have no tail")
    return Found(share, null_, 3.0 <= share <= 7.0, "median matrix of the Transmission Class")


def drift_of_the_classes(evidence: Evidence) -> Found:
    if evidence.along is None:
        return Found(None)
    shape = evidence.along["matrices"].to_dataset()["observed"].sel(statistic="weibull_shape")
    change = (shape.isel(step=-1) - shape.isel(step=0)).transpose("layer", "component")
    held = change["component"].values.tolist()
    classes = (TRANSMISSION, ("attention_query", "attention_key", "attention_query_key_value"))
    both = [float(np.nanmedian(change.sel(component=[name for name in one if name in held]))) for one in classes]
    words = f"Transmission {both[0]:+.3f}, Selection {both[1]:+.3f}"
    return Found(words, Null(0.0, of="untrained"), None, "of one model; the published ones are of twelve")


def ratio_at_the_end(evidence: Evidence) -> Found:
    if evidence.along is None:
        return Found(None)
    scale = weibull_scales(evidence.along["matrices"].to_dataset()).mean("layer")
    fused = "attention_query_key_value" in scale["component"].values
    reads = "attention_query_key_value" if fused else "attention_query"
    pairs = ((reads, "attention_output"), ("mlp_in", "mlp_out"))
    ratios = [(scale.sel(component=into) / scale.sel(component=out)).values for into, out in pairs]
    first, last = (float(np.mean([one[at] for one in ratios])) for at in (0, -1))
    return Found(last, Null(first, of="the same before training"), abs(last - 1.2) < 0.1, "mean of both pairs")


def spectra_and_elements(_: Evidence) -> Found:
    w = np.random.default_rng(_SEED).standard_t(4, (64, 48))
    ratio = float((np.linalg.svd(w, compute_uv=False) ** 2).sum() / (w**2).sum())
    return Found(
        round(ratio, 9), Null(1.0, of="an identity"), False, "Σλ over Σw²: the scale of either is that of the other"
    )


def resurgence(evidence: Evidence) -> Found:
    """Test whether σ of W_Q rises again over the last half of the layers."""
    sigma = evidence.heads["sigma_q"].mean("head").values
    return _by_layer(sigma[len(sigma) // 2 :], falls=False)


def output_nearest_to_gaussian(evidence: Evidence) -> Found:
    """Compare distances of the middle layer's spectra from Gaussian ones; much nearer means half as far."""
    course_ = courses(evidence.run)[0]
    distances = {}
    for name in COMPONENTS:
        one = middle(course_.spectra[-1], name)
        if one is not None:
            gaussian = references(one.rows, one.columns, 4)[0]
            distances[NAMES[name]] = float(wasserstein_distance(one.values, gaussian.ravel()))
    output = distances.pop(NAMES["attention_output"], None)
    if output is None or not distances:
        return Found(None)
    others = ", ".join(f"{name} {value:.2g}" for name, value in distances.items())
    null_ = Null(0.0, of="independent elements")
    return Found(
        output, null_, output < 0.5 * min(distances.values()), f"{others}; {course_.name} of the recipe training"
    )


CHECKS: dict[str, Callable[[Evidence], Found]] = {
    one.__name__: one
    for one in (
        rank_of_a_product, spectrum_of_one_matrix, gap_of_the_product, width_of_an_element, divergence_at_200,
        dependence_of_elements, residual_is_divergence, kurtosis_of_queries_and_keys, width_by_layer,
        kurtosis_of_a_product, width_is_quadratic, entropy_at_gpt2, kurtosis_by_layer, pearson_s_bound,
        edge_beyond_marchenko_pastur, wider_than_marchenko_pastur, departure_without_learning, npr_is_free_of_scale,
        entropy_against_width, npr_within_null, largest_by_layer, npr_and_entropy, npr_by_size, entropy_by_size,
        condition_by_size, means_before_training, r_squared_of_the_null, band_of_the_twins, queries_and_keys_below,
        mha_against_gqa, fused_against_separate, with_qk_norm, with_less_budget, order_of_five, depth_of_selection,
        shape_and_scale_of_the_twins, retreat_of_the_scale, near_zero_of_square_matrices, formed_by_a_tenth,
        norm_of_a_path, depth_of_trained_matrices, depth_by_layer, spread_of_seeds, between_noise_and_one_value,
        moments_of_the_product, low_npr_and_heavy_tails, full_data_underestimates, drift_of_the_classes,
        ratio_at_the_end, spectra_and_elements, resurgence, output_nearest_to_gaussian,
    )
}  # fmt: skip
"""By the names that ``claims.json`` uses."""
