"""The Weibull paper's tables: what was printed, what follows without a checkpoint, and the run's model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr
from scipy.special import ndtr

from rmtbase.laws import weibull_anchor, weibull_body_tail_gap, weibull_closure, weibull_null
from rmtbase.results.comparison import (
    Training,
    attention_classes,
    paired_growth,
    shape_band,
    shape_drift,
    weibull_scales,
)
from rmtbase.results.trajectory.schema import scores_at
from studies.sources import weibull_scales as scales
from studies.sources.course import TRIMS, Transmission, steps_of, training_of
from studies.sources.first_principles import checks, our_name
from studies.sources.published import PublishedTable, published_table
from studies.sources.recipe import Null, Row, Run, Table
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


def rows(run: Run, along: xr.DataTree | None, last: Transmission) -> Iterator[Row]:
    """Tables 1 to 5: the run's model beside what is printed and its null; and what other checkpoint each row needs."""
    yield from _ablation(run, last)
    yield from _super_weights(run, last)
    yield from _along(run, along)
    yield from _needs(run)


def mean_scale(scores: xr.DataTree) -> float:
    """λ̂ over the Transmission Class: the mean over layers, then over components."""
    found = weibull_scales(scores["matrices"].to_dataset())
    held = [name for name in scales.TRANSMISSION if name in found["component"].values]
    return float(found.sel(component=held).mean("layer").mean())


def own_row(run: Run, table: PublishedTable) -> str | None:
    """Label of the run's own model in a table of models; None if the table lacks it."""
    return next((one for one in table.labels if one in HUB and run.is_of(HUB[one])), None)


def _verdict(
    run: Run, table: PublishedTable, observed: float, null: Null | None, column: str, row: str | None = None
) -> str:
    """Verdict on the run's own row: *agrees* or *differs*; without one, *needs*, with the place in the published range.

    ``row`` is the printed row of all models together, which no single model decides.
    """
    own = own_row(run, table)
    which = row or own
    numbers = [table.interval(one, column) for one in ((which,) if which else table.labels)]
    published = min(one.low for one in numbers) <= observed <= max(one.high for one in numbers)
    at_null = null is not None and null.low is not None and null.high is not None and null.low <= observed <= null.high
    if own:
        return ("agrees" if published else "differs") + (": as untrained weights are" if at_null else "")
    where = f"{'in' if published else 'outside'} the published range"
    beside = "" if null is None else ", as untrained weights are" if at_null else ", beyond the null"
    return f"needs {_MODELS[table.name]}; here {where}{beside}"


_MODELS = {
    "weibull-table-1": "the twelve models of table 4",
    "weibull-table-2": "the eight models of table 2",
    "weibull-table-3": "the five Pythia sizes",
    "weibull-table-4": "the twelve models of table 4",
    "weibull-table-5": "the five Pythia sizes",
}


def _median_null(trim: float, number: np.ndarray) -> Null:
    """Interval that holds 95 % of medians of k̂ over this many untrained matrices."""
    law = weibull_null(trim).shape
    n = number[number > 0]
    draws = law.mean(int(n.min())) + law.spread / np.sqrt(n) * np.random.default_rng(_SEED).normal(
        size=(_DRAWS, n.size)
    )
    low, high = np.quantile(np.median(draws, axis=1), [0.025, 0.975])
    return Null(law.limit, None, float(low), float(high), "half-normal, 95 % of such medians")


