"""Figures 2 to 9 of the Weibull paper: the fit, its tail, and the shapes of matrices, each beside untrained weights."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from rmtbase.drawing.theme import LIGHT
from rmtbase.laws import parents, weibull_anchor, weibull_body_tail_gap, weibull_null, weibull_quantile_noise
from rmtbase.results.comparison import SELECTION
from rmtbase.results.comparison._matrices import FUSED
from rmtbase.results.figures import figures
from rmtbase.results.scores.figures._element_histograms import magnitude_heatmap
from rmtbase.results.trajectory.schema import scores_at
from studies.sources.course import TRIMS, Member, Transmission, body_edges
from studies.sources.drawing import canvas, legend_below, looks, titled
from studies.sources.published import PUBLISHED_BAND
from studies.sources.recipe import Figure

PAPER = "Weibull paper"
NORMAL_95 = 1.96
SHORT = {
    "attention_query": r"$W_q$", "attention_key": r"$W_k$", "attention_query_key_value": r"$W_{qkv}$",
    "attention_value": r"$W_v$", "attention_output": r"$W_o$", "mlp_gate": "FFN gate", "mlp_in": "FFN in",
    "mlp_out": "FFN out",
}  # fmt: skip
"""Components in the order of the paper's figure 4: Selection, then Transmission."""
BAND_COLOUR = "#f2d46b"


def place(number: int) -> str:
    """Place of a figure in the sources."""
    return f"{PAPER}, figure {number}"


def figure_of(number: int, drawn: object, caption: str) -> Figure:
    """Make a figure of the paper."""
    return Figure(f"weibull-figure-{number:02d}", drawn, caption, place(number))  # pyright: ignore[reportArgumentType]


def noise() -> Figure:
    """Figure 2: how noisy one point of the plot is, and how noisy the slope is."""
    figure, ((left, right),) = canvas(1, 2, width=10.0, height=3.9)
    p = np.linspace(0.0, 1.0, 801)[1:-1]
    # To first order, of an order statistic at share p: least at p = 0.797 (arXiv:2605.18898, Figure 2).
    transform = p / ((1.0 - p) * np.log1p(-p) ** 2)
    magnitude = weibull_quantile_noise(p, parents.Normal())
    for k, ends in enumerate(((0.0, 0.1), (0.9, 1.0))):
        label = "" if k else "left out, 10 % at either end"
        left.axvspan(*ends, color=LIGHT.null, alpha=0.28, linewidth=0, label=label)
    left.plot(p, transform / transform.min(), color=LIGHT.observed, linewidth=1.6, label=r"$\ln(-\ln(1 - F))$")
    left.plot(p, magnitude / magnitude.min(), color=LIGHT.free_law, linewidth=1.4, linestyle="--",
              label=r"$\ln |w|$ of random entries")  # fmt: skip
    left.set_yscale("log")
    left.set_ylim(0.9, 100.0)
    left.set_xlim(0.0, 1.0)
    titled(left, "one point of the plot: the paper's curve", "share $p$ of weights below", "variance over its least")
    left.legend(frameon=False, fontsize=8)
    trims = np.linspace(0.002, 0.25, 60)
    spread = np.array([weibull_null(round(float(trim), 4)).shape.spread for trim in trims])
    least = float(min(np.arange(0.02, 0.06, 0.001), key=lambda trim: weibull_null(round(trim, 3)).shape.spread))
    best = weibull_null(least).shape.spread
    right.plot(trims, spread / best, color=LIGHT.free_law, linewidth=1.8, label=r"$\hat k$ of half-normal weights")
    for trim, colour, label in ((0.1, LIGHT.observed, "the paper's trim"), (least, LIGHT.flagged, "least noisy")):
        own = weibull_null(trim).shape.spread / best
        right.plot(trim, own, "o", color=colour, label=f"{label}: {100 * trim:.3g} %, {own:.3f}")
    titled(right, "the slope, which is what is fitted", "left out at either end", "standard deviation over its least")
    right.legend(frameon=False, fontsize=8)
    caption = (
        "Left, the noise of one point of the Weibull plot, least at p = 0.797, as the paper draws it (6.48 times as "
        "much at p = 0.1, where the lowest tenth ends, and without a mean within it: errata, 28), and that of ln |w| "
        f"of half-normal weights (dashed). Right, the noise of the fitted slope by trim: least at {100 * least:.1f} %, "
        f"{100 * (weibull_null(0.1).shape.spread / best - 1):.1f} % larger at the paper's 10 %. All of it is of "
        "weights that learned nothing."
    )
    return figure_of(2, figure, caption)


