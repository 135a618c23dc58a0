"""Statements of post 2 about the spectra of heads, beside values of one model: figures 2-12, on both conventions."""

import numpy as np
import xarray as xr
from scipy import stats

from rmtbase.drawing.axes import statistic_words
from rmtbase.tables import heads_present
from studies.sources.recipe import Null, Row, Run
from studies.sources.statements import (
    CONVENTIONS,
    Compared,
    Exponent,
    Heads,
    Scored,
    along_layers,
    beside_random,
    correlation_claim,
    early,
    early_over_others,
    exponent,
    identity,
    learned,
    medians,
    of_heads,
    of_many,
    rank_correlation,
    scored,
    share_of_extreme,
    verdict,
)
from studies.sources.verdicts import Claim, Kind, Side, beyond_chance, corrected, decided, most, within

PUBLISHED_CONDITION = 4.0
ROUNDED = 0.5
"""Margin of *~ 4*: what rounds to it."""
PUBLISHED_LARGEST, ABOUT = 50.0, 5.0
"""Published, and the margin of *about 50*: what rounds to it in tens."""
NEAR = 0.1
"""Margin of *close to the prediction*: within this share of the null's mean."""
NO_STRONG = 0.5
"""Margin of *no strong dependence*: of the rank correlation."""
NEAR_EXPONENT = 0.25
"""Margin of an exponent, as a share of it."""
_TENTH = 0.1


def rows_of(run: Run) -> list[Row]:
    """Every statement about values, of the run's model."""
    return rows(run, beside_random(run, scored(run)))


def rows(run: Run, both: Scored) -> list[Row]:
    """Every statement about values, of this model."""
    made = [*_edges(run, both.tree)]
    for convention, ending in CONVENTIONS:
        made += _leading(run, both, convention)
        made += _shape(run, both, convention, ending)
        made += _condition(run, both, convention, ending)
        made += _with_width(both, convention, ending)
    return made


def near_null(value: np.ndarray, mean: np.ndarray) -> Claim:
    """Claim that most heads are within a tenth of their nulls."""
    known = np.isfinite(value) & np.isfinite(mean)
    return most(np.abs(value[known] / mean[known] - 1.0) < NEAR)


def _row(place: str, words: str, published: str, compared: Compared, said, convention: str, note: str = "",
         observed: str | None = None) -> Row:  # fmt: skip
    return Row(place, words, published, observed or compared.value, compared.null, said, convention, note)


def _edges(run: Run, tree: xr.DataTree) -> list[Row]:
    heads = tree["heads"].to_dataset().transpose("layer", "head", ...)
    there = heads_present(heads)
    above, below = (heads[f"outliers_{side}"].values[there] > 0 for side in ("above", "below"))
    level, count = float(tree.attrs["edge_level"]), int(there.sum())
    of, note = f"one head, edges at {level:g}", "a matter of order: the same on both"
    words = "share of heads with an eigenvalue above the null's upper edge"
    other = "share of heads that keep the gap to zero: none below the null's lower edge"
    number = int(above.sum())
    outliers = beyond_chance(
        number / count,
        float(stats.binom.sf(number - 1, count, level)),
        float(stats.binom.cdf(number, count, level)),
        Side.ABOVE,
    )
    rows = []
    for convention, _ in CONVENTIONS:
        said, null = verdict(run, outliers), Null(level, of=of)
        rows.append(Row("post 2, figure 2", words, "outliers", number / count, null, said, convention, note))
        said, null = verdict(run, most(~below)), Null(1.0 - level, of=of)
        share = 1.0 - float(below.mean())
        rows.append(Row("post 2, figure 4", other, "most", share, null, said, convention, note))
    return rows


def _leading(run: Run, both: Scored, convention: str) -> list[Row]:
    power = 1.0 if convention == "λ" else 0.5
    largest, smallest = of_heads(both, "largest_eigenvalue", "smallest_eigenvalue")
    value = largest.of(largest.value**power, largest.drawn**power)
    words = "share of the largest tenth of leading values that is in the first quarter of layers"
    share = learned(share_of_extreme(early(largest), _TENTH, True), Side.ABOVE, value, is_level=False)
    place, published = "post 2, figure 3", "concentrated in the earliest layers"
    rows = [_row(place, words, published, share, verdict(run, share.claim), convention)]
    at = int(np.argmax(value.value))
    mean = float(largest.mean[at] ** power)
    spread = float(power * largest.spread[at] * largest.mean[at] ** (power - 1.0))
    words = f"largest of all heads, of the raw product, in layer {largest.layer[at]}"
    published = f"reaching about {PUBLISHED_LARGEST**power:.3g}, in layer 0"
    in_layer_0 = largest.layer[at] == 0
    claim = within(float(largest.value[at]), PUBLISHED_LARGEST, ABOUT if in_layer_0 else -1.0, kind=Kind.PRINTED)
    null = Null(mean, spread, of="a random head of its σ")
    note = f"about: {PUBLISHED_LARGEST:g} ± {ABOUT:g} of λ; the post does not say whether W_QK was scaled"
    observed = float(value.value[at])
    rows.append(Row(place, words, published, observed, null, verdict(run, claim), convention, note))
    over_null = smallest.of((smallest.value / smallest.mean) ** power, smallest.drawn**power)
    words = "smallest value over the mean of its null, median: first quarter of layers, the others"
    smaller = learned(early_over_others(smallest), Side.BELOW, over_null, is_level=False)
    low, note = medians(smallest, over_null.value), "the null is of the ratio of the two"
    said = verdict(run, smaller.claim)
    rows.append(_row(place, words, "smaller in early layers", smaller, said, convention, note, _two(low)))
    half = (np.unique(largest.layer).size + 1) // 2
    for which, published, part, side in (
        ("first half", "decreases", slice(half), Side.BELOW),
        ("second half", "flattens, with a mild upturn", slice(half, None), Side.ABOVE),
    ):
        words = f"layer average of the leading value against layer, {which}"
        rows.append(_of_trend(run, "post 2, figure 7", words, published, along_layers(value, side, part), convention))
    return rows


