"""The Weibull probability plot of one matrix, what is left of its line, and its largest weights beside the body's."""

from __future__ import annotations

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes

from rmtbase.laws import weibull_anchor, weibull_quantile_noise
from rmtbase.plots._axes import NORMAL_95, finished, log_axis, own_axes
from rmtbase.plots._magnitudes import TRIM, Magnitudes, magnitudes_of
from rmtbase.plots._theme import Theme, as_theme
from rmtbase.statistics import ElementSketch

_PERCENT = (0.5, 0.99, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6, 0.9, 0.9999, 1 - 1e-6)  # those that matter first
_APART = {"x": 0.11, "y": 0.05}  # of the axis, the least distance of two ticks
_BODY_ENDS = 0.9  # share of the weights from which on their numbers are shown


def weibull_plot(
    weights: xr.DataTree | xr.Dataset | ElementSketch,
    layer: int | None = None,
    component: str | None = None,
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    legend: bool = True,
) -> Axes:
    """Draw the Weibull probability plot of one matrix: ln(−ln(1 − F)) against ln |w|, in which a Weibull law is a line.

    The line is the least-squares fit between the trims, which are dotted. The null is the law of the initial entries at
    the matrix's own root mean square, with 95 % of each order statistic of as many independent entries
    (:func:`rmtbase.laws.weibull_quantile_noise`).

    Args:
        weights: a sketch of the matrix; or a scores tree with /matrices, whose histograms tell F at ten magnitudes of
            each decade, exactly.
        layer: of a scores tree; the middle one that has the component if None.
        component: of a scores tree; the first if None.
        ax: where to draw; new axes if None.
        theme: colours, or their name.
        legend: whether to draw one, below the axes.

    Returns:
        The axes: |w| over its root mean square (logarithmic) against the share of weights below it.

    Raises:
        ParameterError: no such matrix, or one without a fit.
    """
    found = magnitudes_of(weights, layer, component)
    theme = as_theme(theme)
    ax = own_axes(ax, theme, weights)
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
    _trims(ax, theme)
    ax.set_xscale("log")
    ax.set_xlim(x.min() / 1.5, x.max() * 1.5)
    ax.set_ylim(y.min() - 0.3, y.max() + 0.3)
    _shares(ax, "y")
    ax.set(xlabel=r"$|w|$ / root mean square", ylabel="share of weights below")
    return finished(ax, theme, _title(found), legend)


def weibull_residuals(
    weights: xr.DataTree | xr.Dataset | ElementSketch,
    layer: int | None = None,
    component: str | None = None,
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    legend: bool = True,
) -> Axes:
    """Draw what is left of the Weibull plot when its line is taken away, Y − k̂ ln(|w|/λ̂), with the null's own curve.

    The null is not straight either: its curve is that of the initial entries about the anchor's line, with 95 % at each
    rank. Arguments, data and errors as in :func:`weibull_plot`.

    Returns:
        The axes: the share of weights below (on the Weibull plot's scale) against the residual.
    """
    found = magnitudes_of(weights, layer, component)
    anchor = weibull_anchor(TRIM, found.parent)
    theme = as_theme(theme)
    ax = own_axes(ax, theme, weights)
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
    for share in (TRIM, 1 - TRIM):
        ax.axvline(float(_hazard(np.array(share))), color=theme.muted, linewidth=0.9, linestyle=":")
    ax.set_xlim(y.min() - 0.3, y.max() + 0.3)
    _shares(ax, "x")
    ax.set(xlabel="share of weights below", ylabel=r"residual of $\ln(-\ln(1 - F))$")
    return finished(ax, theme, _title(found), legend)


def tail_counts(
    weights: xr.DataTree | xr.Dataset | ElementSketch,
    layer: int | None = None,
    component: str | None = None,
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    legend: bool = True,
) -> Axes:
    """Draw how many weights are larger than a magnitude, beyond their 90 % quantile, against the body's Weibull law.

    N exp(−(|w|/λ̂)^k̂) is what the fit of the body promises, N S(|w|) what as many initial entries do; where either
    falls below one weight none is expected. Arguments, data and errors as in :func:`weibull_plot`.

    Returns:
        The axes: |w| over its root mean square against the number of weights beyond it, both logarithmic.
    """
    found = magnitudes_of(weights, layer, component)
    theme = as_theme(theme)
    ax = own_axes(ax, theme, weights)
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
    ax.set(xlabel=r"$|w|$ / root mean square", ylabel="weights beyond")
    return finished(ax, theme, _title(found), legend)


def _hazard(p: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """ln(−ln(1 − p))."""
    with np.errstate(divide="ignore"):
        return np.log(-np.log1p(-p))


def _null(
    found: Magnitudes,
) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"], Float[np.ndarray, " point"]]:
    """Shares, the null's quantile of each over its root mean square, and 1.96 standard deviations of its logarithm."""
    n = found.number
    least, most = max(found.below.min() / 2, 0.5 / n), min(1 - 0.5 / n, 1 - (1 - found.below.max()) / 2)
    y = np.linspace(float(_hazard(np.array(least))), float(_hazard(np.array(most))), 200)
    p = -np.expm1(-np.exp(y))
    quantile = np.asarray(found.parent.ppf(p)) / found.parent.moment(2) ** 0.5
    return p, quantile, NORMAL_95 * np.sqrt(weibull_quantile_noise(p, found.parent) / n)


def _trims(ax: Axes, theme: Theme) -> None:
    for share in (TRIM, 1 - TRIM):
        ax.axhline(float(_hazard(np.array(share))), color=theme.muted, linewidth=0.9, linestyle=":")


def _shares(ax: Axes, which: str) -> None:
    """Ticks of an axis of ln(−ln(1 − F)) that name F, none so near another that it would lie on it."""
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
