"""Weibull fits of a model's matrices: the plane of shape and scale, and the effect of the tail on the shape."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes

from rmtbase.drawing.axes import MARKERS, NORMAL_95, finished, panel, symbol_of
from rmtbase.drawing.groups import column_of, matrices_of
from rmtbase.drawing.scales import log_axis
from rmtbase.drawing.theme import Theme
from rmtbase.errors import ParameterError
from rmtbase.laws import weibull_anchor
from rmtbase.results.scores.figures._statistic_by_layer import draw_published_band

_NEEDED = ("weibull_shape", "weibull_scale", "mean")


@panel
def weibull_plane(ax: Axes, theme: Theme, scores: xr.DataTree | xr.Dataset, *, legend: bool = True) -> Axes:
    """Draw λ̂ against k̂ of every matrix in its component's colour, with 95 % of the null's k̂ at each size.

    For a trajectory, a line follows the median over each component's layers, from an open mark at the first step to the
    last step, whose matrices are drawn.

    The axes: k̂ against λ̂ (logarithmic), in the units of the weights.
    """
    matrices = matrices_of(scores)
    missing = [name for name in _NEEDED if name not in matrices["statistic"].values]
    if missing:
        raise ParameterError("scores", f"matrices without {', '.join(missing)}", "matrices with their Weibull fits")
    if "step" not in matrices.dims:
        matrices = matrices.expand_dims("step")
    shape, scale = shape_and_scale(matrices)
    label, bands = "null, 95 % at this size", []
    null = matrices.isel(step=-1).sel(statistic="weibull_shape")
    for mean, spread in zip(null["null_mean"].values.ravel(), NORMAL_95 * null["null_std"].values.ravel(), strict=True):
        if np.isfinite(mean + spread) and not any(np.isclose(spread, one, rtol=1e-9) for one in bands):
            bands.append(spread)
            ax.axvspan(mean - spread, mean + spread, color=theme.null, alpha=0.28, linewidth=1.0, label=label)
            label = ""
    names = matrices["component"].values.tolist()
    for k, (name, colour, marker) in enumerate(zip(names, cycle(theme.series), cycle(MARKERS), strict=False)):
        x, y = shape[..., k], scale[..., k]
        again = k >= len(theme.series)
        if len(x) > 1:
            path = np.nanmedian(x, axis=1), np.nanmedian(y, axis=1)
            ax.plot(*path, color=colour, linewidth=1.0, linestyle="--" if again else "-")
            ax.plot(path[0][0], path[1][0], color=colour, marker=marker, markersize=7, markerfacecolor="none")
        ax.plot(
            x[-1], y[-1], linestyle="none", marker=marker, markersize=4.0, markeredgecolor=colour,
            markerfacecolor=theme.surface if again else colour, label=symbol_of(str(name)),
        )  # fmt: skip
    log_axis(ax)
    ax.set(xlabel=r"Weibull shape $\hat k$", ylabel=r"Weibull scale $\hat\lambda$")
    return finished(ax, theme, "", legend)


@panel
def body_and_tail(
    ax: Axes, theme: Theme, scores: xr.DataTree | xr.Dataset, published: bool = False, *, legend: bool = True
) -> Axes:
    """Draw the Weibull shape of the body beside that of all weights, for every matrix of each component.

    k̂ of the middle 80 % of magnitudes and k̂ without a trim differ by the effect of the tail. The lines are the
    anchors: the values of both for the law of the initial entries.
    For several models: ``compare(body_and_tail, {...})``.

    The axes: component against k̂.
    """
    every = matrices_of(scores).transpose("layer", "component", ...)
    body, gap = (column_of(every, name).values for name in ("weibull_shape", "body_tail_gap"))
    parent = str(scores.attrs.get("initialization", "normal"))
    if published:
        draw_published_band(ax, theme)
    names = [str(one) for one in every["component"].values]
    spread = 0.24 * (np.arange(len(body)) / max(len(body) - 1, 1) - 0.5)
    for value, trim, colour, marker, left, style in (
        (body, 0.1, theme.observed, "o", -0.2, "-"), (body - gap, 0.0, theme.flagged, "s", 0.2, "--"),
    ):  # fmt: skip
        words = "body, 80 %" if trim else "all weights"
        anchor = float(weibull_anchor(trim, parent).shape)
        ax.axhline(anchor, color=theme.null, linewidth=1.3, linestyle=style, label=f"random entries, {words}")
        x = np.arange(len(names)) + left + spread[:, None]
        ax.plot(
            x.ravel(), value.ravel(), color=colour, linestyle="none", marker=marker, markersize=3.5,
            markerfacecolor=colour if trim else theme.surface, label=words,
        )  # fmt: skip
    ax.set_xticks(range(len(names)), [symbol_of(name).replace(" ", "\n", 1) for name in names])
    ax.set_xlim(-0.5, len(names) - 0.5)
    ax.set(xlabel="", ylabel=r"Weibull shape $\hat k$")
    return finished(ax, theme, "", legend)


def shape_and_scale(
    matrices: xr.Dataset,
) -> tuple[Float[np.ndarray, "step layer component"], Float[np.ndarray, "step layer component"]]:
    """Return k̂ and λ̂ of every matrix, with λ̂ rescaled by the root mean square to the units of the weights."""
    dims = ("step", "layer", "component")
    shape, ratio, mean = (matrices["observed"].sel(statistic=name).transpose(*dims).values for name in _NEEDED)
    return shape, ratio * matrices["sigma"].transpose(*dims).values * np.hypot(1.0, mean)
