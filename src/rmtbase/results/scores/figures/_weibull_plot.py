"""Weibull probability plot of one matrix, its residuals, and its largest weights against the body's law."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes

from rmtbase.drawing.axes import NORMAL_95, finished, literal, panel
from rmtbase.drawing.groups import matrices_of, require_component
from rmtbase.drawing.scales import log_axis
from rmtbase.drawing.theme import Theme
from rmtbase.errors import ParameterError
from rmtbase.laws import parents, weibull_anchor, weibull_quantile_noise
from rmtbase.parameters import require_trim
from rmtbase.results.scores.figures._element_histograms import bin_edges
from rmtbase.shown import in_one_line
from rmtbase.statistics import ElementSketch
from rmtbase.tables import layer_numbers

TRIM = 0.1
"""Share at either end that the fit of the body omits."""

_POINTS = 120  # points of a sketch's distribution
_STATISTICS = ("weibull_shape", "weibull_scale", "mean")
_PERCENT = (0.5, 0.99, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6, 0.9, 0.9999, 1 - 1e-6)  # most important ticks first
_APART = {"x": 0.11, "y": 0.05}  # least distance of two ticks, relative to the axis
_BODY_ENDS = 0.9  # share of the weights beyond which their numbers are shown


@panel
def weibull_plot(
    ax: Axes,
    theme: Theme,
    weights: xr.DataTree | xr.Dataset | ElementSketch,
    layer: int | None = None,
    component: str | None = None,
    *,
    legend: bool = True,
) -> Axes:
    """Draw the Weibull probability plot of one matrix: ln(−ln(1 − F)) against ln |w|, in which a Weibull law is a line.

    The line is the least-squares fit between the trims, the dotted lines. The null is the law of the initial entries at
    the matrix's own root mean square, with 95 % of each order statistic of as many independent entries
    (``laws.weibull_quantile_noise``).

    The axes: |w| over its root mean square (logarithmic) against the share of weights below it.
    """
    found = magnitudes_of(weights, layer, component)
    x, y = found.magnitude / found.rms, _hazard(found.below)
    p, null, noise = _null(found)
    ax.fill_betweenx(
        _hazard(p), null * np.exp(-noise), null * np.exp(noise), color=theme.null, alpha=0.4, linewidth=0,
        label="random entries, 95 % at each rank",
    )  # fmt: skip
    ax.plot(null, _hazard(p), color=theme.null, linewidth=1.2, label="random entries")
    ax.plot(x, y, color=theme.observed, marker="o", markersize=2.8, linewidth=0, label="weights")
    ends = np.array([y.min(), y.max()])
    ax.plot(
        found.scale / found.rms * np.exp(ends / found.shape), ends, color=theme.flagged, linewidth=1.2,
        linestyle=(0, (5, 2)), label="fit",
    )  # fmt: skip
    _trims(ax.axhline, theme)
    ax.set_xscale("log")
    ax.set_xlim(x.min() / 1.5, x.max() * 1.5)
    ax.set_ylim(y.min() - 0.3, y.max() + 0.3)
    _shares(ax, "y")
    ax.set(xlabel=r"magnitude $|w|$ / root mean square", ylabel="share of weights below")
    return finished(ax, theme, _title(found), legend)


@panel
def weibull_residuals(
    ax: Axes,
    theme: Theme,
    weights: xr.DataTree | xr.Dataset | ElementSketch,
    layer: int | None = None,
    component: str | None = None,
    *,
    legend: bool = True,
) -> Axes:
    """Draw the residuals of the Weibull plot, Y − k̂ ln(|w|/λ̂), with the null's own curve.

    The null is curved, too: its curve shows the residuals of the initial entries about the anchor's line, with 95 % at
    each rank. Arguments, data and errors as in :func:`weibull_plot`.

    The axes: the share of smaller weights (on the Weibull plot's scale) against the residual.
    """
    found = magnitudes_of(weights, layer, component)
    anchor = weibull_anchor(TRIM, found.parent)
    p, null, noise = _null(found)
    curve = _hazard(p) - anchor.shape * np.log(null * found.parent.moment(2) ** 0.5 / anchor.scale)
    spread = anchor.shape * noise
    ax.fill_between(
        _hazard(p), curve - spread, curve + spread, color=theme.null, alpha=0.4, linewidth=0,
        label="random entries, 95 % at each rank",
    )  # fmt: skip
    ax.plot(_hazard(p), curve, color=theme.null, linewidth=1.2, label="random entries")
    y = _hazard(found.below)
    ax.plot(
        y, y - found.shape * np.log(found.magnitude / found.scale), color=theme.observed, marker="o", markersize=2.8,
        linewidth=0, label="weights",
    )  # fmt: skip
    ax.axhline(0.0, color=theme.flagged, linewidth=1.0, linestyle=(0, (5, 2)), label="fit")
    _trims(ax.axvline, theme)
    ax.set_xlim(y.min() - 0.3, y.max() + 0.3)
    _shares(ax, "x")
    ax.set(xlabel="share of weights below", ylabel=r"residual of $\ln(-\ln(1 - F))$")
    return finished(ax, theme, _title(found), legend)


@panel
def trim_noise(
    ax: Axes, theme: Theme, scores: xr.DataTree | None = None, trim: float = TRIM, *, legend: bool = True
) -> Axes:
    """Draw the noise of each quantile on the Weibull plot, the reason why a fit of the body omits the ends.

    Var ln(−ln(1 − F)) of an order statistic at share p of n is p / ((1 − p) ln²(1 − p)) / n to first order. It is drawn
    relative to its minimum, at p = 0.797, with the trimmed ends shaded. Beside it is the variance of ln |w| of the
    initial entries, also relative to its minimum; their Weibull plot is not a line
    (``laws.weibull_quantile_noise``).

    The axes: share p of smaller weights against the variance over its minimum (logarithmic).
    """
    trim = float(require_trim(trim))
    parent = parents.require_parent(str(scores.attrs.get("initialization", "normal"))) if scores is not None else None
    p = np.linspace(0.0, 1.0, 801)[1:-1]
    transform = p / ((1.0 - p) * np.log1p(-p) ** 2)
    magnitude = weibull_quantile_noise(p, parents.Normal() if parent is None else parent)
    label = f"left out, {100 * trim:g} % at either end"
    for ends in ((0.0, trim), (1.0 - trim, 1.0)) if trim else ():
        ax.axvspan(*ends, color=theme.null, alpha=0.28, linewidth=0, label=label)
        label = ""
    ax.plot(p, transform / transform.min(), color=theme.observed, linewidth=1.6, label=r"$\ln(-\ln(1 - F))$")
    ax.plot(
        p, magnitude / magnitude.min(), color=theme.free_law, linewidth=1.4, linestyle="--",
        label=r"$\ln |w|$ of random entries",
    )  # fmt: skip
    ax.set_yscale("log")
    ax.set_ylim(0.9, 100.0)
    ax.set_xlim(0.0, 1.0)
    ax.set(xlabel="share $p$ of weights below", ylabel="variance of a quantile over its least")
    return finished(ax, theme, "", legend)


@panel
def tail_counts(
    ax: Axes,
    theme: Theme,
    weights: xr.DataTree | xr.Dataset | ElementSketch,
    layer: int | None = None,
    component: str | None = None,
    *,
    legend: bool = True,
) -> Axes:
    """Draw the number of weights above each magnitude beyond the 90 % quantile, against the body's Weibull law.

    The fit of the body predicts N exp(−(|w|/λ̂)^k̂) weights, and as many initial entries N S(|w|). If a prediction
    falls below one weight, none is expected. Arguments, data and errors as in :func:`weibull_plot`.

    The axes: |w| over its root mean square against the number of weights beyond it, both logarithmic.
    """
    found = magnitudes_of(weights, layer, component)
    x, count = found.magnitude / found.rms, found.number * (1.0 - found.below)
    tail, largest = found.below >= _BODY_ENDS, np.array(found.largest) / found.rms
    first = x[tail].min() if tail.any() else x.max()
    last = max(x.max(), largest.max(initial=0.0)) * 1.15
    at = np.geomspace(first, last, 300)
    spread = found.parent.moment(2) ** 0.5
    null = found.number * np.asarray(found.parent.sf(at * spread))
    low, high = np.fmax(null - NORMAL_95 * np.sqrt(null), 1e-3), null + NORMAL_95 * np.sqrt(null)
    ax.fill_between(at, low, high, color=theme.null, alpha=0.35, linewidth=0, label="random entries, 95 %")
    body = found.number * np.exp(-((at * found.rms / found.scale) ** found.shape))
    ax.plot(at, body, color=theme.flagged, linestyle=(0, (5, 2)), linewidth=1.3, label="Weibull law of the body")
    ax.plot(x[tail], count[tail], color=theme.observed, marker="o", markersize=3.4, linewidth=0, label="weights")
    ax.plot(
        largest, np.arange(1, largest.size + 1), color=theme.observed, marker="D", markersize=6, linestyle="none",
        markerfacecolor=theme.surface, label="largest",
    )  # fmt: skip
    ax.axhline(1.0, color=theme.muted, linewidth=0.9, linestyle=":")
    ax.set_xlim(first, last)
    log_axis(ax, "x")
    ax.set_yscale("log")
    ax.set_ylim(0.05, 2.0 * max(count[tail].max(initial=1.0), null.max()))
    ax.set(xlabel=r"magnitude $|w|$ / root mean square", ylabel="weights beyond")
    return finished(ax, theme, _title(found), legend)


def _hazard(p: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Return ln(−ln(1 − p))."""
    with np.errstate(divide="ignore"):
        return np.log(-np.log1p(-p))


def _null(
    found: Magnitudes,
) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"], Float[np.ndarray, " point"]]:
    """Return shares, the null's quantiles over its root mean square, and 1.96 standard deviations of their ln."""
    n = found.number
    least, most = max(found.below.min() / 2, 0.5 / n), min(1 - 0.5 / n, 1 - (1 - found.below.max()) / 2)
    y = np.linspace(float(_hazard(np.array(least))), float(_hazard(np.array(most))), 200)
    p = -np.expm1(-np.exp(y))
    quantile = np.asarray(found.parent.ppf(p)) / found.parent.moment(2) ** 0.5
    return p, quantile, NORMAL_95 * np.sqrt(weibull_quantile_noise(p, found.parent) / n)


def _trims(line: Callable[..., object], theme: Theme) -> None:
    """Draw a line at either trim."""
    for share in (TRIM, 1 - TRIM):
        line(float(_hazard(np.array(share))), color=theme.muted, linewidth=0.9, linestyle=":")


def _shares(ax: Axes, which: str) -> None:
    """Label ticks of an axis of ln(−ln(1 − F)) with F, so that no two labels overlap."""
    low, high = ax.get_xlim() if which == "x" else ax.get_ylim()
    ticks: dict[float, str] = {}
    for share in _PERCENT:
        place = float(_hazard(np.array(share)))
        if low <= place <= high and all(abs(place - other) > _APART[which] * (high - low) for other in ticks):
            ticks[place] = f"{100 * share:g} %"
    (ax.set_xticks if which == "x" else ax.set_yticks)(list(ticks), list(ticks.values()))


def _title(found: Magnitudes) -> str:
    fit = rf"fit: $\hat k$ = {found.shape:.4g}, $\hat\lambda$ = {found.scale:.4g}"
    return f"{found.title}\n{fit}".lstrip("\n")


@in_one_line
@dataclass(frozen=True)
class Magnitudes:
    """Distribution of |w| over N weights, and the Weibull law fitted to its body."""

    magnitude: Float[np.ndarray, " point"]  # |w|, ascending
    below: Float[np.ndarray, " point"]  # share of the weights below each magnitude
    number: int  # N
    rms: float  # root mean square of the weights
    # shape, scale: k̂ and λ̂, in the units of the weights, at a trim of 0.1
    shape: float
    scale: float
    parent: parents.Parent  # law of the initial entries
    title: str = ""  # name of the matrix
    largest: tuple[float, ...] = ()  # largest known |w|, descending


def magnitudes_of(
    weights: xr.DataTree | xr.Dataset | ElementSketch, layer: int | None = None, component: str | None = None
) -> Magnitudes:
    """Return the magnitudes of a sketch, or of one matrix of a scores file.

    The defaults are the middle layer and the first component.
    """
    if isinstance(weights, ElementSketch):
        return _of_sketch(weights)
    every = matrices_of(weights)
    held = every["statistic"].values.tolist()
    if "log_magnitude_histogram" not in every or not set(_STATISTICS) <= set(held):
        found = sorted(map(str, every.data_vars))
        raise ParameterError(
            "weights", found, "/matrices with log_magnitude_histogram and the Weibull fit, or a sketch"
        )
    component = str(every["component"].values[0]) if component is None else component
    one = require_component(every, component)
    layers = one["layer"].values[np.isfinite(one["n_rows"].values)].tolist()
    layer = layers[len(layers) // 2] if layer is None else layer
    if layer not in layers:
        raise ParameterError("layer", layer, f"one of {layers}")
    name = layer_numbers(one)[one["layer"].values.tolist().index(layer)]
    one = one.sel(layer=layer)
    shape, ratio, mean = (float(one["observed"].sel(statistic=name)) for name in _STATISTICS)
    number, sigma = int(one["n_rows"]) * int(one["n_columns"]), float(one["sigma"])
    if not (np.isfinite(shape) and np.isfinite(ratio)):
        raise ParameterError("component", component, f"one whose Weibull fit is known, in layer {layer}")
    edges = bin_edges(one["magnitude_bin"].values)
    share = one["log_magnitude_histogram"].values * np.diff(edges)
    above = np.append(np.cumsum(share[::-1])[::-1], 0.0)  # zeros are in no bin, but lie below all bins
    count = number * above
    known = (count > 0.5) & (count < number - 0.5)
    rms = sigma * float(np.hypot(1.0, mean))
    return Magnitudes(
        10.0 ** edges[known], 1.0 - above[known], number, rms, shape, ratio * rms,
        parents.require_parent(str(weights.attrs.get("initialization", "normal"))),
        literal(f"layer {name}, {component.replace('_', ' ')}, {number} weights"),
        _largest(weights, one, component),
    )  # fmt: skip


def _largest(weights: xr.DataTree | xr.Dataset, one: xr.Dataset, component: str) -> tuple[float, ...]:
    """Return the magnitudes of a matrix's super-weights; if it has none, max |w − w̄|, close to max |w|."""
    if isinstance(weights, xr.DataTree) and "super_weights" in weights.children:
        found = weights["super_weights"].to_dataset()
        here = (found["layer"].values == one["layer"].item()) & (found["component"].values == component)
        if here.any() and "stack" not in one.coords:
            return tuple(np.sort(np.abs(found["value"].values[here]))[::-1].tolist())
    if "largest_magnitude" not in one["statistic"].values:
        return ()
    return (float(one["observed"].sel(statistic="largest_magnitude")) * float(one["sigma"]),)


def _of_sketch(sketch: ElementSketch) -> Magnitudes:
    fit, n = sketch.body, sketch.count
    low, high = np.log(-np.log1p(-np.array([1.0, n - 1.0]) / n)).tolist()
    body = -np.expm1(-np.exp(np.linspace(low, high, _POINTS)))  # evenly spaced on the Weibull plot
    tail = 1.0 - np.geomspace(0.1, 1.0 / n, _POINTS // 2)
    below = np.union1d(body, tail)
    magnitude = sketch.magnitude_quantile(below)
    held = magnitude > 0
    return Magnitudes(
        magnitude[held], below[held], n, fit.rms, fit.shape, fit.scale, parents.Normal(), f"{n} weights",
        (sketch.largest_magnitude,),
    )  # fmt: skip
