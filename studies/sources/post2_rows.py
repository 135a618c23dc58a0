"""Statements of post 2 about the spectra of heads, beside values of one model: figures 2-12, on both conventions."""

from __future__ import annotations

import numpy as np
import xarray as xr

from rmtbase.tables import heads_present
from studies.sources.recipe import Null, Row, Run
from studies.sources.statements import (
    CONVENTIONS,
    Exponent,
    Heads,
    Trend,
    chance,
    early,
    exponent,
    median_row,
    medians,
    of_heads,
    of_many,
    trend,
    verdict,
)

PUBLISHED_CONDITION = 4.0
PUBLISHED_LARGEST = 50.0
_TENTH = 0.1


def rows(run: Run, tree: xr.DataTree) -> list[Row]:
    """Every statement about values, of this model."""
    found = [*_edges(run, tree)]
    for convention, ending in CONVENTIONS:
        found += _leading(run, tree, convention)
        found += _shape(run, tree, convention, ending)
        found += _condition(run, tree, convention, ending)
        found += _with_width(tree, convention, ending)
    return found


def _edges(run: Run, tree: xr.DataTree) -> list[Row]:
    heads = tree["heads"].to_dataset().transpose("layer", "head", ...)
    there = heads_present(heads)
    above, below = (float(np.mean(heads[f"outliers_{side}"].values[there] > 0)) for side in ("above", "below"))
    level = float(tree.attrs["edge_level"])
    of, note = f"one head, edges at {level:g}", "a matter of order: the same on both"
    words = "share of heads with an eigenvalue above the null's upper edge"
    other = "share of heads that keep the gap to zero: none below the null's lower edge"
    rows = []
    for convention, _ in CONVENTIONS:
        said = verdict(run, above > 2 * level)
        rows.append(Row("post 2, figure 2", words, "outliers", above, Null(level, of=of), said, convention, note))
        said, null = verdict(run, below < 0.5), Null(1.0 - level, of=of)
        rows.append(Row("post 2, figure 4", other, "most", 1.0 - below, null, said, convention, note))
    return rows


def _leading(run: Run, tree: xr.DataTree, convention: str) -> list[Row]:
    power = 1.0 if convention == "λ" else 0.5
    largest, smallest = of_heads(tree, "largest_eigenvalue", "smallest_eigenvalue")
    value = largest.value**power
    top = value >= np.quantile(value, 1.0 - _TENTH)
    first = early(largest)
    share, null = float(first[top].mean()), chance(first, int(top.sum()))
    assert null.mean is not None and null.sd is not None  # it has both
    words = "share of the largest tenth of leading values that is in the first quarter of layers"
    said = verdict(run, share > null.mean + 2 * null.sd)
    place = "post 2, figure 3"
    rows = [Row(place, words, "concentrated in the earliest layers", share, null, said, convention)]
    at = int(np.argmax(value))
    mean = float(largest.mean[at] ** power)
    spread = float(power * largest.spread[at] * largest.mean[at] ** (power - 1.0))
    words = f"largest of all heads, of the raw product, in layer {largest.layer[at]}"
    published = f"reaching about {PUBLISHED_LARGEST**power:.3g}, in layer 0"
    holds = bool(0.5 < largest.value[at] / PUBLISHED_LARGEST < 1.2 and largest.layer[at] == 0)
    null, note = Null(mean, spread, of="a random head of its σ"), "the post does not say whether W_QK was scaled"
    rows.append(Row(place, words, published, float(value[at]), null, verdict(run, holds), convention, note))
    low = medians(smallest, (smallest.value / smallest.mean) ** power)
    words = "smallest value over the mean of its null, median: first quarter of layers, the others"
    said, null = verdict(run, low[0] < low[1]), Null(1.0, of="random heads")
    rows.append(Row(place, words, "smaller in early layers", _two(low), null, said, convention))
    means = Heads(value, largest.mean, largest.spread, largest.layer).by_layer()
    half = (means.size + 1) // 2
    for which, published, part, sign in (
        ("first half", "decreases", means[:half], -1.0),
        ("second half", "flattens, with a mild upturn", means[half:], 1.0),
    ):
        found = trend(np.arange(part.size), part, "layers")
        words, holds = f"layer average of the leading value against layer, {which}", sign * found.value > -0.5 * sign
        rows.append(_of_trend(run, "post 2, figure 7", words, published, found, holds, convention))
    return rows


