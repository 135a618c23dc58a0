"""Statements of post 1 about the elements of heads, beside values of one model: figures 5-11 and 14-20."""

import numpy as np
import xarray as xr
from scipy import optimize, stats

from rmtbase.laws import product_element
from rmtbase.statistics import element_sketch, element_statistics
from studies.sources.recipe import Null, Row, Run
from studies.sources.statements import (
    Compared,
    Heads,
    Scored,
    along_layers,
    beside_random,
    early,
    here,
    identity,
    learned,
    measured,
    median,
    of_elements,
    of_many,
    rank_correlation,
    scored,
    verdict,
)
from studies.sources.verdicts import Claim, Kind, Side, Verdict, beyond_chance, corrected, most, needs, within

BOTH = ("W_Q", "W_QK")
GPT2 = (768, 64)
"""d and d_h of the random product in figure 14."""
_PLACES = ("post 1, figure 16", "post 1, figure 17")
_OF_FIGURE_20 = "meta-llama/Llama-3.1-8B and mistralai/Mistral-7B-v0.3"
NORMAL_KURTOSIS = 0.5
"""Margin of *approximately Gaussian*: of most heads the excess kurtosis is smaller than this."""
NEAR_ENTROPY = 0.05
"""Margin of *tightly along the normal law*, in nats."""
SIMILAR = 3.0
"""Margin of *of a similar scale*: no more than so many times larger or smaller."""


def rows_of(run: Run) -> list[Row]:
    """Every statement about values, of the run's model; none if its heads lack the statistics."""
    tree = scored(run)
    if not all(measured(tree, component)[1].any() for component in BOTH):
        return []
    return rows(run, beside_random(run, tree))


def rows(run: Run, both: Scored) -> list[Row]:
    """Every statement about values, of this model."""
    groups = [_of_query(run, both), _along_layers(run, both), _amplified(run, both), _entropy(both), _fitted(both)]
    return [row for group in (*groups, _divergence(run, both), _moments(both)) for row in group]


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


def _fitted_beside_random(both: Scored, component: str) -> Heads:
    """Fit the widths of the model's heads, and those of random heads."""
    own = fitted_by_histogram(both.tree, component)
    if both.random is None:
        return own
    there = measured(both.random.tree, component)[1]
    drawn = np.full(there.shape, np.nan)
    drawn[there] = fitted_by_histogram(both.random.tree, component).value
    return own._replace(
        drawn=both.random.values(drawn, measured(both.tree, component)[1]), widening=both.random.widening
    )


def _first_layer(heads: Heads) -> Heads:
    return heads.where(heads.layer == heads.layer.min())


def _share(probability: float, count: int, of: str = "random heads") -> Null:
    """Null of a share of heads, each of which counts with this probability."""
    return Null(probability, float(np.sqrt(probability * (1.0 - probability) / count)), of=of)


def _variation(value: np.ndarray) -> np.ndarray:
    """Divide the standard deviation by the mean."""
    if value.shape[-1] < 2:
        return np.full(value.shape[:-1], np.nan)
    return value.std(axis=-1, ddof=1) / value.mean(axis=-1)


def _of_query(run: Run, both: Scored) -> list[Row]:
    sigma = _first_layer(of_elements(both, "sigma", "W_Q"))
    words = "standard deviation of σ of W_Q over its mean, heads of the first layer"
    spread = learned(_variation, Side.ABOVE, sigma)
    rows = [_row("post 1, figure 5", words, "distinct widths", spread, verdict(run, spread.claim))]
    kurtosis, skewness = (_first_layer(of_elements(both, name, "W_Q")) for name in ("excess_kurtosis", "skewness"))
    outside, count = int(np.sum(~kurtosis.within())), kurtosis.value.size
    words = "share of heads of the first layer whose kurtosis is in 95 % of the null"
    claim = beyond_chance(
        1.0 - outside / count,
        float(stats.binom.cdf(outside, count, 0.05)),
        float(stats.binom.sf(outside - 1, count, 0.05)),
        Side.BELOW,
    )
    claim = claim if outside < count else Claim(claim.kind, 0.0, 1.0, 0.0)  # none is normal, where some were said to be
    rows.append(Row("post 1, figure 6", words, "some, not all", 1.0 - outside / count, _share(0.95, count),
                    verdict(run, claim)))  # fmt: skip
    words, lean = "skewness of W_Q, median head of the first layer", learned(median, Side.BELOW, skewness)
    said = verdict(run, lean.claim)
    return [*rows, _row("post 1, figure 6", words, "heavier tails on the negative side", lean, said)]