def body_and_tail(states: Sequence[tuple[str, Transmission]]) -> Figure:
    """Figure 3: histogram and body fit of the pooled Transmission Class, and its tail, at each checkpoint."""
    figure, grid = canvas(len(states), 2, width=9.5, height=2.3, sharex="col", sharey="col")
    edges = body_edges()
    x = np.linspace(1e-3, edges[-1], 400)
    for (left, right), (name, state) in zip(grid, states, strict=True):
        shape, scale, _, rms, q99, largest = state.whole.tolist()
        null, unit, number = state.mixture(), scale / rms, state.number.sum()
        left.stairs(state.body, edges, fill=True, color=LIGHT.observed, alpha=0.35, label="weights")
        fitted = shape / unit * (x / unit) ** (shape - 1) * np.exp(-((x / unit) ** shape))
        left.plot(x, fitted, color=LIGHT.flagged, linewidth=1.5, label="Weibull law of the body")
        left.plot(x, rms * np.asarray(null.pdf(x * rms)), color=LIGHT.null, linestyle="--", label="normal, same σ's")
        titled(left, rf"{name}: $\hat k$ = {shape:.3f}, $\hat\lambda$ = {scale:.4f}", "", "density")
        ends = state.tail_edges / rms
        right.stairs(state.tail, ends, fill=True, color=LIGHT.observed, alpha=0.35)
        body = number * -np.diff(np.exp(-((ends / unit) ** shape)))
        untrained = number * -np.diff(np.asarray(null.sf(ends * rms)))
        right.stairs(body, ends, color=LIGHT.flagged, linewidth=1.4)
        high = untrained + NORMAL_95 * np.sqrt(untrained)
        low = np.fmax(untrained - NORMAL_95 * np.sqrt(untrained), 1e-2)
        right.fill_between(ends, np.append(low, low[-1]), np.append(high, high[-1]), step="post", color=LIGHT.null,
                           alpha=0.4, linewidth=0, label="normal, same σ's: 95 % of each bin")  # fmt: skip
        right.axvline(largest / rms, color=LIGHT.text, linewidth=0.8, linestyle=":")
        titled(right, f"beyond q99: max/q99 = {largest / q99:.2f}", "", "weights")
    left.set_xlim(0, edges[-1])
    right.set(yscale="log", ylim=(0.3, None))
    for ax in grid[-1]:
        ax.set_xlabel("$|w|$ / rms", fontsize=9.5, color=LIGHT.text)
    legend_below(figure, [*grid[0]])
    caption = (
        "W_O and the MLP's matrices of all layers, pooled. Left, density, Weibull law of the middle 80 %, and normal "
        "weights with each matrix's own σ. Right, numbers of weights beyond q99, what the body predicts, and what such "
        "normal weights give (95 % of each bin): the body's prediction is too heavy before any training (errata, 20)."
    )
    return figure_of(3, figure, caption)