def _shape(run: Run, tree: xr.DataTree, convention: str, ending: str) -> list[Row]:
    name = f"normalized_participation_ratio{ending}"
    ratio, entropy = of_heads(tree, name, f"spectral_entropy{ending}")
    note = f"{100 * ratio.share_within():.3g} % of the heads are in 95 % of the null; close: within a tenth"
    said = verdict(run, bool(abs(np.median(ratio.value / ratio.mean) - 1.0) < 0.1))
    published = "close to the random-matrix prediction"
    rows = [median_row("post 2, figure 8", ratio, name, published, said, convention=convention, note=note)]
    means = entropy.by_layer()
    found, words = trend(np.arange(means.size), means, "layers"), "layer average of the spectral entropy against layer"
    published = "lowest in early layers, highest in later ones"
    rows.append(_of_trend(run, "post 2, figure 9", words, published, found, found.value > 0.5, convention))
    found, words = trend(ratio.value, entropy.value, "heads"), "spectral entropy against NPR, all heads"
    place, published = "post 2, figure 11", "strongly correlated, a tight curve"
    rows.append(_of_trend(run, place, words, published, found, found.value > 0.9, convention))
    low, first = ratio.value <= np.quantile(ratio.value, _TENTH), early(ratio)
    share, words = float(first[low].mean()), "share of the lowest tenth of NPR that is in the first quarter of layers"
    said, null = verdict(run, share > 0.5), chance(first, int(low.sum()))
    return [*rows, Row(place, words, "predominantly from early layers", share, null, said, convention)]


def _condition(run: Run, tree: xr.DataTree, convention: str, ending: str) -> list[Row]:
    name, place = f"condition_number{ending}", "post 2, figure 10"
    (found,) = of_heads(tree, name)
    said = verdict(run, bool(0.5 < np.median(found.value) / PUBLISHED_CONDITION < 2.0))
    note = "of GPT-2's shape 4 is below random heads on λ and above them on s: errata 4"
    rows = [median_row(place, found, name, "~ 4 for most heads", said, convention=convention, note=note)]
    both, words = medians(found, found.value), "condition number, median: first quarter of layers, the others"
    said = verdict(run, both[0] > both[1])
    return [*rows, Row(place, words, "larger in early layers", _two(both), found.null(), said, convention)]


def exponents(tree: xr.DataTree, convention: str) -> list[tuple[str, Exponent, float]]:
    """Fit exponents of σ for the leading value, sum and sum of squares: name, exponent, that of random heads."""
    names = ("trace", "largest_eigenvalue", "trace_of_square", "participation_ratio_singular")
    trace, largest, square, ratio = (one.value for one in of_heads(tree, *names))
    sigma = np.sqrt(trace)  # up to the number of elements, which is no matter of an exponent
    if convention == "λ":
        named = (("λ₁", largest, 2.0), ("Σλ", trace, 2.0), ("Σλ²", square, 4.0))
    else:
        named = (("s₁", np.sqrt(largest), 1.0), ("Σs", np.sqrt(trace * ratio), 1.0), ("Σs²", trace, 2.0))
    return [(name, exponent(sigma, value), law) for name, value, law in named]


def _with_width(tree: xr.DataTree, convention: str, ending: str) -> list[Row]:
    place, rows = "post 2, figure 12", []
    published = (("approximately linear", 1.0), ("linear", 1.0), ("quadratic, tightest", 2.0))
    for (name, fit, law), (words, claimed) in zip(exponents(tree, convention), published, strict=True):
        identity = name in ("Σλ", "Σs²")  # what is left of its logarithm is rounding, which no two machines share
        note = f"fitted ± {fit.error:.2g}; what is left of ln {name}: {fit.scatter:.2g}"
        note = f"an identity: {name} = d² σ²" if identity else note
        if convention == "λ":
            said, note = "corrected", f"{note}. The published exponents are those of s: errata 4"
        elif identity:
            said = "agrees"
        else:
            said = of_many(abs(fit.value - claimed) < 0.5)
        null = Null(law, of="random heads that differ in σ")
        rows.append(Row(place, f"exponent of σ in {name}", words, fit.value, null, said, convention, note))
    trace, entropy = of_heads(tree, "trace", f"spectral_entropy{ending}")
    found = trend(trace.value, entropy.value, "heads")
    said, note = of_many(abs(found.value) < 0.5), "free of scale by its definition: what depends on σ was learned"
    words = "spectral entropy against σ: Spearman's ρ"
    return [*rows, Row(place, words, "no strong dependence", found.value, found.null, said, convention, note)]


def _of_trend(run: Run, place: str, quantity: str, published: str, found: Trend, holds: bool, convention: str) -> Row:
    words = f"{quantity}: Spearman's ρ"
    if found.null is None:
        few = "open: too few layers in this model"
        return Row(place, words, published, None, None, few, convention)
    return Row(place, words, published, found.value, found.null, verdict(run, holds), convention)


def _two(both: tuple[float, float]) -> str:
    return f"{both[0]:.3g}, {both[1]:.3g}"
