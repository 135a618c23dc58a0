"""Figures 10 to 14 of the Weibull paper: scales along training, by block, and by learning rate and weight decay."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from rmtbase.drawing.theme import LIGHT
from rmtbase.laws import weibull_anchor, weibull_null
from rmtbase.results.comparison import TRANSMISSION, ScaleLaw, Training, scale_law, weibull_scales
from studies.sources.course import PYTHIA_DECAY, PYTHIA_RATES, Member, Transmission, training_of
from studies.sources.drawing import TINT, canvas, legend_below, looks, titled
from studies.sources.published import PUBLISHED_BAND, published_table
from studies.sources.recipe import Figure
from studies.sources.turning import pooled_fits, turning_point
from studies.sources.weibull_shapes import BAND_COLOUR, NORMAL_95, SHORT, figure_of

KINDS = {
    "reads: queries, keys, values": (
        "attention_query",
        "attention_key",
        "attention_value",
        "attention_query_key_value",
    ),
    "attention output": ("attention_output",),
    "into the MLP": ("mlp_in", "mlp_gate"),
    "out of the MLP": ("mlp_out",),
}
"""The four kinds of figure 10, in its order."""


class Line(NamedTuple):
    """λ̂ along the steps of one model, of each component the median over layers."""

    name: str
    group: str
    steps: Float[np.ndarray, " step"]
    scale: dict[str, Float[np.ndarray, " step"]]

    def mean(self, components: Sequence[str]) -> Float[np.ndarray, " step"]:
        """Over the components of these that the model has; NaN if it has none."""
        held = [self.scale[name] for name in components if name in self.scale]
        return np.mean(held, axis=0) if held else np.full(len(self.steps), np.nan)


def line_of(one: Member) -> Line:
    """Line of a model whose training is known, named with its T/τ where that is known."""
    assert one.along is not None
    matrices, training = one.along["matrices"].to_dataset(), training_of(one.run)
    own = weibull_scales(matrices).median("layer")
    held = {str(name): own.sel(component=name).values for name in matrices["component"].values}
    group = one.label if training is None else rf"{one.label}, $T/\tau$ = {training.budget:.3g}"
    return Line(one.label, group, matrices["step"].values.astype(float), held)


def lines_of(twins: xr.DataTree) -> list[Line]:
    """Lines of all twins."""
    members = twins["along/members"].to_dataset()
    measures = [one for one in members["measure"].values.tolist() if one.endswith(" scale")]
    lines = []
    for model, group in zip(members["model"].values, members["group_of"].values.tolist(), strict=True):
        own = members["value"].sel(model=model)
        held = {one.removesuffix(" scale"): own.sel(measure=one).values for one in measures}
        held = {name: values for name, values in held.items() if np.isfinite(values).all() and name != "transmission"}
        held.pop("selection", None)
        lines.append(Line(str(model), group, members["step"].values.astype(float), held))
    return lines


def kinds_along(lines: Sequence[Line]) -> Figure:
    """Figure 10: λ̂ of the four kinds along the steps, with what untrained weights stay at."""
    figure, grid = canvas(2, 2, width=10.0, height=3.1, sharex=True, sharey=True)
    for ax, (title, components) in zip(grid.flat, KINDS.items(), strict=True):
        _along(ax, lines, components)
        titled(ax, title, "", "")
    for ax in grid[:, 0]:
        ax.set_ylabel(r"median $\hat\lambda$")
    for ax in grid[-1]:
        ax.set_xlabel("step")
    legend_below(figure, [grid[0, 0]], 4)
    ends = []
    for line in _own(lines):
        value = line.mean(KINDS["attention output"])
        at = int(np.argmax(value))
        ends.append(
            f"of {line.name} at step {line.steps[at]:g}, {100 * (1 - value[-1] / value[at]):.0f} % above its end"
        )
    caption = (
        f"Medians over layers; a line for each model{' and each seed of the twins' if len(_own(lines)) == 1 else ''}. "
        f"Dashed, where each begins, {weibull_anchor().scale:.4f} σ of the initial entries; weights that learn nothing "
        f"and do not decay stay there. λ̂ of W_O is largest {'; '.join(ends)}."
    )
    if len(_own(lines)) == 1:
        caption += " The twins differ in weight decay, too: T/τ is 9, and 0.3 with little decay."
    return figure_of(10, figure, caption)


def mean_along(lines: Sequence[Line]) -> Figure:
    """Figure 11: λ̂ averaged over the four kinds, and over the three without queries, keys and values."""
    figure, ((left, right),) = canvas(1, 2, width=10.0, height=3.8, sharey=True)
    every = tuple(name for kind in KINDS.values() for name in kind)
    for ax, components, title in (
        (left, every, "all four kinds, as in figure 11"), (right, TRANSMISSION, "three kinds, as in tables 3 and 4"),
    ):  # fmt: skip
        _along(ax, lines, components)
        titled(ax, title, "step", r"mean $\hat\lambda$" if ax is left else "")
    legend_below(figure, [left], 4)
    ratios = []
    for line in _own(lines):
        first, last = (float(line.mean(every)[at] / line.mean(TRANSMISSION)[at]) for at in (0, -1))
        ratios.append(f"{first:.3f} times at the start and {last:.3f} times at the end of {line.name}")
    caption = (
        "The mean over kinds of median λ̂. The paper averages four kinds in the figure and three in its tables "
        f"(errata, 19); the former is, of the latter, {'; '.join(ratios)}."
    )
    return figure_of(11, figure, caption)


def _own(lines: Sequence[Line]) -> list[Line]:
    """Lines of the run's models, without the twins."""
    return [line for line in lines if line.group.startswith(line.name)]