def drift(one: Member, twins: xr.DataTree) -> Figure:
    """Figure 4 of one model: change of k̂ of each matrix from the first checkpoint to the last, and where it ends."""
    figure, (above, below) = (found := canvas(2, 1, width=9.5, height=3.2, sharex=True))[0], found[1][:, 0]
    assert one.along is not None
    matrices = one.along["matrices"].to_dataset().sel(statistic="weibull_shape")
    names = _in_order(matrices["component"].values.tolist())
    matrices = matrices.sel(component=names)
    first, last = matrices.isel(step=0), matrices.isel(step=-1)
    error = NORMAL_95 * np.hypot(
        *(one["null_std"].transpose("layer", "component").values for one in (first, last))
    ).max(axis=0)
    spread = NORMAL_95 * last["null_std"].max("layer").values
    middle = last["null_mean"].mean("layer").values
    for x in range(len(names)):
        label = "untrained, 95 % of one matrix" if x == 0 else ""
        for ax, centre, half in ((above, 0.0, error[x]), (below, middle[x], spread[x])):
            ax.fill_between([x - 0.42, x + 0.42], centre - half, centre + half, color=LIGHT.null, alpha=0.3,
                            linewidth=0, label=label)  # fmt: skip
        own = last["observed"].isel(component=x).values
        change = own - first["observed"].isel(component=x).values
        aside = x - 0.3 + 0.05 * np.arange(own.size) / max(own.size / 4, 1)
        for ax, y in ((above, change), (below, own)):
            ax.plot(aside, y, "o", color=LIGHT.text, markersize=4, label="each layer, this run" if x == 0 else "")
    _twins(twins, names, above, below)
    below.axhspan(*PUBLISHED_BAND, color=BAND_COLOUR, alpha=0.55, linewidth=0, label="published band", zorder=0)
    above.axhline(0.0, color=LIGHT.muted, linewidth=0.8)
    below.set_xticks(range(len(names)), [_class_of(name) for name in names])
    titled(above, "A: from the first checkpoint to the last", "", r"change of $\hat k$")
    titled(below, "B: at the last", "", r"$\hat k$")
    legend_below(figure, [above, below], 5)
    caption = (
        "Dots are the matrices of this run, marks at the right the medians over layers of each twin (seeds of five "
        "groups, trained on the same bytes). Grey holds 95 % of single untrained matrices of the same size: what is in "
        "it has no class. S and T are the paper's Selection and Transmission; it counts values in neither and in T."
    )
    return figure_of(4, figure, caption)


def drift_of_models(courses: Sequence[Member], cohort: xr.DataTree) -> Figure:
    """Figure 4 of several models: medians of k̂ over the layers of each, at the last step and its change before."""
    table = cohort["components"].to_dataset()
    models, names = table["model"].values.tolist(), _in_order(table["component"].values.tolist())
    rows = 2 if courses else 1
    figure, grid = canvas(rows, 1, width=10.5, height=3.4, sharex=True)
    below = grid[-1, 0]
    x, aside = np.arange(len(names)), np.linspace(-0.32, 0.32, len(models))
    look = dict(zip(models, looks(len(models)), strict=True))
    place = {model: x + by for model, by in zip(models, aside, strict=True)}
    half = {model: NORMAL_95 * table["shape_null_std"].sel(model=model, component=names).values for model in models}

    def marks(ax: Axes, model: str, values: np.ndarray, centre: np.ndarray | float, spread: np.ndarray) -> None:
        ax.vlines(place[model], centre - spread, centre + spread, color=LIGHT.null, alpha=0.45, linewidth=4,
                  label="untrained, 95 % of each median")  # fmt: skip
        ax.plot(place[model], values, linestyle="none", marker=look[model]["marker"], color=look[model]["color"],
                markersize=4.5, label=model)  # fmt: skip

    for model in models:
        own = table.sel(model=model, component=names)
        marks(below, model, own["shape"].values, own["shape_null_mean"].values, half[model])
    for one in courses:
        assert one.along is not None
        shape = one.along["matrices"].to_dataset()["observed"].sel(statistic="weibull_shape")
        change = (shape.isel(step=-1).median("layer") - shape.isel(step=0).median("layer")).reindex(component=names)
        marks(grid[0, 0], one.label, change.values, 0.0, np.sqrt(2.0) * half[one.label])
    below.axhspan(*PUBLISHED_BAND, color=BAND_COLOUR, alpha=0.55, linewidth=0, label="published band", zorder=0)
    below.set_xticks(x, [_class_of(name) for name in names])
    titled(below, f"B: at the last checkpoint, {len(models)} models", "", r"median $\hat k$ over layers")
    if courses:
        grid[0, 0].axhline(0.0, color=LIGHT.muted, linewidth=0.8)
        titled(grid[0, 0], f"A: from the first checkpoint to the last, {len(courses)} of {len(models)} models", "",
               r"change of the median $\hat k$")  # fmt: skip
    legend_below(figure, [below], 5)
    caption = (
        f"Medians over layers of each of {len(models)} models, of every component that it has; grey holds 95 % of such "
        "medians of untrained models. S and T are the paper's Selection and Transmission; it counts values in neither "
        "and in T."
    )
    return figure_of(4, figure, caption)


