"""The Weibull paper's tables: what was printed, what follows without a checkpoint, and the run's model."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import xarray as xr
from scipy.special import ndtr

from rmtbase.laws import weibull_anchor, weibull_body_tail_gap, weibull_closure, weibull_null
from rmtbase.results.comparison import (
    PairedGrowth,
    attention_classes,
    paired_growth,
    shape_band,
    shape_drift,
    weibull_scales,
)
from rmtbase.results.trajectory.schema import scores_at
from studies.sources import weibull_scales as scales
from studies.sources.course import POOLED, TRIMS, Member, Transmission, steps_of, training_of
from studies.sources.first_principles import checks, our_name
from studies.sources.published import PublishedTable, published_table
from studies.sources.recipe import Null, Row, Run, Table, null_of_draws
from studies.sources.turning import turning_rows
from studies.sources.verdicts import (
    Claim,
    Kind,
    Side,
    Verdict,
    beyond_draws,
    beyond_normal,
    corrected,
    decided,
    needs,
    unresolved,
    within,
)
from studies.sources.weibull_shapes import NORMAL_95, PAPER

HUB = {
    "Pythia-70m": "EleutherAI/pythia-70m", "Pythia-160m": "EleutherAI/pythia-160m",
    "Pythia-410m": "EleutherAI/pythia-410m", "Pythia-1B": "EleutherAI/pythia-1b",
    "Pythia-6.9B": "EleutherAI/pythia-6.9b", "OLMo-1-7B": "allenai/OLMo-7B-hf",
    "OLMo-2-7B": "allenai/OLMo-2-1124-7B", "LLaMA-3-8B": "meta-llama/Meta-Llama-3-8B",
    "Mistral-7B": "mistralai/Mistral-7B-v0.1", "Qwen2.5-7B": "Qwen/Qwen2.5-7B", "Qwen2.5-14B": "Qwen/Qwen2.5-14B",
    "Qwen3-8B": "Qwen/Qwen3-8B",
}  # fmt: skip
"""The paper's twelve models where they can be had, of OLMo-1 in the layout of ``transformers``."""
_DRAWS, _SEED = 4000, 0


_BAND = (1.186, 1.204)
_OF = "normal weights, each matrix's σ"
AS_RECIPE = 0.0013
"""Margin of the paper's table 5: that of its text, 0.13 %."""


def rows(found: Sequence[Member], beside: xr.DataTree) -> Iterator[Row]:
    """Tables 1 to 5: each model of a run beside what is printed and its null; and what other checkpoint each row needs.

    Of several models, the rows of each have its name, and what the paper has of all its models is of all of the run.
    """
    alone = len(found) == 1
    yield from _ablation(found[0]) if alone else _ablation_of_models(found)
    for make in (_super_weights, _growth, _rate):
        for one in found:
            yield from _named(make(one), one, alone)
    yield from _correlations(found, beside)
    for one in [one for one in found if one.run.is_of(POOLED)] or found:
        yield from _named(turning_rows(one), one, alone)
    for one in found:
        yield from _named(_initial(one), one, alone)
    if all(one.along is None for one in found):
        for number in (3, 5):
            place = f"{PAPER}, table {number}"
            yield Row(place, "the same of a training run", None, None, None, needs("checkpoints along training"))
    yield from _needs(found)


def _named(rows: Iterator[Row], one: Member, alone: bool) -> Iterator[Row]:
    return rows if alone else (replace(row, quantity=f"{one.label}: {row.quantity}") for row in rows)


def mean_scale(scores: xr.DataTree) -> float:
    """λ̂ over the Transmission Class: the mean over layers, then over components."""
    found = weibull_scales(scores["matrices"].to_dataset())
    held = [name for name in scales.TRANSMISSION if name in found["component"].values]
    return float(found.sel(component=held).mean("layer").mean())


def own_row(run: Run, table: PublishedTable) -> str | None:
    """Label of the run's own model in a table of models; None if the table lacks it."""
    return next((one for one in table.labels if one in HUB and run.is_of(HUB[one])), None)


