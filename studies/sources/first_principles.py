"""Published numbers derived without a checkpoint: from laws of untrained weights, or from other published numbers."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import digamma, polygamma

from rmtbase.laws import (
    parents,
    weibull_anchor,
    weibull_body_tail_gap,
    weibull_closure,
    weibull_noise_optimum,
    weibull_null,
)
from rmtbase.models import known_models
from rmtbase.results.comparison import (
    InitialSigmas,
    ScaleLaw,
    Training,
    built_in_correlation,
    initial_sigmas,
    scale_law,
    shape_band,
)
from studies.sources.published import Interval, PublishedTable, printed_interval, published_table

_STEPS = 143_000  # of every Pythia model
_LN_10 = math.log(10.0)


class Expected(NamedTuple):
    """Value of a published number from first principles.

    Attributes:
        interval: a point if it follows from definitions only; otherwise the interval that the rounding of other
            published numbers allows.
        basis: what it follows from, in words.
        untrained: True if it is the value for weights that have learned nothing, beside a published value for trained
            weights.
    """

    interval: Interval
    basis: str
    untrained: bool = False


@dataclass(frozen=True)
class PublishedCheck:
    """Published number beside its value from first principles.

    Attributes:
        row: first cell of its row.
        column: its column.
        printed: the number as printed.
        expected: its value from first principles.
    """

    row: str
    column: str
    printed: str
    expected: Expected

    @property
    def agrees(self) -> bool:
        """Return True if some number that rounds to the printed one is expected."""
        found = printed_interval(self.printed)
        assert found is not None  # no text has an expectation
        return found.meets(self.expected.interval)


def checks(table: PublishedTable) -> tuple[PublishedCheck, ...]:
    """Check every number of a published table that has a value from first principles, in the table's order."""
    expected = _EXPECTED[table.name](table) if table.name in _EXPECTED else {}
    return tuple(
        PublishedCheck(label, column, row[column], expected[label, column])
        for label, row in zip(table.labels, table.rows, strict=True)
        for column in table.columns
        if (label, column) in expected
    )


def our_name(function: str) -> str:
    """Name used here for a function of weibull-table-6; "" for a function without one."""
    return _OURS.get(function, "")


_OURS = {
    "F1_extract_weights": "rmtbase.models.open_model: Model.matrix; rmtbase score --matrices elements",
    "F2_fit_weibull": "rmtbase.statistics.weibull_fit; null: rmtbase.laws.weibull_null",
    "F3_gamma_closure": "rmtbase.laws.weibull_closure: every reading, with its null",
    "F4_cross_family_band": "rmtbase.results.comparison.shape_band",
    "F5_lambda_scaling": "rmtbase.results.comparison.scale_law",
    "F6_k_drift": "rmtbase.results.comparison.shape_drift",
    "F7_attention_arch_classify": "rmtbase.results.comparison.attention_class",
    "F8_lambda_paired_correlation": "rmtbase.results.comparison.paired_growth",
}


def known_name(label: str) -> str:
    """Name among the known models for a model of post-1-table-1."""
    return _KNOWN.get(label, label.lower())


Expectations = Mapping[tuple[str, str], Expected]


def pooled_parent(size: str) -> parents.Parent:
    """Law of the pooled weights of W_o and of both matrices of the MLP of a Pythia model, before training.

    These are d², 4 d² and 4 d² weights of each block; W_o and the output matrix share a σ, the input one has its own.
    """
    sigmas = _sigmas(size)
    return parents.Mixture((parents.Normal(sigmas.reads), parents.Normal(sigmas.writes)), (4, 5))


def log10_tail_probability(max_to_q99: Interval, shape: Interval) -> Interval:
    """log₁₀ P(|w| ≥ max) under the body fit, from max/q99: −2 (max/q99)^k, if the body has the 99 % quantile."""
    return Interval(-2.0 * max_to_q99.high**shape.high, -2.0 * max_to_q99.low**shape.low)


def published_scale_law() -> ScaleLaw:
    """Scale law of the five Pythia models of weibull-table-4, from η, λ_wd and mean λ."""
    table = published_table("weibull-table-4")
    rates, decays = (table.numbers(column, "Pythia") for column in ("peak_rate", "weight_decay"))
    roots = [math.sqrt(rate / decay) for rate, decay in zip(rates, decays, strict=True)]
    return scale_law(roots, table.numbers("mean_scale", "Pythia"))


def _law(value: float, basis: str, untrained: bool = False) -> Expected:
    return Expected(Interval(value, value), basis, untrained)


def _sigmas(size: str) -> InitialSigmas:
    table = published_table("weibull-table-5")
    recipe = table.rows[table.labels.index(size)]["recipe"]
    return initial_sigmas(recipe, int(table.number(size, "layers")), int(table.number(size, "width")))


def _body_tail_ablation(table: PublishedTable) -> Expectations:
    trims = {label: (1 - table.number(label, "protocol") / 100) / 2 for label in table.labels}
    return {
        (label, "median_k"): _law(weibull_anchor(round(trim, 3)).shape, f"anchor at trim {trim:g}", untrained=True)
        for label, trim in trims.items()
    }