def _ablation(run: Run, state: Transmission) -> Iterator[Row]:
    place, table = f"{PAPER}, table 1", published_table("weibull-table-1")
    number = state.number.ravel()
    for trim, label in zip(TRIMS, table.labels, strict=True):
        own = float(np.nanmedian(state.shape[..., TRIMS.index(trim)]))
        null = _median_null(trim, number)
        verdict = _verdict(run, table, own, null, "median_k", label)
        yield Row(place, f"median k̂, middle {label} %", table.number(label, "median_k"), own, null, verdict)
    gap = state.shape[..., 0] - state.shape[..., -1]
    law, n = weibull_body_tail_gap(), number[number > 0]
    half = NORMAL_95 * law.std(int(np.median(n))) * 1.2533 / np.sqrt(n.size)
    null = Null(law.limit, None, law.limit - half, law.limit + half, "half-normal, 95 % of such medians")
    text = published_table("weibull-text")
    name = "body-tail gap k(80 %) - k(100 %)"
    mean, spread = text.number(name, "value"), text.number("standard deviation of the gap", "value")
    own = float(np.nanmedian(gap))
    yield Row(
        place, "gap k̂(80 %) − k̂(100 %)", mean, own, null, "corrected", note="errata, 7: of half-normal weights it is "
        f"{(law.limit - mean) / spread:.2f} of the published standard deviations above the published one",
    )  # fmt: skip
    inside = float(np.mean((state.shape[..., 0] >= 1.186) & (state.shape[..., 0] <= 1.204)))
    expected = np.mean([_inside(1.186, 1.204, int(one)) for one in n])
    yield Row(
        place, "share of single matrices in [1.186, 1.204]", "10 of 12 medians", inside,
        Null(float(expected), of="untrained matrices of these sizes"), "open",
        note="of small matrices the band is narrower than sampling; of the paper's it is wide (errata, 21)",
    )  # fmt: skip


def _inside(low: float, high: float, number: int) -> float:
    law = weibull_null(0.1).shape
    return float(ndtr((high - law.mean(number)) / law.std(number)) - ndtr((low - law.mean(number)) / law.std(number)))


def _super_weights(run: Run, state: Transmission) -> Iterator[Row]:
    place, table = f"{PAPER}, table 2", published_table("weibull-table-2")
    ratio, kurtosis = state.block[:, 4], state.block[:, 5]
    number = state.number.sum(axis=1)
    shares = [(0.025, 0.5, 0.975), (0.025, 0.5, 0.975)]
    draws = np.array([_largest_over_q99(state, layer, int(number[layer])) for layer in range(len(ratio))]).T
    of = "normal weights, each matrix's σ, 95 %"
    for what, column, own, drawn in (
        ("median over blocks of max/q99", "max_to_q99_median", float(np.median(ratio)), np.median(draws, axis=1)),
        ("largest over blocks of max/q99", "max_to_q99_extreme", float(ratio.max()), draws.max(axis=1)),
    ):
        low, middle, high = np.quantile(drawn, shares[0]).tolist()
        null = Null(middle, None, low, high, of)
        verdict = _verdict(run, table, own, null, column)
        yield Row(place, what, _printed_of(run, table, column), own, null, verdict)
    spread = np.sqrt(24.0 / number)
    expected = [_excess(state, layer) for layer in range(len(ratio))]
    at = int(np.argmax(kurtosis))
    half = NORMAL_95 * spread[at]
    null = Null(expected[at], float(spread[at]), expected[at] - half, expected[at] + half,
                "normal weights, each matrix's σ, 95 % of one block")  # fmt: skip
    column, own = "kurtosis_extreme", float(kurtosis[at])
    verdict = _verdict(run, table, own, null, column)
    yield Row(place, "largest excess kurtosis of a block", _printed_of(run, table, column), own, null, verdict)


def _largest_over_q99(state: Transmission, layer: int, number: int) -> np.ndarray:
    """max/q99 of blocks of untrained weights: the largest of n by its exact law, over the quantile's own limit."""
    parent = state.mixture(layer)
    uniform = np.random.default_rng([_SEED, layer]).uniform(size=400)
    return np.asarray(parent.isf(-np.expm1(np.log(uniform) / number))) / float(parent.ppf(0.99))


def _excess(state: Transmission, layer: int) -> float:
    """Excess kurtosis of normal weights of unequal σ, pooled: 3 ⟨σ⁴⟩/⟨σ²⟩² − 3."""
    n, square = state.number[layer], np.nan_to_num(state.sigma[layer]) ** 2
    return float(3.0 * (n @ square**2) / n.sum() / ((n @ square) / n.sum()) ** 2 - 3.0)