def _in_order(components: Sequence[str]) -> list[str]:
    """Order components as the paper's figure 4 does; others, such as experts, follow."""
    known = list(SHORT)
    return sorted(components, key=lambda name: known.index(name) if name in known else len(known))


def _twins(twins: xr.DataTree, names: list[str], above: Axes, below: Axes) -> None:
    members = twins["along/members"].to_dataset()
    group_of = members["group_of"].values
    groups = list(dict.fromkeys(group_of.tolist()))
    for k, (group, look) in enumerate(zip(groups, looks(len(groups)), strict=True)):
        for x, name in enumerate(names):
            measure = f"{name} weibull_shape"
            if measure not in members["measure"].values:
                continue
            values = members["value"].sel(measure=measure).transpose("model", "step").values[group_of == group]
            at = np.full(len(values), x - 0.02 + 0.08 * k)
            for ax, y in ((above, values[:, -1] - values[:, 0]), (below, values[:, -1])):
                ax.plot(at, y, linestyle="none", marker=look["marker"], color=look["color"], markersize=3.6,
                        markerfacecolor="none", label=f"twins: {group}" if x == 0 else "")  # fmt: skip


def _class_of(name: str) -> str:
    kind = "S" if name in SELECTION else "–" if name == "attention_value" else "T"
    return f"{SHORT.get(name, name)}\n{kind}"


def ablation(states: Sequence[tuple[str, Transmission]], twins: xr.DataTree | None) -> Figure:
    """Figure 5: the shape by three trims, of every checkpoint and twin, beside the anchors."""
    figure, ((ax,),) = canvas(1, 1, width=9.5, height=4.4)
    colours = (LIGHT.observed, LIGHT.naive, LIGHT.flagged)
    width = len(states)
    members = None if twins is None else twins["along/members"].to_dataset().isel(step=-1)
    labels = [name for name, _ in states]
    if members is not None:
        groups = list(dict.fromkeys(members["group_of"].values.tolist()))
        labels += [f"twins:\n{group}" for group in groups]
        width += len(groups)
    for t, (trim, colour) in enumerate(zip(TRIMS, colours, strict=True)):
        anchor = weibull_anchor(trim).shape
        ax.axhline(anchor, color=colour, linestyle="--", linewidth=1.0, label=f"anchor, {100 - 200 * trim:g} %")
        for x, (_, state) in enumerate(states):
            own = state.shape[..., t].ravel()
            ax.plot(np.full(own.size, x - 0.06), own, "o", color=colour, alpha=0.35, markersize=3, markeredgewidth=0)
            ax.plot(x + 0.06, np.nanmedian(own), "D", color=colour, markersize=6,
                    label=f"median, middle {100 - 200 * trim:g} %" if x == 0 else "")  # fmt: skip
    if members is not None:
        shape = members["value"].sel(measure="transmission weibull_shape").values
        gap = members["value"].sel(measure="transmission body_tail_gap").values
        for x, group in enumerate(dict.fromkeys(members["group_of"].values.tolist()), len(states)):
            here = members["group_of"].values == group
            ax.plot(np.full(here.sum(), x), shape[here], "s", color=colours[0], markersize=4, markerfacecolor="none")
            ax.plot(np.full(here.sum(), x), (shape - gap)[here], "s", color=colours[2], markersize=4,
                    markerfacecolor="none")  # fmt: skip
    ax.axhspan(*PUBLISHED_BAND, color=BAND_COLOUR, alpha=0.5, linewidth=0, zorder=0, label="published band")
    _model_ticks(ax, labels)
    low = min(np.nanmin(state.shape) for _, state in states)
    ax.set_ylim(min(low, 1.1) - 0.02, 1.24)
    titled(ax, "Transmission Class by what is fitted", "", r"Weibull shape $\hat k$")
    legend_below(figure, [ax], 4)
    each = "model" if twins is None else "checkpoint"
    squares = "" if twins is None else ", squares the twins (all and the middle 80 %; those below the axis left out)"
    caption = (
        f"Diamonds are medians over the Transmission Class of each {each}, dots its matrices{squares}. Dashed, the "
        "same fits of half-normal weights, which have "
        f"no heavy tail and a gap of {weibull_body_tail_gap().limit:.4f} too: it is a property of the fit (errata, 7)."
    )
    return figure_of(5, figure, caption)