def _super_weights(table: PublishedTable) -> Expectations:
    """Compute the median of max/q99 over untrained blocks of each size."""
    sizes, expected = published_table("weibull-table-5"), {}
    for label in table.labels:
        if label not in sizes.labels:
            continue
        parent, n = pooled_parent(label), 9 * int(sizes.number(label, "width")) ** 2
        median_of_max = float(parent.isf(-math.expm1(-math.log(2.0) / n)))
        ratio = median_of_max / float(parent.ppf(0.99))
        expected[label, "max_to_q99_median"] = _law(ratio, f"median of untrained blocks of {n:,} weights", True)
        expected[label, "blocks"] = _law(sizes.number(label, "layers"), "layers by weibull-table-5")
    return expected


def _growth(table: PublishedTable) -> Expectations:
    rates, expected = published_table("weibull-table-4"), {}
    anchor = weibull_anchor().scale
    for label in table.labels:
        training = Training(rates.number(label, "peak_rate"), rates.number(label, "weight_decay"), _STEPS)
        expected[label, "budget"] = _law(
            training.budget, "T η λ_wd, T = 143,000, η and λ_wd as weibull-table-4 prints them"
        )
        start, end = anchor * _sigmas(label).writes, table.interval(label, "scale_end")
        expected[label, "scale_start"] = _law(start, f"{anchor:.6f} σ of what writes, by the recipe of weibull-table-5")
        growth = Interval(100 * (end.low / start - 1), 100 * (end.high / start - 1))
        expected[label, "growth"] = Expected(growth, "printed λ at the end over the expected one at the start")
        expected[label, "mean_scale_end"] = Expected(
            rates.interval(label, "mean_scale"), "the same number in weibull-table-4"
        )
    return expected


def _rates(table: PublishedTable) -> Expectations:
    expected = {}
    for label in table.labels:
        root = math.sqrt(table.number(label, "peak_rate") / table.number(label, "weight_decay"))
        scale = table.interval(label, "mean_scale")
        expected[label, "root"] = _law(root, "from η and λ_wd")
        expected[label, "ratio"] = Expected(Interval(scale.low / root, scale.high / root), "from λ, η and λ_wd")
    return expected


def _ratios(table: PublishedTable) -> Expectations:
    expected = {}
    for label in table.labels:
        ratio, measured = _sigmas(label).ratio, table.interval(label, "measured")
        recipe = table.rows[table.labels.index(label)]["recipe"]
        expected[label, "predicted"] = _law(ratio, f"σ of what reads over σ of what writes, recipe {recipe}")
        error = 1.96 * _measured_error(int(table.number(label, "width")), int(table.number(label, "layers")))
        expected[label, "measured"] = Expected(
            Interval(ratio * (1 - error), ratio * (1 + error)), f"95 % of untrained weights by recipe {recipe}"
        )
        ends = [100 * (end / ratio - 1) for end in measured]
        least = 0.0 if ends[0] <= 0 <= ends[1] else min(map(abs, ends))
        expected[label, "error"] = Expected(
            Interval(least, max(map(abs, ends))), "measured over expected ratio, less 1"
        )
    return expected


def _configurations(table: PublishedTable) -> Expectations:
    models, expected = {known.name: known for known in known_models()}, {}
    for label in table.labels:
        known = models[known_name(label)]
        sizes = {"d_model": known.d_model, "n_heads": known.n_heads, "d_head": known.d_head, "layers": known.n_layers}
        expected |= {(label, name): _law(size, f"configuration of {known.hub_id}") for name, size in sizes.items()}
    return expected


_KNOWN = {
    "GPT-2 (small)": "gpt2",
    "GPT-2 (medium)": "gpt2-medium",
    "GPT-2 (large)": "gpt2-large",
    "GPT-2 (XL)": "gpt2-xl",
    "LLaMA 3.1 8B": "llama-3.1-8b",
    "Mistral 7B v0.3": "mistral-7b-v0.3",
}


def _measured_error(width: int, layers: int) -> float:
    """Relative standard error of the measured ratio: the mean of W_qkv over W_o and W_FFN_in over W_FFN_out.

    Each λ is a mean over L blocks, of 3 d², d², 4 d² and 4 d² weights.
    """
    scale = weibull_null().scale
    of_one = [scale.spread / scale.limit / math.sqrt(size * width**2 * layers) for size in (3, 1, 4, 4)]
    return math.hypot(*of_one) / 2


def _text(table: PublishedTable) -> Expectations:
    values = _of_the_anchor() | _of_pythia_70m(table) | _of_trained_shapes(table) | _of_scales()
    return {(label, "value"): value for label, value in values.items()}