def _along(ax: Axes, lines: Sequence[Line], components: Sequence[str]) -> None:
    groups = list(dict.fromkeys(line.group for line in lines))
    first = {"color": LIGHT.text, "style": "-"}
    look = {groups[0]: first} | dict(zip(groups[1:], looks(len(groups) - 1), strict=True))
    named = set()
    starts: dict[float, str] = {}
    for line in lines:
        own = line.mean(components)
        label = "" if line.group in named else line.group
        named.add(line.group)
        ax.plot(line.steps, own, color=look[line.group]["color"], linestyle=look[line.group]["style"], linewidth=1.3,
                label=label)  # fmt: skip
        if np.isfinite(own[0]):
            starts.setdefault(float(f"{own[0]:.2g}"), look[line.group]["color"] if len(_own(lines)) > 1 else LIGHT.null)
    for k, (start, colour) in enumerate(starts.items()):
        ax.axhline(start, color=colour, linewidth=0.9, linestyle="--", alpha=0.8, zorder=1,
                   label="at the start: λ₀" if k == 0 else "")  # fmt: skip
    ax.set_yscale("log")
    ax.set_xscale("symlog", linthresh=10, linscale=0.6)
    ticks = [0, *(10.0**power for power in range(1, 7) if 10.0**power <= max(line.steps[-1] for line in lines))]
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.set_xlim(0, 1.05 * max(line.steps[-1] for line in lines))
    ax.minorticks_off()
    _named_powers(ax.yaxis)


def _named_powers(axis: Axis) -> None:
    """Label 1, 2 and 5 of each decade of a logarithmic axis in plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def blocks(state: Transmission) -> Figure:
    """Figure 12: k̂ and λ̂ of each block, its matrices pooled, beside normal weights of their σ."""
    figure, (left, right) = (found := canvas(1, 2, width=10.0, height=3.6))[0], found[1][0]
    layers = np.arange(len(state.block))
    nulls = [weibull_null(0.1, state.mixture(layer)) for layer in range(len(layers))]
    number = state.number.sum(axis=1).astype(int).tolist()
    for ax, value, law, label in (
        (left, state.block[:, 3], "scale", r"$\hat\lambda$"), (right, state.block[:, 0], "shape", r"$\hat k$"),
    ):  # fmt: skip
        means = np.array([getattr(null, law).mean(n) for null, n in zip(nulls, number, strict=True)])
        half = NORMAL_95 * np.array([getattr(null, law).std(n) for null, n in zip(nulls, number, strict=True)])
        ax.fill_between(layers, means - half, means + half, color=LIGHT.null, alpha=0.4, linewidth=0,
                        label="normal weights, each matrix's σ: 95 %")  # fmt: skip
        ax.plot(layers, value, "o-", color=LIGHT.observed, markersize=5, label="block, pooled")
        titled(ax, "", "layer", label)
        ax.set_xticks(layers[:: max(1, len(layers) // 12)])
    right.axhspan(*PUBLISHED_BAND, color=BAND_COLOUR, alpha=0.5, linewidth=0, zorder=0, label="published band")
    legend_below(figure, [right], 3)
    scale = state.block[:, 3]
    caption = (
        f"λ̂ by layer: max/min {scale.max() / scale.min():.2f}, coefficient of variation "
        f"{100 * scale.std() / scale.mean():.1f} % "
        "(the paper: 1.22 and 6.5 % over 24 blocks of Pythia-410m). Grey, the fit of normal weights with the "
        "same σ's: what "
        "of λ̂ and k̂ is not in the σ's alone lies outside it."
    )
    return figure_of(12, figure, caption)


class Model(NamedTuple):
    """A point of figure 13: √(η/λ_wd) and the mean λ̂ of the Transmission Class."""

    name: str
    root: float
    scale: float


def published_models(prefix: str = "") -> list[Model]:
    """Models of the paper's Table 4 whose names begin with ``prefix``."""
    table = published_table("weibull-table-4")
    return [
        Model(label, Training(table.number(label, "peak_rate"), table.number(label, "weight_decay"), 1).root,
              table.number(label, "mean_scale"))
        for label in table.labels if label.startswith(prefix)
    ]  # fmt: skip