def _row(place: str, words: str, published: float | str, compared: Compared, said: Verdict, note: str = "",
         observed: str | None = None) -> Row:  # fmt: skip
    """Row of a number that is compared with random heads."""
    return Row(place, words, published, observed or compared.value, compared.null, said, note=note)


def _along_layers(run: Run, both: Scored) -> list[Row]:
    rows = []
    for name, what in (("sigma", "σ"), ("entropy", "entropy")):
        one = of_elements(both, name, "W_Q")
        means = one.by_layer()
        words, fall = f"layer average of {what} of W_Q against layer: Spearman's ρ", along_layers(one, Side.BELOW)
        rows.append(_row("post 1, figure 8", words, "a general decrease", fall, verdict(run, fall.claim)))
        reach = float(np.ptp(means))
        if reach == 0.0:
            continue
        spreads = np.array([one.value[one.layer == layer].std() for layer in np.unique(one.layer)])
        ratio = float(spreads.mean()) / reach
        error = float(spreads.std(ddof=1) / spreads.mean() / np.sqrt(spreads.size)) if spreads.size > 1 else np.nan
        words = f"{what}: standard deviation within a layer over the range of the layer averages"
        claim = within(float(np.log(ratio)) if ratio > 0 else None, 0.0, float(np.log(SIMILAR)), error)
        note = f"similar: within a factor of {SIMILAR:g}; so are random heads"
        rows.append(Row("post 1, figure 8", words, "of a similar scale", ratio, None, verdict(run, claim), note=note))
        words = f"layer average of {what} of W_Q against layer, last half: Spearman's ρ"
        rise = along_layers(one, Side.ABOVE, slice(means.size // 2, None))
        said = verdict(run, rise.claim, "gpt2-xl")
        rows.append(_row("post 1, figure 9", words, "a resurgence", rise, said))
    return rows


def _amplified(run: Run, both: Scored) -> list[Row]:
    query, product = (of_elements(both, "excess_kurtosis", one) for one in BOTH)
    place, rows = "post 1, figure 10", []
    for name, one, published in (("W_Q", query, "approximately Gaussian"), ("W_QK", product, "heavy tails")):
        outside = f"{100 * (1 - one.share_within()):.3g} % of the heads are outside 95 % of the null"
        words, heavy = f"excess kurtosis of {name}, median head", learned(median, Side.ABOVE, one)
        if name == "W_Q":
            claim = most(np.abs(one.value) < NORMAL_KURTOSIS)
            outside += f"; approximately: smaller than {NORMAL_KURTOSIS:g} in most heads"
            rows.append(_row(place, words, published, heavy, here(claim), outside))
        else:
            rows.append(_row(place, words, published, heavy, here(heavy.claim), outside))
    excess = tuple(float(np.median(one.value - np.median(one.mean))) for one in (product, query))
    over = np.median(product.mean) - np.median(query.mean)
    words = "excess kurtosis beyond the null's, median head: W_QK, W_Q"
    more = learned(
        lambda of_product, of_query: median(of_product) - median(of_query) - over, Side.ABOVE, product, query
    )
    note = "the null is of their difference; a random W_QK has about 6/h of its own"
    rows.append(_row(place, words, "W_QK amplifies deviations", more, here(more.claim), note, _two(*excess)))
    skewness = _first_layer(of_elements(both, "skewness", "W_QK"))
    words, lean = "skewness of W_QK, median head of the first layer", learned(median, Side.BELOW, skewness)
    rows.append(_row(place, words, "a heavier negative tail", lean, verdict(run, lean.claim)))
    high = np.median(product.mean) + 1.96 * np.median(product.spread)
    words = "share of heads whose kurtosis of W_QK is above 97.5 % of random heads"
    wider = learned(lambda value: np.mean(value > high, axis=-1), Side.ABOVE, product)
    return [*rows, _row("post 1, figure 11", words, "tails clearly wider", wider, verdict(run, wider.claim))]


def _entropy(both: Scored) -> list[Row]:
    rows, place = [], "post 1, figure 15"
    residuals = {component: of_elements(both, "entropy_residual", component) for component in BOTH}
    for component, residual in residuals.items():
        kurtosis = of_elements(both, "excess_kurtosis", component)
        if component == "W_Q":
            words = "entropy of W_Q less the normal law's, median head (nats)"
            claim = most(np.abs(residual.value) < NEAR_ENTROPY)
            level = learned(median, Side.BELOW, residual)
            note = f"tightly: most heads within {NEAR_ENTROPY:g}"
            published = "tightly along the normal law"
            rows.append(_row("post 1, figure 14", words, published, level, here(claim), note))
        words = f"share of heads with a negative residual, {component}"
        negative = learned(lambda value: np.mean(value < 0, axis=-1), Side.ABOVE, residual)
        note = "no law has a positive one: errata 13"
        rows.append(_row(place, words, "predominantly negative", negative, here(negative.claim), note))
        below = residual.value < 0
        heavier = float(np.mean(kurtosis.value[below] > kurtosis.mean[below])) if below.any() else None
        words = f"of these the share with heavier tails than the null's, {component}"
        null, note = Null(0.5, of="about, random heads"), "the sign of a residual does not tell light from heavy tails"
        rows.append(Row(place, words, "sub-Gaussian", heavier, null, corrected("errata, 13"), note=note))
    words, (query, product) = "median residual (nats): W_QK, W_Q", (residuals[one] for one in BOTH)
    more = learned(lambda of_product, of_query: median(of_product) - median(of_query), Side.BELOW, product, query)
    medians = _two(*(float(np.median(one.value)) for one in (product, query)))
    note = "the null is of their difference"
    published = "W_QK systematically more negative"
    return [_random_product(), *rows, _row(place, words, published, more, here(more.claim), note, medians)]


def _random_product() -> Row:
    """Compare a random product of the post's own shape with the law of its elements."""
    q, k = np.random.default_rng(0).standard_normal((2, *reversed(GPT2)))
    residual = float(element_statistics(element_sketch([q.T @ k]), ("entropy_residual",))[0])
    null = Null(-float(product_element(*GPT2).kl_to_normal()), of="exact, of the law")
    words = f"entropy of a random W_QK {GPT2}, drawn, less the normal law's (nats)"
    claim = within(residual, 0.0, 0.01, float(np.sqrt(0.5) / GPT2[0]), Kind.LAW)
    return Row("post 1, figure 14", words, "falls on the normal law", residual, null, here(claim), note="within 0.01")


def _fitted(both: Scored) -> list[Row]:
    rows, published = [], "slightly smaller than 1"
    for component, place in zip(BOTH, _PLACES, strict=True):
        words, null = f"σ_fit/σ of {component} by maximum likelihood", Null(1.0, 0.0, of="any sample")
        note = "it is the standard deviation"
        rows.append(Row(place, words, published, 1.0, null, corrected("errata, 14"), note=note))
        kinds = {"the core": of_elements(both, "core_sigma", component)}
        kinds["least squares on a histogram"] = _fitted_beside_random(both, component)
        for fit, one in kinds.items():
            words, smaller = f"σ_fit/σ of {component} by {fit}, median head", learned(median, Side.BELOW, one)
            note = "smaller: heavier tails than the null's"
            rows.append(_row(place, words, published, smaller, here(smaller.claim), note))
    core, sigma = (of_elements(both, name, "W_QK") for name in ("core_sigma", "sigma"))
    for words, power, note in (
        ("σ² − σ_fit²", 2, "σ² itself grows with σ"),
        ("1 − σ_fit²/σ²", 0, "free of scale: this tells whether the shape goes with σ"),
    ):

        def grown(width: np.ndarray, ratio: np.ndarray, power: int = power) -> np.ndarray:
            return rank_correlation(width, width**power * (1.0 - ratio**2))

        words, rise = f"{words} of W_QK, core, against σ: Spearman's ρ", learned(grown, Side.ABOVE, sigma, core)
        rows.append(_row("post 1, figure 18", words, "grows with σ", rise, of_many(rise.claim), note))
    return rows


def _divergence(run: Run, both: Scored) -> list[Row]:
    query, product = (of_elements(both, "kl_matched_normal", component) for component in BOTH)
    rows = []
    for component, one, place in zip(BOTH, (query, product), _PLACES, strict=True):
        first = early(one)
        means = [float(one.value[chosen].mean()) if chosen.any() else float("nan") for chosen in (first, ~first)]

        def excess(value: np.ndarray, first: np.ndarray = first) -> np.ndarray:
            if first.all():
                return np.full(np.shape(value)[:-1], np.nan)
            return value[..., first].mean(axis=-1) - value[..., ~first].mean(axis=-1)

        words = f"divergence of {component} from normal (nats), mean: first quarter of layers, the others"
        larger = learned(excess, Side.ABOVE, one, is_level=False)
        said, note = verdict(run, larger.claim), "the null is of their difference"
        rows.append(_row(place, words, "largest in the early layers", larger, said, note, _two(*means)))
    note = (
        f"the null is of their difference; one head's is {np.median(product.mean):.2g} and {np.median(query.mean):.2g}"
    )
    for place, which, of in ((_PLACES[1], "median", np.median), ("post 1, figure 19", "largest", np.max)):

        def more(of_product: np.ndarray, of_query: np.ndarray, of=of) -> np.ndarray:
            return of(of_product, axis=-1) - of(of_query, axis=-1)

        values, words = (
            (float(of(product.value)), float(of(query.value))),
            f"divergence, {which} head (nats): W_QK, W_Q",
        )
        larger = learned(more, Side.ABOVE, product, query)
        rows.append(_row(place, words, "W_QK substantially larger", larger, here(larger.claim), note, _two(*values)))
    width = of_elements(both, "sigma", "W_Q")

    def at_middle(divergence: np.ndarray, sigma: np.ndarray) -> np.ndarray:
        low, high, top = (
            np.quantile(values, share, axis=-1, keepdims=True)
            for values, share in ((sigma, 0.25), (sigma, 0.75), (divergence, 0.9))
        )
        middle, extreme = (sigma > low) & (sigma < high), divergence >= top
        return (middle & extreme).sum(axis=-1) / extreme.sum(axis=-1)

    words = "share of the largest tenth of divergences of W_Q at the middle half of σ"
    share = learned(at_middle, Side.ABOVE, query, width, is_level=False)
    return [*rows, _row("post 1, figure 19", words, "concentrates at intermediate σ", share, of_many(share.claim))]


def _moments(both: Scored) -> list[Row]:
    place = "post 1, figure 20"
    skewness, kurtosis = (of_elements(both, name, "W_QK") for name in ("skewness", "excess_kurtosis"))
    room = kurtosis.value + 2.0 - skewness.value**2
    mean, spread = float(np.median(kurtosis.mean)) + 2.0, float(np.median(kurtosis.spread))
    words, null = "κ − γ² − 1 of W_QK, smallest of all heads", Null(mean, spread, of="one head")
    said, note = here(identity(bool(room.min() >= 0))), "true of any sample"
    rows = [Row(place, words, "at least 0", float(room.min()), null, said, note=note)]

    def nearer(third: np.ndarray, fourth: np.ndarray) -> np.ndarray:
        return np.mean(fourth + 2.0 - third**2 < mean - 4 * spread, axis=-1)

    words, near = (
        "share of heads nearer to Pearson's bound than random ones",
        learned(nearer, Side.ABOVE, skewness, kurtosis),
    )
    note = "nearer by four standard deviations; recipe `cross`"
    return [*rows, _row(place, words, "at or near the bound", near, needs(_OF_FIGURE_20, near.claim), note)]


def _two(*both: float) -> str:
    return ", ".join(f"{one:.3g}" for one in both)