def _along(run: Run, along: xr.DataTree | None) -> Iterator[Row]:
    """Tables 3, 4 and 5."""
    if along is None:
        for number in (3, 5):
            yield Row(
                f"{PAPER}, table {number}",
                "the same of a training run",
                None,
                None,
                None,
                "needs checkpoints along training",
            )
        return
    matrices = along["matrices"].to_dataset()
    scale = weibull_scales(matrices).mean("layer")
    first, last = scale.isel(step=0), scale.isel(step=-1)
    table, place = published_table("weibull-table-3"), f"{PAPER}, table 3"
    training, own = training_of(run), own_row(run, table)
    if training is not None:
        verdict = "corrected" if own else _verdict(run, table, training.budget, None, "budget")
        yield Row(
            place, "training budget T/τ", _printed_of(run, table, "budget"), training.budget, None, verdict,
            note=("as configured (errata, 25); " if own else "")
            + f"{training.state}; decay leaves {100 * training.initial_share():.2g} % of each initial weight at "
            f"a constant rate, {100 * training.initial_share(0.55):.2g} % with the schedule (errata, 23)",
        )  # fmt: skip
    n_output = float((matrices["n_rows"] * matrices["n_columns"]).sel(component="attention_output").sum())
    law, growth = (
        weibull_null().scale,
        100 * float(last.sel(component="attention_output") / first.sel(component="attention_output") - 1),
    )
    half = 100 * NORMAL_95 * law.spread / law.limit * np.sqrt(2.0 / n_output)
    null = Null(0.0, None, -half, half, "two untrained draws of this σ, 95 %")
    verdict = _verdict(run, table, growth, null, "growth")
    yield Row(place, "growth of λ of W_O, %", _printed_of(run, table, "growth"), growth, null, verdict)
    if training is not None:
        yield from _rate(
            run,
            training,
            float(last.sel(component=[one for one in scales.TRANSMISSION if one in last["component"].values]).mean()),
        )
    yield from _initial(run, matrices, first)


def _printed_of(run: Run, table: PublishedTable, column: str) -> float | str:
    """Return the number of the run's own row, or the range of all rows."""
    if (label := own_row(run, table)) is not None:
        return table.number(label, column)
    values = table.numbers(column)
    return f"{min(values):g} to {max(values):g}, {len(values)} models"


def _rate(run: Run, training: Training, scale: float) -> Iterator[Row]:
    table, place = published_table("weibull-table-4"), f"{PAPER}, table 4"
    label, values = own_row(run, table), table.numbers("ratio")
    note = f"the published ones span a factor of {max(values) / min(values):.1f}: no law (errata, 17)"
    ratio = scale / training.root
    if label is not None:
        note = f"as configured it is {ratio:.3g} (errata, 25); {note}"
        ratio = scale / table.number(label, "root")
    verdict = _verdict(run, table, ratio, None, "ratio")
    what = "mean λ over √(η/λ_wd)" + (", η and λ_wd as printed" if label else "")
    yield Row(place, what, _printed_of(run, table, "ratio"), ratio, None, verdict, note=note)


def _initial(run: Run, matrices: xr.Dataset, first: xr.DataArray) -> Iterator[Row]:
    table = published_table("weibull-table-5")
    label = own_row(run, table)
    pairs = (("attention_query", "attention_output"), ("mlp_in", "mlp_out"))
    held = first["component"].values.tolist()
    if "attention_query_key_value" in held:
        pairs = (("attention_query_key_value", "attention_output"), pairs[1])
    ratios = [
        float(first.sel(component=into) / first.sel(component=out)) for into, out in pairs if {into, out} <= set(held)
    ]
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
        yield Row(place, what, printed, ratio, None, "open", note="the recipe of its initial weights is not known here")
        return
    expected = table.number(label, "predicted") if label else 1.0
    half = NORMAL_95 * expected * float(np.hypot.reduce(errors)) / len(ratios)
    null = Null(expected, None, expected - half, expected + half, "initial weights by the recipe, 95 %")
    as_recipe = abs(ratio - expected) <= half
    verdict = "agrees" if as_recipe else "differs"
    if label is None:
        verdict = f"needs {_MODELS[table.name]}; here {'as' if as_recipe else 'not as'} the demo's own recipe has it"
    yield Row(place, what, table.number(label, "measured") if label else printed, ratio, null, verdict,
              note="" if label else "one σ for all matrices, so that the ratio is 1")  # fmt: skip