def _verdict(run: Run, table: PublishedTable, observed: float, column: str, row: str | None = None) -> Verdict:
    """Verdict on the run's own row; without one, *needs*, with the place in the published range.

    ``row`` is the printed row of all models together, which no single model decides.
    """
    own = own_row(run, table)
    which = row or own
    numbers = [table.interval(one, column) for one in ((which,) if which else table.labels)]
    low, high = min(one.low for one in numbers), max(one.high for one in numbers)
    claim = Claim(Kind.PRINTED, observed, low=low, high=high)
    return decided(claim) if own else needs(_MODELS[table.name], claim)


def _at(null: Null | None, observed: float) -> bool:
    return null is not None and null.low is not None and null.high is not None and null.low <= observed <= null.high


def _beside(null: Null | None, observed: float) -> str:
    """Place of a printed number's observed value beside its null, for a note."""
    return "" if null is None else "as untrained weights are" if _at(null, observed) else "beyond the null"


def _of_models(found: Sequence[Member], labels: Sequence[str], claim: Claim) -> Verdict:
    """Verdict on a number that the paper has of all models of a table: decided if the run has just them.

    Otherwise *needs*, with how many of them the run has.
    """
    n = sum(any(one.run.is_of(HUB[label]) for one in found) for label in labels)
    if n == len(labels) == len(found):
        words = {5: "five Pythia sizes", 12: "twelve models"}[n]
        return decided(claim, f"of all {words}")
    which = _MODELS["weibull-table-3" if len(labels) == 5 else "weibull-table-4"]
    return needs(f"{which}, of which {_models(found)} here {'is' if len(found) == 1 else 'are'} {n or 'none'}", claim)


def _printed_claim(table: PublishedTable, label: str, column: str, observed: float) -> Claim:
    """Claim that a number rounds to the printed one."""
    interval = table.interval(label, column)
    return Claim(Kind.PRINTED, observed, low=interval.low, high=interval.high)


def _models(found: Sequence[Member]) -> str:
    return "one model" if len(found) == 1 else f"{len(found)} models"


_MODELS = {
    "weibull-table-1": "the twelve models of table 4",
    "weibull-table-2": "the eight models of table 2",
    "weibull-table-3": "the five Pythia sizes",
    "weibull-table-4": "the twelve models of table 4",
    "weibull-table-5": "the five Pythia sizes",
}


def _drawn_medians(trim: float, number: np.ndarray, seed: int = _SEED) -> np.ndarray:
    """Medians of k̂ over this many untrained matrices, simulated by their asymptotic law."""
    law = weibull_null(trim).shape
    n = number[number > 0]
    draws = law.mean(int(n.min())) + law.spread / np.sqrt(n) * np.random.default_rng(seed).normal(size=(_DRAWS, n.size))
    return np.median(draws, axis=1)


def _median_null(trim: float, number: np.ndarray) -> Null:
    """Interval that holds 95 % of medians of k̂ over this many untrained matrices."""
    low, high = np.quantile(_drawn_medians(trim, number), [0.025, 0.975])
    return Null(weibull_null(trim).shape.limit, None, float(low), float(high), "half-normal, 95 % of such medians")


def _gap_null(number: np.ndarray) -> Null:
    """Interval that holds 95 % of medians of k̂(80 %) − k̂(100 %) over this many untrained matrices."""
    law, n = weibull_body_tail_gap(), number[number > 0]
    sd = law.std(int(np.median(n))) * 1.2533 / np.sqrt(n.size)
    half = NORMAL_95 * sd
    return Null(law.limit, sd, law.limit - half, law.limit + half, "half-normal, 95 % of such medians")


def _gap_row(quantity: str, own: float, null: Null) -> Row:
    text = published_table("weibull-text")
    name = "body-tail gap k(80 %) - k(100 %)"
    mean, spread = text.number(name, "value"), text.number("standard deviation of the gap", "value")
    return Row(
        f"{PAPER}, table 1", quantity, mean, own, null, corrected("errata, 7"), note="of half-normal weights it is "
        f"{(weibull_body_tail_gap().limit - mean) / spread:.2f} of the published standard deviations above the "
        "published one",
    )  # fmt: skip


