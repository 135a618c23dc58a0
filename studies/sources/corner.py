"""Post 1's figure 20: mean, width, skewness and kurtosis of the elements of every head against each other."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, SymmetricalLogLocator

from rmtbase.drawing.theme import LIGHT
from rmtbase.laws import ContaminatedNormal, pearson_bound
from studies.sources.drawing import MARKERS, STYLES, TINT, canvas, legend_below, looks
from studies.sources.heads import Heads

LLAMA, MISTRAL = "Llama-3.1-8B", "Mistral-7B-v0.3"
OF_POST = {LLAMA: "#d97000", MISTRAL: LIGHT.observed}
"""Orange and blue, as in the post."""
WEIGHTS = (0.001, 0.01, 0.1)
"""Weights p of the point mass of the mixtures whose limits are drawn."""
SYMBOLS = (r"$\mu$", r"$\sigma$", r"$\gamma$", r"$\kappa$")
SAID = (
    "Mean and skewness have an axis that is linear near zero and logarithmic beyond where some heads are far out; that "
    "of σ is logarithmic where widths differ much, that of κ (3 for a normal law) always. Lines: a normal law with a "
    "point mass of weight p has its σ on the line of p, with the smallest σ of the model's heads as σ₀; below it there "
    "is no mixture of that p. Green: Pearson's bound κ ≥ γ² + 1. Grey: 95 % of random heads."
)
_NORMAL_95 = 1.96
_FAR = 15.0
"""Largest over median distance from zero beyond which a linear axis shows one head only."""
_WIDE = 2.5
"""Largest over smallest σ beyond which its axis is logarithmic."""
_BINS = 24


class Moments(NamedTuple):
    """First four moments of the elements of W_QK of every head of a model, with 95 % of random heads.

    Attributes:
        value: μ, σ, γ and κ, (moment, head).
        low, high: ends of the null, (moment, head); NaN for σ, which has none.
    """

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


def moments_of(model: Heads) -> Moments:
    """Collect the moments of the heads for which all four are known."""
    sigma = model.sigma("W_QK").ravel()
    standard = [model.element("W_QK", name) for name in ("mean", "skewness", "excess_kurtosis")]
    mean, skewness, excess = (
        np.stack([one.value, one.mean - _NORMAL_95 * one.sd, one.mean + _NORMAL_95 * one.sd]).reshape(3, -1)
        for one in standard
    )
    width = np.stack([sigma, np.full_like(sigma, np.nan), np.full_like(sigma, np.nan)])
    every = np.stack([mean * sigma, width, skewness, excess + 3.0], axis=1)
    known = np.isfinite(every[0]).all(axis=0) & (sigma > 0)
    return Moments(*every[..., known])


def moment_corner(models: Sequence[Heads]) -> Figure:
    """Draw the corner plot of the moments of the heads of these models, with the limits of mixtures."""
    figure, grid = canvas(4, 4, 9.6, 2.25, sharex="col")
    found = {model.label: moments_of(model) for model in models}
    every = np.concatenate([one.value for one in found.values()], axis=1)
    wide = every[1].max(initial=0.0) > _WIDE * every[1].min(initial=np.inf)
    scales = [_scale(every[0]), "log" if wide else "narrow", _scale(every[2]), "log"]
    colours = {
        name: OF_POST.get(name, look["color"]) if OF_POST.keys() & found else look["color"]
        for name, look in zip(found, looks(len(found)), strict=True)
    }
    ends = [_ends(value, scale) for value, scale in zip(every, scales, strict=True)]
    ends[3] = min(ends[3][0], 0.9), ends[3][1]  # down to Pearson's bound, which is 1 at γ = 0
    for row, column in np.ndindex(4, 4):
        ax = grid[row, column]
        if column > row:
            ax.set_axis_off()
            continue
        _set_scale(ax, "x", scales[column], every[column])
        if row == column:
            _histograms(ax, {name: one.value[row] for name, one in found.items()}, scales[row], ends[row], colours)
        else:
            _set_scale(ax, "y", scales[row], every[row])
            _nulls(ax, found, column, row)
            for (name, one), marker in zip(found.items(), MARKERS, strict=False):
                size = float(np.clip(40 / one.value.shape[1] ** 0.4, 1.6, 5.0))
                ax.plot(one.value[column], one.value[row], ls="none", marker=marker, ms=size, mfc="none", mew=0.9,
                        color=colours[name], zorder=3, label=name)  # fmt: skip
            _limits(ax, found, column, row, colours)
            ax.set_ylim(*ends[row])
        ax.set_xlim(*ends[column])
        ax.tick_params(labelbottom=row == 3, labelsize=7.5)
        ax.set_xlabel(SYMBOLS[column] if row == 3 else "")
        ax.set_ylabel("heads" if row == column else SYMBOLS[row] if column == 0 else "")
        if 0 < column < row:
            ax.tick_params(labelleft=False)
    legend_below(figure, [grid[1, 0], grid[3, 2], grid[2, 1]], 4)
    return figure


def mixture_limit(weight: float, sigma: float) -> np.ndarray:
    """Return μ, σ and γ of N(0, σ²) with a point mass of this weight, for all places of the mass: (moment, place)."""
    places = sigma * np.concatenate([-np.geomspace(1e4, 1e-3, 400), np.geomspace(1e-3, 1e4, 400)])
    laws = [ContaminatedNormal(weight, float(at), sigma) for at in places]
    return np.array([[law.mean(), law.std(), law.skewness()] for law in laws]).T


def _limits(ax: Axes, found: Mapping[str, Moments], column: int, row: int, colours: Mapping[str, str]) -> None:
    """Draw what the moments of mixtures cannot cross: σ against μ and γ against σ by p, κ against γ for all laws."""
    if (column, row) == (2, 3):
        reach = 1.2 * max(np.abs(one.value[2]).max(initial=0.1) for one in found.values())
        at = np.linspace(-reach, reach, 401)
        ax.plot(at, pearson_bound(at), color=LIGHT.free_law, lw=1.6, zorder=2.5, label=r"$\gamma^2 + 1$")
    if (column, row) not in ((0, 1), (1, 2)):
        return
    weights = WEIGHTS if len(found) <= 2 else WEIGHTS[:1]
    for name, one in found.items():
        own = colours[name] if len(found) > 1 else LIGHT.flagged
        for weight, style in zip(weights, STYLES, strict=False):
            limit = mixture_limit(weight, float(one.value[1].min()))
            label = f"limit, p = {weight:g}" if name == next(iter(found)) else ""
            ax.plot(limit[0 if column == 0 else 1], limit[1 if column == 0 else 2], color=own, ls=style, lw=1.6,
                    zorder=2.5, label=label)  # fmt: skip


def _nulls(ax: Axes, found: Mapping[str, Moments], column: int, row: int) -> None:
    """Draw 95 % of random heads as one light area; the mean's is as wide as σ."""
    for one in found.values():
        if column == 0 and row == 1:
            order = np.argsort(one.value[1])
            sigma, half = one.value[1, order], one.high[0, order]
            ax.fill_betweenx(sigma, -half, half, color=TINT, lw=0, zorder=0.3)
            continue
        low, high = np.median(one.low[row]), np.median(one.high[row])
        across = (
            (one.value[1].min(), one.value[1].max())
            if column == 1
            else (np.median(one.low[column]), np.median(one.high[column]))
        )
        ax.fill_between(across, low, high, color=TINT, lw=0, zorder=0.3)


