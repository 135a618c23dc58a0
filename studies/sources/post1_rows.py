"""Statements of post 1 about the elements of heads, beside values of one model: figures 5-11 and 14-20."""

from __future__ import annotations

import numpy as np
import xarray as xr
from scipy import optimize, stats

from rmtbase.laws import product_element
from rmtbase.statistics import element_sketch, element_statistics
from studies.sources.recipe import Null, Row, Run
from studies.sources.statements import Heads, chance, early, here, measured, of_elements, of_many, trend, verdict

BOTH = ("W_Q", "W_QK")
GPT2 = (768, 64)
"""d and d_h of the random product in figure 14."""
_PLACES = ("post 1, figure 16", "post 1, figure 17")
_OF_FIGURE_20 = "needs meta-llama/Llama-3.1-8B and mistralai/Mistral-7B-v0.3"


def rows(run: Run, tree: xr.DataTree) -> list[Row]:
    """Every statement about values, of this model."""
    found = [_of_query(run, tree), _along_layers(run, tree), _amplified(run, tree), _entropy(tree), _fitted(tree)]
    return [row for group in (*found, _divergence(run, tree), _moments(tree)) for row in group]


def histogram_width(density: np.ndarray, centre: np.ndarray) -> float:
    """σ of the normal density that is nearest, by least squares, to a histogram's, in the histogram's unit."""

    def left(parameters: np.ndarray) -> np.ndarray:
        return stats.norm.pdf(centre, parameters[0], np.exp(parameters[1])) - density

    return float(np.exp(optimize.least_squares(left, (0.0, 0.0)).x[1]))


def fitted_by_histogram(tree: xr.DataTree, component: str) -> Heads:
    """Fit the width over σ of every head to its histogram by least squares; the mean is the null law's fit."""
    elements, there = measured(tree, component)
    centre = elements["bin"].values
    edges = np.append(centre, 2 * centre[-1] - centre[-2]) - 0.5 * (centre[1] - centre[0])
    values = np.array([histogram_width(one, centre) for one in elements["histogram"].values[there]])
    below = stats.norm.cdf(edges)
    if component == "W_QK" and "d_head" in tree.attrs:
        law = product_element(int(tree.attrs["d_model"]), int(tree.attrs["d_head"]))
        below = law.cdf(edges * float(law.std()))
    null = histogram_width(np.diff(below) / np.diff(edges), centre)
    layer = np.broadcast_to(np.arange(there.shape[0])[:, None], there.shape)[there]
    return Heads(values, np.full_like(values, null), np.full_like(values, np.nan), layer)


def _first_layer(heads: Heads) -> Heads:
    return heads.where(heads.layer == heads.layer.min())


def _share(probability: float, count: int, of: str = "random heads") -> Null:
    """Null of a share of heads, each of which counts with this probability."""
    return Null(probability, float(np.sqrt(probability * (1.0 - probability) / count)), of=of)


def _of_query(run: Run, tree: xr.DataTree) -> list[Row]:
    sigma = _first_layer(of_elements(tree, "sigma", "W_Q")).value
    elements = tree["heads/elements"].to_dataset().sel(component="W_Q")
    number = float(np.nanmedian((elements["n_rows"] * elements["n_columns"]).values))
    chance_spread = 1.0 / np.sqrt(2.0 * number)
    spread = float(sigma.std(ddof=1) / sigma.mean()) if sigma.size > 1 else float("nan")
    null = Null(chance_spread, chance_spread / np.sqrt(2.0 * max(sigma.size - 1, 1)), of="heads of one σ")
    words = "standard deviation of σ of W_Q over its mean, heads of the first layer"
    said = verdict(run, spread > 3 * chance_spread)
    rows = [Row("post 1, figure 5", words, "distinct widths", spread, null, said)]
    kurtosis, skewness = (_first_layer(of_elements(tree, name, "W_Q")) for name in ("excess_kurtosis", "skewness"))
    normal, place = kurtosis.share_within(), "post 1, figure 6"
    words = "share of heads of the first layer whose kurtosis is in 95 % of the null"
    null, said = _share(0.95, kurtosis.value.size), verdict(run, 0.0 < normal < 0.95)
    rows.append(Row(place, words, "some, not all", normal, null, said))
    found, words = float(np.median(skewness.value)), "skewness of W_Q, median head of the first layer"
    said = verdict(run, found < 0.0)
    return [*rows, Row(place, words, "heavier tails on the negative side", found, skewness.null(), said)]