def _ablation(one: Member) -> Iterator[Row]:
    """Table 1 of one model."""
    place, table, state = f"{PAPER}, table 1", published_table("weibull-table-1"), one.last
    number = state.number.ravel()
    for trim, label in zip(TRIMS, table.labels, strict=True):
        own = float(np.nanmedian(state.shape[..., TRIMS.index(trim)]))
        null = _median_null(trim, number)
        verdict, note = _verdict(one.run, table, own, "median_k", label), _beside(null, own)
        yield Row(place, f"median k̂, middle {label} %", table.number(label, "median_k"), own, null, verdict, note=note)
    gap = float(np.nanmedian(state.shape[..., 0] - state.shape[..., -1]))
    yield _gap_row("gap k̂(80 %) − k̂(100 %)", gap, _gap_null(number)._replace(sd=None))
    inside = float(np.mean((state.shape[..., 0] >= _BAND[0]) & (state.shape[..., 0] <= _BAND[1])))
    expected = np.mean([_inside(*_BAND, int(n)) for n in number[number > 0]])
    yield Row(
        place, "share of single matrices in [1.186, 1.204]", "10 of 12 medians", inside,
        Null(float(expected), of="untrained matrices of these sizes"), unresolved(),
        note="of small matrices the band is narrower than sampling; of the paper's it is wide (errata, 21)",
    )  # fmt: skip


def _ablation_of_models(found: Sequence[Member]) -> Iterator[Row]:
    """Table 1 of several models: medians of each by each trim, their median, the number in the band, and the CV."""
    place, table, twelve = f"{PAPER}, table 1", published_table("weibull-table-1"), tuple(HUB)
    text, n = published_table("weibull-text"), len(found)
    numbers = [one.last.number.ravel() for one in found]
    for t, (trim, label) in enumerate(zip(TRIMS, table.labels, strict=True)):
        what = f"median k̂, middle {label} %"
        own = np.array([np.nanmedian(one.last.shape[..., t]) for one in found])
        for one, value, number in zip(found, own.tolist(), numbers, strict=True):
            null = _median_null(trim, number)
            inside = "in" if _BAND[0] <= value <= _BAND[1] else "outside"
            yield Row(place, f"{one.label}: {what}", None, value, null, unresolved("printed only of all models"),
                      note=f"{inside} [1.186, 1.204], {_beside(null, value)}")  # fmt: skip
        drawn = np.stack([_drawn_medians(trim, number, k) for k, number in enumerate(numbers)], axis=1)
        of = "untrained models of these sizes, 95 %"
        low, middle, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.5, 0.975]).tolist()
        null, value = Null(middle, None, low, high, of), float(np.median(own))
        verdict = _of_models(found, twelve, _printed_claim(table, label, "median_k", value))
        yield Row(place, f"median over {n} models: {what}", table.number(label, "median_k"), value, null, verdict,
                  note=_beside(null, value))  # fmt: skip
        counts = ((drawn >= _BAND[0]) & (drawn <= _BAND[1])).sum(axis=1)
        low, high = np.quantile(counts, [0.025, 0.975]).tolist()
        null = Null(float(counts.mean()), None, low, high, of)
        inside = int(((own >= _BAND[0]) & (own <= _BAND[1])).sum())
        printed = int(table.number(label, "in_band"))
        share = printed / len(twelve)
        verdict = _of_models(found, twelve, Claim(Kind.PRINTED, inside / n, low=share, high=share))
        yield Row(place, f"models with {what}, in [1.186, 1.204]", f"{printed} of {len(twelve)} medians",
                  f"{inside} of {n} medians", null, verdict, note=_beside(null, inside))  # fmt: skip
    there = [number > 0 for number in numbers]
    band = shape_band(
        [one.last.shape[..., 0].ravel()[here] for one, here in zip(found, there, strict=True)],
        [number[here] for number, here in zip(numbers, there, strict=True)],
    )
    name, value = "CV of k over models, %", 100 * band.variation
    null = Null(100 * band.null_variation, None, 0.0, 100 * band.null_variation_95, "untrained models, up to 95 %")
    verdict = _of_models(found, twelve, _printed_claim(text, name, "value", value))
    yield Row(place, f"coefficient of variation of {n} median k̂, %", text.number(name, "value"), value, null, verdict,
              note=f"{_beside(null, value)}; p = {band.p_value:.2g} of independent untrained models")  # fmt: skip
    gaps = np.array([np.nanmedian(one.last.shape[..., 0] - one.last.shape[..., -1]) for one in found])
    nulls = [_gap_null(number) for number in numbers]
    sd = np.array([null.sd or 0.0 for null in nulls])
    half, limit = NORMAL_95 * float(np.sqrt((sd**2).sum())) / n, weibull_body_tail_gap().limit
    null = Null(limit, None, limit - half, limit + half, "half-normal, 95 % of such means")
    yield _gap_row(f"mean over {n} models of the median gap k̂(80 %) − k̂(100 %)", float(gaps.mean()), null)
    drawn = limit + sd * np.random.default_rng(_SEED).normal(size=(_DRAWS, n))
    variation = 100 * drawn.std(axis=1, ddof=1) / drawn.mean(axis=1)
    high, value = float(np.quantile(variation, 0.95)), float(100 * gaps.std(ddof=1) / gaps.mean())
    null = Null(float(variation.mean()), None, 0.0, high, "untrained models, up to 95 %")
    verdict = _of_models(found, twelve, _printed_claim(text, "CV of the gap, %", "value", value))
    what, note = f"coefficient of variation of {n} median gaps, %", _beside(null, value)
    yield Row(place, what, text.number("CV of the gap, %", "value"), value, null, verdict, note=note)