def _model_ticks(ax: Axes, names: Sequence[str]) -> None:
    """Name models along the horizontal axis, at an angle where they are many or long."""
    slanted = sum(max(map(len, name.split("\n"))) for name in names) > 110
    ax.set_xticks(range(len(names)), names, fontsize=8.5, rotation=35 if slanted else 0,
                  ha="right" if slanted else "center", rotation_mode="anchor")  # fmt: skip
    ax.set_xlim(-0.6, len(names) - 0.4)


def magnitudes(scores: xr.DataTree) -> Figure:
    """Figure 6: heat maps of log₁₀|w| by layer, a panel for each component."""
    (drawn,) = figures(scores, names=["magnitude-map"]).values()
    caption = (
        "Density of log₁₀|w| of every matrix; right of each layer that of normal weights at its σ̂. The left tail "
        "that the paper reads as specialisation is there without training: one normal weight in "
        f"{1 / float(parents.Normal().cdf(1e-3)):.0f} is below 10⁻³ σ, one in "
        f"{1 / float(parents.Normal().cdf(1e-4)):.0f} below 10⁻⁴ σ."
    )
    return figure_of(6, drawn, caption)


def norm_contrast(twins: xr.DataTree, groups: tuple[str, str] = ("gqa", "qk-norm")) -> Figure:
    """Figure 7: queries and keys with and without a norm of either, in models that differ in nothing else."""
    members = twins["along/members"].to_dataset()
    figure, ((left, right),) = canvas(1, 2, width=10.0, height=3.8, sharey=True)
    steps, group_of = members["step"].values, members["group_of"].values
    for ax, component, rows in ((left, "attention_query", 128), (right, "attention_key", 64)):
        null = weibull_null(0.1).shape
        half = NORMAL_95 * null.std(rows * 128) * _MEDIAN_OF_FOUR
        ax.axhspan(null.limit - half, null.limit + half, color=LIGHT.null, alpha=0.3, linewidth=0,
                   label="untrained, 95 % of medians over four layers")  # fmt: skip
        for group, look in zip(groups, looks(len(groups)), strict=True):
            own = members["value"].sel(measure=f"{component} weibull_shape").transpose("model", "step").values
            for k, line in enumerate(own[group_of == group]):
                ax.plot(steps, line, color=look["color"], linestyle=look["style"], linewidth=1.3,
                        label=f"{group}, each seed" if k == 0 else "")  # fmt: skip
        ax.set_xscale("symlog", linthresh=10, linscale=0.6)
        ax.set_xticks([0, 10, 100, 1000], ["0", "10", "100", "1000"])
        titled(ax, SHORT[component], "step", r"median $\hat k$ over layers" if ax is left else "")
    legend_below(figure, [left])
    caption = (
        "The paper compares two checkpoints that differ in size, data and recipe. Here seven models differ in the norm "
        "of queries and keys alone (and in seeds): with it k̂ of keys ends higher by "
        f"{difference(twins, groups, 'attention_key')} "
        "(studies/attention_twins). Heat maps of other models: --model A --model B."
    )
    return figure_of(7, figure, caption)