def _along_layers(run: Run, tree: xr.DataTree) -> list[Row]:
    rows = []
    for name, what in (("sigma", "σ"), ("entropy", "entropy")):
        one = of_elements(tree, name, "W_Q")
        means = one.by_layer()
        found, place = trend(np.arange(means.size), means, "layers"), "post 1, figure 8"
        words, said = f"layer average of {what} of W_Q against layer: Spearman's ρ", verdict(run, found.value < -0.5)
        rows.append(Row(place, words, "a general decrease", found.value, found.null, said))
        reach = float(np.ptp(means))
        if reach == 0.0:
            continue
        within = float(np.mean([one.value[one.layer == layer].std() for layer in np.unique(one.layer)])) / reach
        words = f"{what}: standard deviation within a layer over the range of the layer averages"
        rows.append(Row(place, words, "of a similar scale", within, None, verdict(run, 1 / 3 < within < 3)))
        rise = float((means[-max(1, means.size // 4) :].mean() - means.min()) / reach)
        words = f"{what}: rise from the lowest layer to the last quarter, over the range"
        said = verdict(run, rise > 0.1, "gpt2-xl")
        rows.append(Row("post 1, figure 9", words, "a resurgence", rise, None, said))
    return rows


def _amplified(run: Run, tree: xr.DataTree) -> list[Row]:
    query, product = (of_elements(tree, "excess_kurtosis", one) for one in BOTH)
    place, rows = "post 1, figure 10", []
    for name, one, published in (("W_Q", query, "approximately Gaussian"), ("W_QK", product, "heavy tails")):
        outside = f"{100 * (1 - one.share_within()):.3g} % of the heads are outside 95 % of the null"
        found = float(np.median(one.value))
        said = here(found < 0.5 if name == "W_Q" else found > float(np.median(one.mean)))
        words = f"excess kurtosis of {name}, median head"
        rows.append(Row(place, words, published, found, one.null(), said, note=outside))
    excess = tuple(float(np.median(one.value - one.mean)) for one in (product, query))
    words, note = "excess kurtosis beyond the null's, median head: W_QK, W_Q", "a random W_QK has about 6/h of its own"
    null, said = Null(0.0, of="random heads"), here(excess[0] > excess[1])
    rows.append(Row(place, words, "W_QK amplifies deviations", _two(*excess), null, said, note=note))
    skewness = _first_layer(of_elements(tree, "skewness", "W_QK"))
    found, words = float(np.median(skewness.value)), "skewness of W_QK, median head of the first layer"
    rows.append(Row(place, words, "a heavier negative tail", found, skewness.null(), verdict(run, found < 0.0)))
    outside, words = 1.0 - product.share_within(), "share of heads whose kurtosis of W_QK is outside 95 % of the null"
    null, said = _share(0.05, product.value.size), verdict(run, outside > 0.5)
    return [*rows, Row("post 1, figure 11", words, "tails clearly wider", outside, null, said)]


def _entropy(tree: xr.DataTree) -> list[Row]:
    rows, found, place = [], {}, "post 1, figure 15"
    for component in BOTH:
        residual, kurtosis = (of_elements(tree, name, component) for name in ("entropy_residual", "excess_kurtosis"))
        found[component] = float(np.median(residual.value))
        if component == "W_Q":
            words, said = "entropy of W_Q less the normal law's, median head (nats)", here(abs(found[component]) < 0.05)
            published = "tightly along the normal law"
            rows.append(Row("post 1, figure 14", words, published, found[component], residual.null(), said))
        below = residual.value < 0
        share, words = float(np.mean(below)), f"share of heads with a negative residual, {component}"
        null = _share(float(np.mean(stats.norm.cdf(-residual.mean / residual.spread))), below.size)
        note = "no law has a positive one: errata 13"
        rows.append(Row(place, words, "predominantly negative", share, null, here(share > 0.5), note=note))
        heavier = float(np.mean(kurtosis.value[below] > kurtosis.mean[below])) if below.any() else None
        words, null = (
            f"of these the share with heavier tails than the null's, {component}",
            Null(0.5, of="about, random heads"),
        )
        note = "the sign of a residual does not tell light from heavy tails: errata 13"
        rows.append(Row(place, words, "sub-Gaussian", heavier, null, "corrected", note=note))
    words, said = "median residual (nats): W_QK, W_Q", here(found["W_QK"] < found["W_Q"])
    return [
        _random_product(),
        *rows,
        Row(place, words, "W_QK systematically more negative", _two(*reversed(found.values())), None, said),
    ]


def _random_product() -> Row:
    """Compare a random product of the post's own shape with the law of its elements."""
    q, k = np.random.default_rng(0).standard_normal((2, *reversed(GPT2)))
    residual = float(element_statistics(element_sketch([q.T @ k]), ("entropy_residual",))[0])
    null = Null(-float(product_element(*GPT2).kl_to_normal()), of="exact, of the law")
    words = f"entropy of a random W_QK {GPT2}, drawn, less the normal law's (nats)"
    return Row("post 1, figure 14", words, "falls on the normal law", residual, null, here(abs(residual) < 0.01))


def _fitted(tree: xr.DataTree) -> list[Row]:
    rows, published = [], "slightly smaller than 1"
    for component, place in zip(BOTH, _PLACES, strict=True):
        words, null = f"σ_fit/σ of {component} by maximum likelihood", Null(1.0, 0.0, of="any sample")
        note = "it is the standard deviation: errata 14"
        rows.append(Row(place, words, published, 1.0, null, "corrected", note=note))
        kinds = {"the core": of_elements(tree, "core_sigma", component)}
        kinds["least squares on a histogram"] = fitted_by_histogram(tree, component)
        for fit, one in kinds.items():
            found, words = float(np.median(one.value)), f"σ_fit/σ of {component} by {fit}, median head"
            said, note = here(found < float(np.median(one.mean))), "smaller: heavier tails than the null's"
            rows.append(Row(place, words, published, found, one.null(), said, note=note))
    core, sigma = (of_elements(tree, name, "W_QK") for name in ("core_sigma", "sigma"))
    free = 1.0 - core.value**2
    for words, value, note in (
        ("σ² − σ_fit²", sigma.value**2 * free, "σ² itself grows with σ"),
        ("1 − σ_fit²/σ²", free, "free of scale: this tells whether the shape goes with σ"),
    ):
        found, words = trend(sigma.value, value, "heads"), f"{words} of W_QK, core, against σ: Spearman's ρ"
        said = of_many(found.value > 0)
        rows.append(Row("post 1, figure 18", words, "grows with σ", found.value, found.null, said, note=note))
    return rows


def _divergence(run: Run, tree: xr.DataTree) -> list[Row]:
    query, product = (of_elements(tree, "kl_matched_normal", component) for component in BOTH)
    rows = []
    for component, one, place in zip(BOTH, (query, product), _PLACES, strict=True):
        first = early(one)
        means = [float(one.value[chosen].mean()) if chosen.any() else float("nan") for chosen in (first, ~first)]
        words = f"divergence of {component} from normal (nats), mean: first quarter of layers, the others"
        said = verdict(run, means[0] > means[1])
        rows.append(Row(place, words, "largest in the early layers", _two(*means), one.null(), said))
    note = f"nulls {np.median(product.mean):.2g} and {np.median(query.mean):.2g}"
    for place, which, of in ((_PLACES[1], "median", np.median), ("post 1, figure 19", "largest", np.max)):
        both, words = (float(of(product.value)), float(of(query.value))), f"divergence, {which} head (nats): W_QK, W_Q"
        said = here(both[0] > both[1])
        rows.append(Row(place, words, "W_QK substantially larger", _two(*both), None, said, note=note))
    top = query.value >= np.quantile(query.value, 0.9)
    sigma = of_elements(tree, "sigma", "W_Q").value
    middle = (sigma > np.quantile(sigma, 0.25)) & (sigma < np.quantile(sigma, 0.75))
    share, words = float(middle[top].mean()), "share of the largest tenth of divergences of W_Q at the middle half of σ"
    null, said = chance(middle, int(top.sum())), of_many(share > 0.5)
    return [*rows, Row("post 1, figure 19", words, "concentrates at intermediate σ", share, null, said)]


def _moments(tree: xr.DataTree) -> list[Row]:
    place = "post 1, figure 20"
    skewness, kurtosis = (of_elements(tree, name, "W_QK") for name in ("skewness", "excess_kurtosis"))
    room = kurtosis.value + 2.0 - skewness.value**2
    mean, spread = float(np.median(kurtosis.mean)) + 2.0, float(np.median(kurtosis.spread))
    words, null, said = (
        "κ − γ² − 1 of W_QK, smallest of all heads",
        Null(mean, spread, of="one head"),
        here(room.min() >= 0),
    )
    rows = [Row(place, words, "at least 0", float(room.min()), null, said, note="true of any sample")]
    near, words = float(np.mean(room < mean - 4 * spread)), "share of heads nearer to Pearson's bound than random ones"
    null, note = Null(0.0, of="random heads"), "nearer by four standard deviations; recipe `cross`"
    return [*rows, Row(place, words, "at or near the bound", near, null, _OF_FIGURE_20, note=note)]


def _two(*both: float) -> str:
    return ", ".join(f"{one:.3g}" for one in both)