OUTLIERS = "largest over blocks of max/q99, beside normal weights"
HEAVIEST = "largest excess kurtosis of a block, beside normal weights"
GROWS = "growth of λ of W_O, %, beside untrained draws"
"""Quantities that the paper says are learned, which ``claims`` reads by these words."""


def _inside(low: float, high: float, number: int) -> float:
    law = weibull_null(0.1).shape
    return float(ndtr((high - law.mean(number)) / law.std(number)) - ndtr((low - law.mean(number)) / law.std(number)))


def _super_weights(one: Member) -> Iterator[Row]:
    place, table = f"{PAPER}, table 2", published_table("weibull-table-2")
    run, state = one.run, one.last
    ratio, kurtosis = state.block[:, 4], state.block[:, 5]
    number = state.number.sum(axis=1)
    shares = [(0.025, 0.5, 0.975), (0.025, 0.5, 0.975)]
    draws = np.array([_largest_over_q99(state, layer, int(number[layer])) for layer in range(len(ratio))]).T
    of = f"{_OF}, 95 %"
    for what, column, own, drawn in (
        ("median over blocks of max/q99", "max_to_q99_median", float(np.median(ratio)), np.median(draws, axis=1)),
        ("largest over blocks of max/q99", "max_to_q99_extreme", float(ratio.max()), draws.max(axis=1)),
    ):
        low, middle, high = np.quantile(drawn, shares[0]).tolist()
        null = Null(middle, None, low, high, of)
        verdict, note = _verdict(run, table, own, column), _beside(null, own)
        yield Row(place, what, _printed_of(run, table, column), own, null, verdict, note=note)
    claim, null = beyond_draws(float(ratio.max()), draws.max(axis=1), Side.ABOVE), null_of_draws(draws.max(axis=1), _OF)
    yield Row(place, OUTLIERS, "isolated outliers in every family", float(ratio.max()), null, decided(claim))
    expected, spread = (np.array(one) for one in zip(*(_excess(state, k) for k in range(len(ratio))), strict=True))
    drawn = expected + spread * np.random.default_rng(_SEED).normal(size=(_DRAWS, ratio.size))
    low, middle, high = np.quantile(drawn.max(axis=1), shares[0]).tolist()
    null, own, column = Null(middle, None, low, high, of), float(kurtosis.max()), "kurtosis_extreme"
    verdict, note = _verdict(run, table, own, column), _beside(null, own)
    what = "largest excess kurtosis of a block"
    yield Row(place, what, _printed_of(run, table, column), own, null, verdict, note=note)
    claim, null = beyond_draws(own, drawn.max(axis=1), Side.ABOVE), null_of_draws(drawn.max(axis=1), _OF)
    yield Row(place, HEAVIEST, "extreme values", own, null, decided(claim))


