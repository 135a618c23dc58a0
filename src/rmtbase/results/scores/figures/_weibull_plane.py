"""Plane of the Weibull shapes and scales of a model's matrices."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from rmtbase.drawing.axes import NORMAL_95, Around, looks, panel, symbol_of
from rmtbase.drawing.groups import matrices_of
from rmtbase.drawing.scales import log_axis
from rmtbase.drawing.theme import Theme


@panel
def weibull_plane(ax: Axes, theme: Theme, scores: xr.DataTree | xr.Dataset) -> Around:
    """Draw λ̂ against k̂ of every matrix in its component's colour, with 95 % of the null's k̂ at each size.

    For a trajectory, a line follows the median over each component's layers, from an open mark at the first step to the
    last step, whose matrices are drawn. λ̂ is in the units of the weights.
    """
    matrices = matrices_of(scores)
    if "step" not in matrices.dims:
        matrices = matrices.expand_dims("step")
    dims = ("step", "layer", "component")
    shape, ratio, mean = (
        matrices["observed"].sel(statistic=name).transpose(*dims).values
        for name in ("weibull_shape", "weibull_scale", "mean")
    )
    scale = ratio * matrices["sigma"].transpose(*dims).values * np.hypot(1.0, mean)
    label, bands = "null, 95 % at this size", []
    null = matrices.isel(step=-1).sel(statistic="weibull_shape")
    for center, spread in zip(
        null["null_mean"].values.ravel(), NORMAL_95 * null["null_std"].values.ravel(), strict=True
    ):
        if np.isfinite(center + spread) and not any(np.isclose(spread, drawn, rtol=1e-9) for drawn in bands):
            bands.append(spread)
            ax.axvspan(center - spread, center + spread, color=theme.null, alpha=0.28, linewidth=1.0, label=label)
            label = ""
    names = matrices["component"].values.tolist()
    for k, (name, look) in enumerate(zip(names, looks(theme, len(names)), strict=True)):
        x, y = shape[..., k], scale[..., k]
        if len(x) > 1:
            path = np.nanmedian(x, axis=1), np.nanmedian(y, axis=1)
            ax.plot(*path, color=look.colour, linewidth=1.0, linestyle="--" if k >= len(theme.series) else "-")
            start = {"color": look.colour, "marker": look.marker, "markersize": 7, "markerfacecolor": "none"}
            ax.plot(path[0][0], path[1][0], **start)
        ax.plot(x[-1], y[-1], markersize=4.0, label=symbol_of(name), **look.marks())
    log_axis(ax)
    return Around("", r"Weibull shape $\hat k$", r"Weibull scale $\hat\lambda$")