def law_of(models: Sequence[Model]) -> ScaleLaw:
    """:func:`rmtbase.results.comparison.scale_law` of these."""
    return scale_law([one.root for one in models], [one.scale for one in models])


def cohort_models(cohort: xr.DataTree) -> list[Model]:
    """Models of a comparison whose learning rate and weight decay are known."""
    table = cohort["models"].to_dataset()
    names = table["model"].values.tolist()
    if "root" not in table or "transmission_scale" not in table:
        return []
    found = zip(names, table["root"].values.tolist(), table["transmission_scale"].values.tolist(), strict=True)
    return [Model(*one) for one in found if np.isfinite(one[1]) and np.isfinite(one[2])]


def scaling(own: Sequence[Model]) -> Figure:
    """Figure 13: λ̂ against √(η/λ_wd), with the published line, that with an intercept, and the power law."""
    figure, (left, right) = (found := canvas(1, 2, width=10.5, height=4.0))[0], found[1][0]
    pythia, every = published_models("Pythia"), published_models()
    law = law_of(pythia)
    x = np.linspace(0.0, 0.34, 100)
    left.plot(x, law.slope * x, color=LIGHT.flagged, linewidth=1.3,
              label=f"through the origin: {law.slope:.3f} x, R² = {law.r_squared:.1f}")  # fmt: skip
    roots, scale = np.array([one.root for one in pythia]), np.array([one.scale for one in pythia])
    slope = float(np.polyfit(roots, scale, 1)[0])
    left.plot(x, law.intercept + slope * x, color=LIGHT.free_law, linewidth=1.3, linestyle="--",
              label=f"from {law.intercept:.4f} ± {law.intercept_error:.4f}, r = {law.correlation:.2f}")  # fmt: skip
    power = np.exp(np.mean(np.log(scale) - law.exponent * np.log(roots)))
    left.plot(x[1:], power * x[1:] ** law.exponent, color=LIGHT.naive, linewidth=1.3, linestyle=":",
              label=f"power {law.exponent:.2f} ± {law.exponent_error:.2f}")  # fmt: skip
    left.axhline(scale.mean(), color=LIGHT.null, linewidth=1.0, label="a constant")
    left.plot(roots, scale, "o", color=LIGHT.observed, label="Pythia, published")
    left.set(xlim=(0, 0.34), ylim=(0, 0.032))
    titled(
        left,
        f"five Pythia sizes; p of r over orders = {law.p_value:.2f}",
        r"$\sqrt{\eta/\lambda_{wd}}$",
        r"$\hat\lambda$",
    )
    left.legend(frameon=False, fontsize=8, loc="lower right")
    others = [one for one in every if one not in pythia]
    settings = {f"Pythia-{size}": Training(rate, PYTHIA_DECAY, 1) for size, rate in PYTHIA_RATES.items()}
    configured = [Model(one.name, settings[one.name].root, one.scale) for one in pythia]
    for models, colour, marker, label in (
        (pythia, LIGHT.observed, "o", "Pythia, published"),
        (configured, LIGHT.free_law, "^", "the same, η and decay as configured"),
        (others, LIGHT.naive, "s", "seven others, published"),
        (own, LIGHT.text, "D", "models of this run"),
    ):  # fmt: skip
        right.plot([one.root for one in models], [one.scale for one in models], marker, color=colour, markersize=4.5,
                   markerfacecolor="none", label=label)  # fmt: skip
    wide = np.geomspace(0.02, 0.5, 50)
    right.plot(wide, law.slope * wide, color=LIGHT.flagged, linewidth=1.1, label="published line")
    right.set_xscale("log")
    right.set_yscale("log")
    _named_powers(right.xaxis)
    _named_powers(right.yaxis)
    titled(right, "all models", r"$\sqrt{\eta/\lambda_{wd}}$", r"$\hat\lambda$")
    right.legend(frameon=False, fontsize=8)
    caption = (
        "The published line through the origin fits the five worse than a constant; r belongs to the line with an "
        "intercept (errata, 17). Right, the five by the learning rates and the weight decay that they were trained "
        "with, not those printed (errata, 25), the other published models and those of this run, trained for other "
        "times from other σ."
    )
    return figure_of(13, figure, caption)