def _largest_over_q99(state: Transmission, layer: int, number: int) -> np.ndarray:
    """max/q99 of blocks of untrained weights: the largest of n by its exact law, over the quantile's own limit."""
    parent = state.mixture(layer)
    uniform = np.random.default_rng([_SEED, layer]).uniform(size=400)
    return np.asarray(parent.isf(-np.expm1(np.log(uniform) / number))) / float(parent.ppf(0.99))


def _excess(state: Transmission, layer: int) -> tuple[float, float]:
    """Excess kurtosis of normal weights of unequal σ, pooled: 3 ⟨σ⁴⟩/⟨σ²⟩² − 3; and its standard error, σ as measured.

    Of each matrix ⟨w⁴⟩/σ⁴ has variance 24/n where σ is its own root mean square.
    """
    n, square = state.number[layer], np.nan_to_num(state.sigma[layer]) ** 2
    mean = (n @ square) / n.sum()
    error = np.sqrt(24.0 * (n @ square**4)) / n.sum() / mean**2
    return float(3.0 * (n @ square**2) / n.sum() / mean**2 - 3.0), float(error)


def _growth(one: Member) -> Iterator[Row]:
    """Table 3 of a model whose training is known."""
    if one.along is None:
        return
    run = one.run
    matrices = one.along["matrices"].to_dataset()
    scale = weibull_scales(matrices).mean("layer").sel(component="attention_output").values
    table, place = published_table("weibull-table-3"), f"{PAPER}, table 3"
    training, own = training_of(run), own_row(run, table)
    if training is not None:
        verdict = corrected("errata, 25") if own else _verdict(run, table, training.budget, "budget")
        yield Row(
            place, "training budget T/τ", _printed_of(run, table, "budget"), training.budget, None, verdict,
            note=("as configured; " if own else "")
            + f"{training.state}; decay leaves {100 * training.initial_share():.2g} % of each initial weight at "
            f"a constant rate, {100 * training.initial_share(0.55):.2g} % with the schedule (errata, 23)",
        )  # fmt: skip
    for when, column, value in (
        ("the start", "scale_start", float(scale[0])),
        ("the end", "scale_end", float(scale[-1])),
    ):
        verdict = _verdict(run, table, value, column)
        yield Row(place, f"λ of W_O at {when}", _printed_of(run, table, column), value, None, verdict)
    n_output = float((matrices["n_rows"] * matrices["n_columns"]).sel(component="attention_output").sum())
    law, growth = weibull_null().scale, float(100 * (scale[-1] / scale[0] - 1))
    half = 100 * NORMAL_95 * law.spread / law.limit * np.sqrt(2.0 / n_output)
    null = Null(0.0, None, -half, half, "two untrained draws of this σ, 95 %")
    verdict, note = _verdict(run, table, growth, "growth"), _beside(null, growth)
    yield Row(place, "growth of λ of W_O, %", _printed_of(run, table, "growth"), growth, null, verdict, note=note)
    claim, null = (
        beyond_normal(growth, 0.0, float(half / NORMAL_95), Side.ABOVE),
        Null(0.0, float(half / NORMAL_95), of="two untrained draws of this σ"),
    )
    yield Row(place, GROWS, "grows substantially", growth, null, decided(claim))


def _printed_of(run: Run, table: PublishedTable, column: str) -> float | str:
    """Return the number of the run's own row, or the range of all rows."""
    if (label := own_row(run, table)) is not None:
        return table.number(label, column)
    values = table.numbers(column)
    return f"{min(values):g} to {max(values):g}, {len(values)} models"