def _shape(run: Run, both: Scored, convention: str, ending: str) -> list[Row]:
    name = f"normalized_participation_ratio{ending}"
    ratio, entropy = of_heads(both, name, f"spectral_entropy{ending}")
    inside = f"{100 * ratio.share_within():.3g} % of the heads are in 95 % of the null"
    note = f"{inside}; close: most heads within {100 * NEAR:g} % of its mean"
    said = verdict(run, near_null(ratio.value, ratio.mean))
    published = "close to the random-matrix prediction"
    rows = [median_row("post 2, figure 8", ratio, name, published, said, convention=convention, note=note)]
    words, published = "layer average of the spectral entropy against layer", "lowest in early layers, highest in later"
    rise = along_layers(entropy, Side.ABOVE)
    rows.append(_of_trend(run, "post 2, figure 9", words, published, rise, convention))
    words, published = "spectral entropy against NPR, all heads", "strongly correlated, a tight curve"
    tight = learned(rank_correlation, Side.ABOVE, ratio, entropy)
    rows.append(_of_trend(run, "post 2, figure 11", words, published, tight, convention))
    words = "share of the lowest tenth of NPR that is in the first quarter of layers"
    share = learned(share_of_extreme(early(ratio), _TENTH, False), Side.ABOVE, ratio, is_level=False)
    place, published = "post 2, figure 11", "predominantly from early layers"
    return [*rows, _row(place, words, published, share, verdict(run, share.claim), convention)]


def _condition(run: Run, both: Scored, convention: str, ending: str) -> list[Row]:
    name, place = f"condition_number{ending}", "post 2, figure 10"
    (condition,) = of_heads(both, name)
    said = verdict(run, most(np.abs(condition.value - PUBLISHED_CONDITION) <= ROUNDED))
    note = "4 in most heads, rounded; of GPT-2's shape 4 is below random heads on λ and above them on s: errata 4"
    rows = [median_row(place, condition, name, "~ 4 for most heads", said, convention=convention, note=note)]
    words = "condition number, median: first quarter of layers, the others"
    larger = learned(early_over_others(condition), Side.ABOVE, condition, is_level=False)
    both_medians, note = _two(medians(condition, condition.value)), "the null is of the ratio of the two"
    said = verdict(run, larger.claim)
    return [*rows, _row(place, words, "larger in early layers", larger, said, convention, note, both_medians)]


def median_row(place: str, heads: Heads, statistic: str, published: float | str, said, **more: str) -> Row:
    """Compare the median head of a statistic with its null."""
    words = f"{statistic_words(statistic).removesuffix(' of singular values')}, median head"
    return Row(place, words, published, float(np.median(heads.value)), heads.null(), said, **more)


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


def _with_width(both: Scored, convention: str, ending: str) -> list[Row]:
    place, rows = "post 2, figure 12", []
    published = (("approximately linear", 1.0), ("linear", 1.0), ("quadratic, tightest", 2.0))
    for (name, fit, law), (words, claimed) in zip(exponents(both.tree, convention), published, strict=True):
        is_identity = name in ("Σλ", "Σs²")  # what is left of its logarithm is rounding, which no two machines share
        note = f"fitted ± {fit.error:.2g}; what is left of ln {name}: {fit.scatter:.2g}"
        note = f"an identity: {name} = d² σ²" if is_identity else f"{note}; near: within {100 * NEAR_EXPONENT:g} %"
        if convention == "λ":
            said, note = corrected("errata, 4"), f"{note}. The published exponents are those of s"
        elif is_identity:
            said = decided(identity(True))
        else:
            said = of_many(within(fit.value, claimed, NEAR_EXPONENT * claimed, fit.error))
        null = Null(law, of="random heads that differ in σ")
        rows.append(Row(place, f"exponent of σ in {name}", words, fit.value, null, said, convention, note))
    trace, entropy = of_heads(both, "trace", f"spectral_entropy{ending}")
    drift = learned(rank_correlation, Side.EITHER, trace, entropy, is_level=False)
    said = of_many(correlation_claim(drift.value, trace.value.size, NO_STRONG))
    note = f"no strong one: within ± {NO_STRONG:g}; free of scale by its definition: what depends on σ was learned"
    words = "spectral entropy against σ: Spearman's ρ"
    return [*rows, Row(place, words, "no strong dependence", drift.value, drift.null, said, convention, note)]


def _of_trend(run: Run, place: str, quantity: str, published: str, trend: Compared, convention: str) -> Row:
    words, few = f"{quantity}: Spearman's ρ", "" if np.isfinite(trend.value) else "too few layers in this model"
    value = trend.value if np.isfinite(trend.value) else None
    return Row(place, words, published, value, trend.null, verdict(run, trend.claim), convention, few)


def _two(both: tuple[float, float]) -> str:
    return f"{both[0]:.3g}, {both[1]:.3g}"