def shape_and_scale_along(courses: Sequence[Member]) -> Figure:
    """Figure 14: k̂ and λ̂ of the Transmission Class along all steps, of single matrices and pooled, of each model."""
    figure, (left, right) = (found := canvas(1, 2, width=10.0, height=3.8))[0], found[1][0]
    alone, components = len(courses) == 1, list[str]()
    colours = [LIGHT.observed] if alone else [look["color"] for look in looks(len(courses))]
    null_low, null_high, longest = np.inf, -np.inf, 0.0
    for one, colour in zip(courses, colours, strict=True):
        assert one.along is not None
        matrices = one.along["matrices"].to_dataset()
        names = [name for name in TRANSMISSION if name in matrices["component"].values]
        components += names
        own = matrices.sel(component=names)
        steps = own["step"].values
        longest = max(longest, float(steps[-1]))
        shape = own.sel(statistic="weibull_shape")
        single = shape["observed"].transpose("step", "layer", "component").values.reshape(len(steps), -1)
        scale = weibull_scales(own).transpose("step", "layer", "component").values.reshape(len(steps), -1)
        for ax, values in ((left, single), (right, scale)):
            if alone:
                ax.fill_between(steps, np.nanmin(values, axis=1), np.nanmax(values, axis=1), color=colour, alpha=0.15,
                                linewidth=0, label="all matrices")  # fmt: skip
            ax.plot(steps, np.nanmedian(values, axis=1), color=colour, linewidth=1.5,
                    label="their median" if alone else f"{one.label}, median matrix")  # fmt: skip
        mark = LIGHT.flagged if alone else colour
        dash = {"color": LIGHT.text if alone else colour, "markersize": 14, "linestyle": "none"}
        first = one is courses[0]
        for ax, fits in zip((left, right), pooled_fits(one), strict=True):
            style = {"color": mark, "marker": "D", "markersize": 5, "linestyle": (0, (2, 2)), "linewidth": 0.9}
            label = "pooled, as in the paper" if first else ""
            ax.errorbar(fits.steps, fits.value, NORMAL_95 * fits.error, label=label, **style)
            ax.plot(fits.steps, fits.null, marker="_", **dash, label="normal, same σ's, pooled" if first else "")
            turn = turning_point(fits.steps, fits.value, fits.error)
            if turn.is_turn:
                ax.axvspan(turn.low, turn.high, color=TINT, linewidth=0, zorder=0.2,
                           label="largest pooled, between (95 %)" if first else "")  # fmt: skip
        half, centre = NORMAL_95 * float(shape["null_std"].max()), float(shape["null_mean"].mean())
        null_low, null_high = min(null_low, centre - half), max(null_high, centre + half)
    ticks = [0, *(10.0**power for power in range(7) if 10.0**power <= longest)]
    for ax, label in ((left, r"$\hat k$"), (right, r"$\hat\lambda$")):
        ax.set_xscale("symlog", linthresh=1, linscale=0.4)
        ax.set_xticks(ticks, [f"{tick:g}" if tick < 1e3 else f"$10^{{{np.log10(tick):.0f}}}$" for tick in ticks])
        ax.minorticks_off()
        titled(ax, "", "step", label)
    left.axhspan(null_low, null_high, color=LIGHT.null, alpha=0.22, linewidth=0, label="untrained, 95 % of one matrix")
    left.axhspan(*PUBLISHED_BAND, color=BAND_COLOUR, alpha=0.4, linewidth=0, zorder=0, label="published band")
    legend_below(figure, [left], 3)
    at = " or ".join(f"{number}" for number in sorted({len(one.pooled) for one in courses}))
    caption = (
        f"Pooled at {at} checkpoints, with 95 % of the fit's error. "
        "Pooling matrices of unequal σ lowers k̂ by itself, before training and after (dashes: normal weights with the "
        f"same σ's). Components: {', '.join(SHORT.get(name, name) for name in dict.fromkeys(components))}."
    )
    return figure_of(14, figure, caption)