def _rate(one: Member) -> Iterator[Row]:
    """Table 4 of a model: its mean λ, and that over √(η/λ_wd) where these are known."""
    table, place, run = published_table("weibull-table-4"), f"{PAPER}, table 4", one.run
    label, values, training = own_row(run, table), table.numbers("ratio"), training_of(run)
    scale = mean_scale(one.scores)
    partial = "the paper read 27 of its 48 layers" if label == "Qwen2.5-14B" else ""
    verdict = _verdict(run, table, scale, "mean_scale")
    yield Row(place, "mean λ of the Transmission Class", _printed_of(run, table, "mean_scale"), scale, None, verdict,
              note=partial)  # fmt: skip
    if label is None and training is None:
        return
    note = f"the published ones span a factor of {max(values) / min(values):.1f}: no law (errata, 17)"
    if label is not None and training is not None:
        note = f"as configured it is {scale / training.root:.3g} (errata, 25); {note}"
    root = table.number(label, "root") if label is not None else training.root if training is not None else np.nan
    verdict = _verdict(run, table, scale / root, "ratio")
    what = "mean λ over √(η/λ_wd)" + (", η and λ_wd as printed" if label else "")
    yield Row(place, what, _printed_of(run, table, "ratio"), scale / root, None, verdict, note=note)


def known_scales(found: Sequence[Member], beside: xr.DataTree) -> list[scales.Model]:
    """Points of figure 13: the models of the run, and the twins, whose η and λ_wd are known."""
    own = [
        scales.Model(one.label, training.root, mean_scale(one.scores))
        for one in found
        if (training := training_of(one.run)) is not None
    ]
    return own if len(found) > 1 else [*scales.cohort_models(beside), *own]


def _correlations(found: Sequence[Member], beside: xr.DataTree) -> Iterator[Row]:
    """r of λ and √(η/λ_wd) over models, with η and λ_wd as printed and as configured; r of two components' λ."""
    table, text = published_table("weibull-table-4"), published_table("weibull-text")
    printed = [
        (label, scales.Model(one.label, table.number(label, "root"), mean_scale(one.scores)))
        for one in found
        if (label := own_row(one.run, table)) is not None
    ]
    five = [label for label in HUB if label.startswith("Pythia")]
    pythia = [model for label, model in printed if label in five]
    name = "r of λ and √(η/λ_wd)"
    configured = [one for one in known_scales(found, beside) if one.name in {model.name for model in pythia}]
    every = [model for _, model in printed]
    for models, whose, value in (
        (pythia, "Pythia sizes, η and λ_wd as printed", text.number(name, "value")),
        (configured, "Pythia sizes, η and λ_wd as configured (errata, 25)", text.number(name, "value")),
        (every if len(every) > len(pythia) else [], "printed models, η and λ_wd as printed", None),
    ):
        if len(models) < 3 or len({one.root for one in models}) < 2:
            continue
        law = scales.law_of(models)
        null = Null(0.0, of=f"every order of λ alike, p = {law.p_value:.2g}")
        if value is None:
            verdict = unresolved("printed of the Pythia sizes only")
        else:
            some = [one for one in found if one.label in {model.name for model in models}]
            verdict = _of_models(some, five, _printed_claim(text, name, "value", law.correlation))
        yield Row(f"{PAPER}, table 4", f"Pearson r of mean λ and √(η/λ_wd), {law.n} {whose}", value, law.correlation,
                  null, verdict, note=f"line through the origin: slope {law.slope:.3g}, R² {law.r_squared:.2g}; power "
                  f"{law.exponent:.2f} ± {law.exponent_error:.2f}")  # fmt: skip
    grown = _paired(found)
    if grown is None:
        return
    name, courses = "r of ln λ_O and ln λ_FFN_out", [one for one in found if one.along is not None]
    null = Null(grown.built_in, None, -1.0, grown.built_in_95, "pairs at random after the same start, up to 95 %")
    verdict = _of_models(courses, five, _printed_claim(text, name, "value", grown.correlation))
    yield Row(f"{PAPER}, text", f"Pearson r of ln λ of W_O and MLP out, {grown.n} steps of {_models(courses)}",
              text.number(name, "value"), grown.correlation, null, verdict,
              note=f"{_beside(null, grown.correlation)} (errata, 18); after the start alone "
              f"{grown.later_correlation:.4f}")  # fmt: skip