_MEDIAN_OF_FOUR = 0.546
"""Standard deviation of the median of four independent normal numbers, the mean of the middle two, over that of one."""


def difference(twins: xr.DataTree, groups: tuple[str, str], component: str) -> str:
    """Format the change of a component's k̂ from one group of twins to another at the last step, with its interval."""
    one = twins["groups"].to_dataset().sel(contrast=" | ".join(groups), measure=f"{component} weibull_shape")
    change, low, high = (float(one[name]) for name in ("difference", "interval_low", "interval_high"))
    return f"{change:+.3f} (95 %: {low:+.3f} to {high:+.3f})"


def selection_of(scores: xr.DataTree) -> tuple[str, ...]:
    """Matrices of the Selection Class as a model stores them: of a fused projection itself, not its parts."""
    held = [name for name in SELECTION if name in scores["matrices"].to_dataset()["component"].values]
    return tuple(name for name in held if name in FUSED) or tuple(held)


class _Map(NamedTuple):
    """Heat map of a component of scores, with its title; the first of a row has its model."""

    title: str
    component: str
    scores: xr.DataTree
    model: str = ""


def _maps(rows: Sequence[Sequence[_Map]]) -> object:
    """Heat maps of log₁₀|w|."""
    columns = max(map(len, rows))
    figure, grid = canvas(len(rows), columns, 2.9 * max(columns, 2), 2.7 if len(rows) <= 3 else 2.1, sharey=True)
    for axes, row in zip(grid, rows, strict=True):
        for ax, one in zip(axes, row, strict=False):
            magnitude_heatmap(one.scores, one.component, ax=ax, legend=ax is axes[len(row) - 1])
            whose = f"{one.model}\n" if one.model else ""
            titled(ax, one.title, "", rf"{whose}$\log_{{10}}|w|$" if ax is axes[0] else "")
        for ax in axes[len(row) :]:
            ax.set_axis_off()
    for ax in grid[-1]:
        ax.set_xlabel("layer; right of each the null", fontsize=8.5)
    return figure


def maps_of_models(models: Sequence[Member]) -> Figure:
    """Figure 7 of several models, all with the same matrices: a column of heat maps for each."""
    held = selection_of(models[0].scores)
    drawn = _maps(
        [[_Map(f"{SHORT.get(name, name)}, {one.label}", name, one.scores) for one in models] for name in held]
    )
    caption = (
        f"{', '.join(held).replace('_', ' ')} of {', '.join(one.label for one in models)}; right of each layer normal "
        "weights of its σ̂. The left tail of these is there without training."
    )
    return figure_of(7, drawn, caption)


def by_step(courses: Sequence[Member]) -> Figure:
    """Figure 8: heat maps of log₁₀|w| of what queries and keys are made by: models down, the steps of figure 3 across.

    The steps are those of :func:`~studies.sources.course.checkpoints_shown`.
    """
    rows, held = list[list[_Map]](), list[str]()
    for one in courses:
        along, steps = one.along, [at.step for at, _ in one.states if at.step is not None]
        assert along is not None
        whose = one.label if len(courses) > 1 else ""
        for name in selection_of(one.scores):
            held.append(name)
            title = SHORT.get(name, name)
            rows.append([_Map(f"{title}, step {step}", name, scores_at(along, step), whose) for step in steps])
    caption = (
        f"{', '.join(dict.fromkeys(held)).replace('_', ' ')}: density of log₁₀|w| by layer, at the steps of figure 3; "
        "right of each layer normal weights of its σ̂. `magnitudes-along-steps-COMPONENT` among the figures of a "
        "trajectory has all steps of one matrix."
    )
    return figure_of(8, _maps(rows), caption)