def _of_the_anchor() -> dict[str, Expected]:
    anchor, noise = weibull_anchor(), weibull_noise_optimum()
    at_trim = 0.1 / (0.9 * math.log(0.9) ** 2) / noise.noise
    smallest = int(published_table("weibull-table-5").number("Pythia-70m", "width")) ** 2
    return {
        "k of half-normal weights": _law(anchor.shape, "anchor at trim 0.1"),
        "λ/σ of half-normal weights": _law(anchor.scale, "anchor at trim 0.1"),
        "least noisy point of the plot": _law(noise.probability, "1 + W₀(-2/e²)/2"),
        "noise of the lowest tenth over the least": _law(
            _noise_of_lowest_tenth(smallest) / noise.noise,
            f"mean over the points of {smallest:,} weights, W_o of Pythia-70m; without limit; {at_trim:.2f} at p = 0.1",
        ),
    }


def _noise_of_lowest_tenth(n: int) -> float:
    """Mean of N Var Y over the lowest tenth of n points, 10 Σ ψ′(i): of these Y is ln of a gamma variate, but for n."""
    last = n // 10
    return 10.0 * float(digamma(last + 1) + np.euler_gamma + last * polygamma(1, last + 1))


def _of_pythia_70m(table: PublishedTable) -> dict[str, Expected]:
    sizes, size = published_table("weibull-table-5"), "Pythia-70m"
    layers, width = (int(sizes.number(size, name)) for name in ("layers", "width"))
    pooled, name = weibull_anchor(0.1, pooled_parent(size)), f"of {size}, pooled"
    of_mixture = "anchor of the mixture of both σ, recipe A"
    values = {
        f"k {name}, at the start": _law(pooled.shape, of_mixture),
        f"λ {name}, at the start": _law(pooled.scale, of_mixture),
        f"weights pooled of {size}": _law(layers * 9 * width**2, "L (d² + 4 d² + 4 d²)"),
    }
    for step, nearest in (("step 5000", "near step 4000"), ("step 143000", "step 143000")):
        ratio = table.interval(f"max/q99 {name}, {step}", "value")
        shape = table.interval(f"k {name}, {nearest}", "value")
        values[f"log10 of tail probability, {step}"] = Expected(
            log10_tail_probability(ratio, shape), f"-2 (max/q99)^k, k as printed of {nearest}, if q99 is on the body"
        )
    return values


def _of_trained_shapes(table: PublishedTable) -> dict[str, Expected]:
    """Values for untrained weights, beside published values for trained weights."""
    anchor, closure, gap = weibull_anchor(), weibull_closure(), weibull_body_tail_gap()
    mean, spread = (table.interval(name, "value") for name in (_GAP, "standard deviation of the gap"))
    variation = Interval(100 * spread.low / mean.high, 100 * spread.high / mean.low)
    other_reading = 100 * (closure.std.limit - 1)
    width = int(published_table("weibull-table-5").number("Pythia-70m", "width"))
    smallest = shape_band([[anchor.shape] * 12] * 12, [[4 * width**2] * 12] * 12)  # two matrices in each of 6 layers
    return {
        _GAP: _law(gap.limit, "half-normal weights, which have no tail", untrained=True),
        "CV of the gap, %": Expected(variation, "standard deviation over mean"),
        "smallest R² of a fit": _law(anchor.r_squared, "half-normal weights, which are not Weibull", untrained=True),
        "largest error of the Γ closure, %": _law(
            100 * (closure.rms.limit - 1), f"of √⟨w²⟩; {other_reading:.1f} of the sd of |w|", untrained=True
        ),
        "CV of k over models, %": _law(
            100 * smallest.null_variation, "12 models as small as Pythia-70m, feed-forward", untrained=True
        ),
        **{
            f"{end} end of the band of k": _law(anchor.shape, "anchor, above the band", untrained=True)
            for end in ("lower", "upper")
        },
    }


_GAP = "body-tail gap k(80 %) - k(100 %)"


def _of_scales() -> dict[str, Expected]:
    line, source = published_scale_law(), "weibull-table-4"
    start = [weibull_anchor().scale * _sigmas(label).writes for label in published_table("weibull-table-5").labels]
    built_in = built_in_correlation(start, published_table("weibull-table-3").numbers("scale_end"), 20)
    with_intercept = f"intercept {line.intercept:.4f} ± {line.intercept_error:.4f}"
    exponent = f"exponent {line.exponent:.2f} ± {line.exponent_error:.2f}"
    return {
        "slope of λ on √(η/λ_wd) through the origin": _law(
            line.slope, f"{source}; R² about the mean {line.r_squared:.1f}"
        ),
        "r of λ and √(η/λ_wd)": _law(line.correlation, f"{with_intercept}, {exponent}"),
        "least deviation from the line, %": _law(100 * min(line.deviations), source),
        "largest deviation from the line, %": _law(100 * max(line.deviations), source),
        "r of ln λ_O and ln λ_FFN_out": _law(
            built_in, "5 of 25 points share σ, the others are uncorrelated", untrained=True
        ),
    }


_EXPECTED: Mapping[str, Callable[[PublishedTable], Expectations]] = {
    "weibull-table-1": _body_tail_ablation,
    "weibull-table-2": _super_weights,
    "weibull-table-3": _growth,
    "weibull-table-4": _rates,
    "weibull-table-5": _ratios,
    "weibull-text": _text,
    "post-1-table-1": _configurations,
}