def _histograms(
    ax: Axes, values: Mapping[str, np.ndarray], scale: str, ends: tuple[float, float], colours: Mapping[str, str]
) -> None:
    """Draw how many heads lie where, in bins that are equal on the panel's own axis."""
    transform = ax.xaxis.get_transform()
    edges = transform.inverted().transform(np.linspace(*transform.transform(np.array(ends)), _BINS + 1))
    for (name, own), style in zip(values.items(), STYLES, strict=False):
        ax.stairs(np.histogram(own, edges)[0], edges, color=colours[name], ls=style, lw=1.3)
    ax.yaxis.set_major_locator(MaxNLocator(3, integer=True))


def _scale(values: np.ndarray) -> str:
    distance = np.abs(values)
    return "symlog" if distance.max(initial=0.0) > _FAR * np.median(distance) else "linear"


def _ends(values: np.ndarray, scale: str) -> tuple[float, float]:
    """Return the ends of an axis: the values with some room, so that limits below the values are seen."""
    low, high = float(values.min()), float(values.max())
    if scale == "narrow":
        return 0.94 * low, high + 0.1 * (high - low)
    if scale == "log":
        return low / 1.25, high * 1.15
    reach = 1.15 * max(abs(low), abs(high)) * (2.0 if scale == "symlog" else 1.0)
    return -reach, reach


def _set_scale(ax: Axes, along: Literal["x", "y"], scale: str, values: np.ndarray) -> None:
    """Set the scale of an axis and label it sparsely, in plain numbers."""
    axis = ax.xaxis if along == "x" else ax.yaxis
    set_scale = ax.set_xscale if along == "x" else ax.set_yscale
    if scale == "symlog":
        threshold = 10.0 ** np.round(np.log10(2.0 * np.median(np.abs(values))))
        set_scale("symlog", linthresh=threshold)
        axis.set_major_locator(SymmetricalLogLocator(base=10.0, linthresh=threshold))
    elif scale == "log":
        set_scale("log")
        span = float(values.max() / values.min())
        subs = (1.0, 2.0, 5.0) if span < 30 else (1.0, 3.0) if span < 1e3 else (1.0,)
        axis.set_major_locator(LogLocator(subs=subs, numticks=6))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(4))
