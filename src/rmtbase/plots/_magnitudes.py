"""The magnitudes of one matrix's weights, from a sketch of it or from its histogram in a scores file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.errors import ParameterError
from rmtbase.laws import parents
from rmtbase.plots._axes import literal
from rmtbase.plots._groups import matrices_of, require_component
from rmtbase.plots._head_densities import bin_edges
from rmtbase.shown import in_one_line
from rmtbase.statistics import ElementSketch
from rmtbase.tables import layer_numbers

TRIM = 0.1
"""The share at either end that the body's fit leaves out."""

_POINTS = 120  # of a sketch's distribution
_STATISTICS = ("weibull_shape", "weibull_scale", "mean")


@in_one_line
@dataclass(frozen=True)
class Magnitudes:
    """The distribution of |w| over N weights, and the Weibull law fitted to its body.

    Attributes:
        magnitude: ascending |w|.
        below: the share of the weights below each.
        number: N.
        rms: root mean square of the weights.
        shape, scale: k̂ and λ̂, in the units of the weights, at a trim of 0.1.
        parent: law of the initial entries.
        title: what matrix it is.
        largest: the largest |w| that are known, the very largest first.
    """

    magnitude: Float[np.ndarray, " point"]
    below: Float[np.ndarray, " point"]
    number: int
    rms: float
    shape: float
    scale: float
    parent: parents.Parent
    title: str = ""
    largest: tuple[float, ...] = ()


def magnitudes_of(
    weights: xr.DataTree | xr.Dataset | ElementSketch, layer: int | None = None, component: str | None = None
) -> Magnitudes:
    """The magnitudes of a sketch, or of one matrix of a scores file, the first component of the middle layer if None.

    Raises:
        ParameterError: no such matrix, one without a Weibull fit, or no histograms of magnitudes.
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
    above = np.append(np.cumsum(share[::-1])[::-1], 0.0)  # a zero lies in no bin, but below all
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
    """The super-weights of a matrix; if it has none, max |w − w̄|, which is max |w| but for the mean."""
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
    body = -np.expm1(-np.exp(np.linspace(low, high, _POINTS)))  # evenly on the Weibull plot
    tail = 1.0 - np.geomspace(0.1, 1.0 / n, _POINTS // 2)
    below = np.union1d(body, tail)
    magnitude = sketch.magnitude_quantile(below)
    held = magnitude > 0
    return Magnitudes(
        magnitude[held], below[held], n, fit.rms, fit.shape, fit.scale, parents.Normal(), f"{n} weights",
        (sketch.largest_magnitude,),
    )  # fmt: skip