def _paired(found: Sequence[Member]) -> PairedGrowth | None:
    """Pair λ of W_O with that of the MLP's output, at all steps of all models whose training is known."""
    pairs, initial = [], list[bool]()
    for one in found:
        matrices = None if one.along is None else one.along["matrices"].to_dataset()
        if matrices is None or not {"attention_output", "mlp_out"} <= {*matrices["component"].values.tolist()}:
            continue
        median = weibull_scales(matrices).median("layer")
        pairs.append([median.sel(component=name).values for name in ("attention_output", "mlp_out")])
        initial += (matrices["step"].values == 0).tolist()
    if len(initial) < 3:
        return None
    return paired_growth(*np.concatenate(pairs, axis=1), initial=np.array(initial))


def _initial(one: Member) -> Iterator[Row]:
    """Table 5 of a model whose first checkpoint is known."""
    if one.along is None:
        return
    run, matrices = one.run, one.along["matrices"].to_dataset()
    first = weibull_scales(matrices).mean("layer").isel(step=0)
    table = published_table("weibull-table-5")
    label = own_row(run, table)
    pairs = (("attention_query", "attention_output"), ("mlp_in", "mlp_out"))
    held = first["component"].values.tolist()
    if "attention_query_key_value" in held:
        pairs = (("attention_query_key_value", "attention_output"), pairs[1])
    ratios = [
        float(first.sel(component=into) / first.sel(component=out)) for into, out in pairs if {into, out} <= set(held)
    ]
    if not ratios:
        return
    number = (matrices["n_rows"] * matrices["n_columns"]).sum("layer")
    law = weibull_null().scale
    errors = [
        law.spread / law.limit / np.sqrt(float(number.sel(component=name)))
        for pair in pairs
        for name in pair
        if name in held
    ]
    ratio, place = float(np.mean(ratios)), f"{PAPER}, table 5"
    what, printed = "λ of what reads over λ of what writes, step 0", "1.9 to 8.0, by recipe"
    if label is None and run.model != "demo":
        yield Row(
            place, what, printed, ratio, None, unresolved(), note="the recipe of its initial weights is not known here"
        )
        return
    expected = table.number(label, "predicted") if label else 1.0
    half = NORMAL_95 * expected * float(np.hypot.reduce(errors)) / len(ratios)
    null = Null(expected, None, expected - half, expected + half, "initial weights by the recipe, 95 %")
    claim = within(ratio, expected, AS_RECIPE * expected, half / NORMAL_95)
    verdict = decided(claim) if label else needs(_MODELS[table.name], claim)
    note = f"as the recipe has it: within {100 * AS_RECIPE:g} %"
    yield Row(place, what, table.number(label, "measured") if label else printed, ratio, null, verdict,
              note=note if label else f"{note}; one σ for all matrices, so that the ratio is 1")  # fmt: skip


def _needs(found: Sequence[Member]) -> Iterator[Row]:
    table = published_table("weibull-table-4")
    for label in table.labels:
        if not any(one.run.is_of(HUB[label]) for one in found):
            yield Row(
                f"{PAPER}, tables 1 to 5", f"the row of {label}", table.number(label, "mean_scale"), None, None,
                needs(HUB[label]), note=f"`python -m studies.sources weibull --model {HUB[label]}`; mean λ printed",
            )  # fmt: skip


def printed() -> Iterator[Table]:
    """Every printed number of tables 1 to 5 and of the text, with what it is from first principles where it is."""
    for name in (
        "weibull-table-1",
        "weibull-table-2",
        "weibull-table-3",
        "weibull-table-4",
        "weibull-table-5",
        "weibull-text",
    ):
        table = published_table(name)
        found = {(one.row, one.column): one for one in checks(table)}
        rows = []
        for label, cells in zip(table.labels, table.rows, strict=True):
            for column in list(table.columns)[1:]:
                one = found.get((label, column))
                if column in ("state", "recipe", "place") or not cells[column]:
                    continue
                interval = None if one is None else one.expected.interval
                expected = (
                    None
                    if interval is None
                    else (
                        interval.low if interval.low == interval.high else f"{interval.low:.4g} to {interval.high:.4g}"
                    )
                )
                says = (
                    ""
                    if one is None
                    else ("yes" if one.agrees else "untrained differ" if one.expected.untrained else "no")
                )
                words = table.columns[column].words
                rows.append((label, words, cells[column], expected, says, "" if one is None else one.expected.basis))
        number = name.rpartition("-")[2]
        place = f"{PAPER}, {'text' if number == 'text' else f'table {number}'}"
        yield Table(
            name, ("", "quantity", "printed", "from first principles", "agrees", "by"), tuple(rows),
            f"{table.title}. From first principles: laws of untrained weights, or other printed numbers; "
            "a number of trained weights has none.", place,
        )  # fmt: skip