def attention(cohort: xr.DataTree) -> Figure:
    """Figure 9: k̂ of queries and keys of every model, by how its attention is made."""
    table = cohort["components"].to_dataset()
    grouped = "members" in cohort.children
    kinds = cohort["members" if grouped else "models"].to_dataset()["group_of" if grouped else "attention"]
    groups = dict(zip(table["model"].values.tolist(), kinds.values.tolist(), strict=True))
    figure, ((ax,),) = canvas(1, 1, width=9.5, height=4.2)
    names = list(dict.fromkeys(groups.values()))
    styles = (("attention_query", "o", LIGHT.observed), ("attention_key", "s", LIGHT.flagged),
              ("attention_query_key_value", "D", LIGHT.free_law))  # fmt: skip
    models = sorted(groups, key=lambda model: names.index(groups[model]))
    centre = {model: float(k) for k, model in enumerate(models)}
    if grouped:
        for k, group in enumerate(names):
            here = [model for model in models if groups[model] == group]
            centre |= {model: k + 0.03 * (j - (len(here) - 1) / 2) for j, model in enumerate(here)}
    for aside, (component, marker, colour) in zip((-0.2, 0.0, 0.2), styles, strict=True):
        if component not in table["component"].values:
            continue
        own = table.sel(component=component, model=models)
        x = np.array([centre[model] for model in models]) + (aside if grouped else 0.0)
        half = NORMAL_95 * own["shape_null_std"].values
        ax.vlines(x, own["shape_null_mean"] - half, own["shape_null_mean"] + half, color=LIGHT.null, alpha=0.45,
                  linewidth=4, label="untrained, 95 % of each median")  # fmt: skip
        ax.plot(x, own["shape"], linestyle="none", marker=marker, color=colour, markersize=4.5,
                label=SHORT[component])  # fmt: skip
    for low, high, label in ((0.76, 0.99, "published: separate MHA"), (1.10, 1.16, "published: GQA")):
        ax.axhspan(low, high, color=BAND_COLOUR, alpha=0.35 if low > 1 else 0.18, linewidth=0, label=label, zorder=0)
    for end, label in zip((1.05, 1.18), ("published: fused, 1.05 to 1.18", ""), strict=True):
        ax.axhline(end, color=LIGHT.free_law, linewidth=1.0, linestyle=":", label=label)
    _model_ticks(ax, names if grouped else models)
    for k in range(1, 0 if grouped else len(models)):
        if groups[models[k]] != groups[models[k - 1]]:
            ax.axvline(k - 0.5, color=LIGHT.muted, linewidth=0.8)
    for group in () if grouped else names:
        middle = np.mean([centre[model] for model in models if groups[model] == group])
        ax.text(middle, 0.99, group, transform=ax.get_xaxis_transform(), ha="center", va="top", fontsize=8.5,
                color=LIGHT.text)  # fmt: skip
    titled(ax, "queries and keys of every model", "", r"median $\hat k$")
    legend_below(figure, [ax], 4)
    caption = (
        f"Medians over layers of each model, groups by attention{' and recipe' if grouped else ''}; grey, 95 % of such "
        "medians of untrained models."
    )
    if {"gqa", "mha"} <= set(names):
        caption += (
            " From GQA to MHA the keys of the twins change by "
            f"{difference(cohort, ('gqa', 'mha'), 'attention_key')}; the "
            f"published ranges are at least {1.10 - 0.99:.2f} apart. From much weight decay to little it is "
            f"{difference(cohort, ('gqa', 'gqa, little decay'), 'attention_key')}."
        )
    return figure_of(9, figure, caption)