def _needs(run: Run) -> Iterator[Row]:
    table = published_table("weibull-table-4")
    for label in table.labels:
        if not run.is_of(HUB[label]):
            yield Row(
                f"{PAPER}, tables 1 to 5", f"the row of {label}", table.number(label, "mean_scale"), None, None,
                f"needs {HUB[label]}", note=f"`python -m studies.sources weibull --model {HUB[label]}`; mean λ printed",
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


def functions(
    run: Run, along: xr.DataTree | None, beside: xr.DataTree, scores: xr.DataTree, state: Transmission
) -> Table:
    """Table 6: what each of the eight functions is here, with what it gives of this run."""
    found = _of_functions(run, along, beside, scores, state)
    table = published_table("weibull-table-6")
    rows = tuple(
        (label, table.rows[k]["description"], our_name(label), found.get(label, ""))
        for k, label in enumerate(table.labels)
    )
    return Table(
        "weibull-table-6", ("function", "description", "here", "of this run"), rows,
        "The eight functions, what each is called here, and what it gives of this run's model beside its null.",
        f"{PAPER}, table 6",
    )  # fmt: skip


def _of_functions(
    run: Run, along: xr.DataTree | None, beside: xr.DataTree, scores: xr.DataTree, state: Transmission
) -> dict[str, str]:
    matrices = scores["matrices"].to_dataset()
    number = int(state.number.sum())
    found = {
        "F1_extract_weights": f"{int((state.number > 0).sum())} matrices of the Transmission Class, {number} weights",
        "F2_fit_weibull": f"pooled k̂ {state.whole[0]:.4f}, λ̂ {state.whole[1]:.5f}; half-normal "
        f"{weibull_anchor().shape:.4f}",
        "F7_attention_arch_classify": "; ".join(dict.fromkeys(attention_classes(scores).values())),
    }
    closure = matrices["observed"].sel(statistic="weibull_closure")
    null = matrices["null_mean"].sel(statistic="weibull_closure")
    found["F3_gamma_closure"] = (
        f"median {100 * float(closure.median()):.1f} % off; untrained {100 * float(null.median()):.1f} %, "
        f"{100 * (weibull_closure().rms.limit - 1):.1f} % of √⟨w²⟩"
    )
    names = [name for name in scales.TRANSMISSION if name in matrices["component"].values]
    own = matrices.sel(component=names, statistic="weibull_shape")["observed"].values.ravel()
    counts = (matrices["n_rows"] * matrices["n_columns"]).sel(component=names).values.ravel()
    if "findings" in beside.children:
        findings = beside["findings"].to_dataset()
        found["F4_cross_family_band"] = (
            f"{int(beside['models'].sizes['model'])} models: [{float(findings['band_low']):.3f}, "
            f"{float(findings['band_high']):.3f}], "
            f"CV {100 * float(findings['band_variation']):.2f} %; untrained "
            f"{100 * float(findings['band_null_variation']):.2f} %"
        )
    else:
        band = shape_band([own], [counts])
        found["F4_cross_family_band"] = (
            f"median {band.medians[0]:.4f}; untrained {band.null_medians[0]:.4f} ± {band.null_errors[0]:.4f}"
        )
    models = scales.cohort_models(beside)
    if len({one.root for one in models}) > 1:
        law = scales.law_of(models)
        found["F5_lambda_scaling"] = (
            f"{law.n} models: r {law.correlation:.2f}, exponent {law.exponent:.2f} ± {law.exponent_error:.2f}"
        )
    if along is not None:
        steps = steps_of(along)
        drift = shape_drift(scores_at(along, steps[0]), scores_at(along, steps[-1]))
        flagged = int((drift["q_value"] < 0.05).sum())
        found["F6_k_drift"] = (
            f"median {float(drift['drift'].median()):+.4f}; {flagged} of {int(drift['drift'].notnull().sum())} "
            "matrices with q < 0.05"
        )
        course_scales = weibull_scales(along["matrices"].to_dataset()).median("layer")
        pair = [course_scales.sel(component=name).values for name in ("attention_output", "mlp_out")]
        grown = paired_growth(*pair, initial=np.array(steps) == 0)
        found["F8_lambda_paired_correlation"] = f"r {grown.correlation:.4f} over {grown.n} steps of one model"
    return found