def functions(found: Sequence[Member], beside: xr.DataTree) -> Table:
    """Table 6: what each of the eight functions is here, with what it gives of this run."""
    given = _of_functions(found, beside)
    table = published_table("weibull-table-6")
    rows = tuple(
        (label, table.rows[k]["description"], our_name(label), given.get(label, ""))
        for k, label in enumerate(table.labels)
    )
    whose = "this run's model" if len(found) == 1 else f"this run's {len(found)} models"
    return Table(
        "weibull-table-6", ("function", "description", "here", "of this run"), rows,
        f"The eight functions, what each is called here, and what it gives of {whose} beside its null.",
        f"{PAPER}, table 6",
    )  # fmt: skip


def _of_functions(found: Sequence[Member], beside: xr.DataTree) -> dict[str, str]:
    several = "" if len(found) == 1 else f"{len(found)} models: "
    states, matrices = [one.last for one in found], [one.scores["matrices"].to_dataset() for one in found]
    closure, null = (
        [float(one[name].sel(statistic="weibull_closure").median()) for one in matrices]
        for name in ("observed", "null_mean")
    )
    classes = [name for one in found for name in attention_classes(one.scores).values()]
    given = {
        "F1_extract_weights": f"{several}{sum(int((one.number > 0).sum()) for one in states)} matrices of the "
        f"Transmission Class, {sum(int(one.number.sum()) for one in states)} weights",
        "F2_fit_weibull": f"{several}pooled k̂ {_span([one.whole[0] for one in states], '.4f')}, "
        f"λ̂ {_span([one.whole[1] for one in states], '.5f')}; half-normal {weibull_anchor().shape:.4f}",
        "F3_gamma_closure": f"{several}median {_span(closure, '.1%')} off; untrained {_span(null, '.1%')}, "
        f"{weibull_closure().rms.limit - 1:.1%} of √⟨w²⟩".replace("%", " %"),
        "F7_attention_arch_classify": several + "; ".join(dict.fromkeys(classes)),
    }
    if "findings" in beside.children and "band_variation" in beside["findings"]:
        findings = beside["findings"].to_dataset()
        given["F4_cross_family_band"] = (
            f"{int(beside['models'].sizes['model'])} models: [{float(findings['band_low']):.3f}, "
            f"{float(findings['band_high']):.3f}], "
            f"CV {100 * float(findings['band_variation']):.2f} %; untrained "
            f"{100 * float(findings['band_null_variation']):.2f} %"
        )
    models = known_scales(found, beside) if several else scales.cohort_models(beside)
    if len({one.root for one in models}) > 1:
        law = scales.law_of(models)
        given["F5_lambda_scaling"] = (
            f"{law.n} models: r {law.correlation:.2f}, exponent {law.exponent:.2f} ± {law.exponent_error:.2f}"
        )
    courses = [one.along for one in found if one.along is not None]
    if courses:
        ends = [(scores_at(one, steps_of(one)[0]), scores_at(one, steps_of(one)[-1])) for one in courses]
        drifts = [shape_drift(first, last) for first, last in ends]
        flagged = sum(int((one["q_value"] < 0.05).sum()) for one in drifts)
        number = sum(int(one["drift"].notnull().sum()) for one in drifts)
        medians = _span([float(one["drift"].median()) for one in drifts], "+.4f")
        whose = f"{len(courses)} models: " if several else ""
        given["F6_k_drift"] = f"{whose}median {medians}; {flagged} of {number} matrices with q < 0.05"
    grown = _paired(found)
    if grown is not None:
        whose = "one model" if len(courses) == 1 else f"{len(courses)} models"
        given["F8_lambda_paired_correlation"] = f"r {grown.correlation:.4f} over {grown.n} steps of {whose}"
    return given


def _span(values: Sequence[float], form: str) -> str:
    """Format one number, or the smallest and the largest of several."""
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"
