"""Post 2's figures 2 to 4 as published, with the d − h zeros, beside the corrected ones; averages of layers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure

from rmtbase.drawing.axes import rows_axis
from rmtbase.drawing.scales import log_axis
from rmtbase.drawing.theme import LIGHT
from rmtbase.results.scores.figures._eigenvalues import (
    eigenvalue_density_heatmap,
    eigenvalue_heatmap,
    farthest_middle_nearest,
    head_eigenvalue_density,
    head_eigenvalues,
)
from rmtbase.tables import heads_present
from studies.sources.drawing import canvas, legend_below, log_ticks, titled

_ROW = 0.05  # inches of a head's row in a map
_BEYOND = 1.5  # indices that are shown over h, so that the kink at h and the zeros behind it are seen
_BINS = 120
ZERO = "#b8bec4"
"""Colour of eigenvalues that are zero in a map of which zero is off the scale."""


class Spectra(NamedTuple):
    """Eigenvalues of all heads that are there.

    Attributes:
        layer, head: places, (row,).
        value: nonzero eigenvalues, descending, (row, index); NaN beyond the rank of a head.
        d_model: number of all eigenvalues, with the zeros that the rank imposes.
    """

    layer: np.ndarray
    head: np.ndarray
    value: Float[np.ndarray, "row index"]
    d_model: int

    def with_zeros(self, row: int) -> Float[np.ndarray, " d_model"]:
        """Return all eigenvalues of one head, with zeros."""
        own = self.value[row][np.isfinite(self.value[row])]
        return np.concatenate([own, np.zeros(max(self.d_model - own.size, 0))])


def spectra_of(tree: xr.DataTree) -> Spectra:
    """Collect the eigenvalues of a scores tree."""
    heads = tree["heads"].to_dataset().transpose("layer", "head", ...)
    layer, head = np.nonzero(heads_present(heads))
    return Spectra(layer, head, heads["eigenvalue"].values[layer, head], int(tree.attrs["d_model"]))


def two_heads(tree: xr.DataTree, heads: Sequence[tuple[int, int]] | None) -> Figure:
    """Figure 2: two heads with all d eigenvalues on the post's axes, and below with their nulls, without zeros.

    Args:
        tree: scores.
        heads: (layer, head) of the MP-like head, blue, and of the outlier, red; if None, the nearest to the null and
            the farthest from it.
    """
    spectra, held = spectra_of(tree), tree["heads"].to_dataset()
    if heads is None:
        places = farthest_middle_nearest(held)
        ends = [place for place, words in places.items() if "middle" not in words] or list(places)
        chosen = sorted(ends, key=lambda place: "farthest" in places[place])
    else:
        layers, numbers = held["layer"].values.tolist(), held["head"].values.tolist()
        chosen = [(layers.index(layer), numbers.index(head)) for layer, head in heads]
    figure, ((left, right), (below, beside)) = canvas(2, 2, 11.0, 3.5)
    highest = 0.0
    for (layer, head), colour, marker in zip(chosen, (LIGHT.observed, LIGHT.flagged), "os", strict=False):
        (row,) = np.flatnonzero((spectra.layer == layer) & (spectra.head == head))
        every, name = spectra.with_zeros(int(row)), (int(held["layer"][layer]), int(held["head"][head]))
        label = f"L{name[0]} H{name[1]}"
        left.plot(np.arange(1, every.size + 1), every, color=colour, marker=marker, ms=3.0, lw=1.0, label=label)
        highest = max(highest, float(every[0]))
        own = replace(LIGHT, observed=colour, null=colour)
        head_eigenvalues(tree, *name, ax=below, theme=own, legend=False)
        head_eigenvalue_density(tree, *name, ax=beside, theme=own, legend=False)
    edges = np.linspace(0.0, 1.02 * highest, _BINS + 1)
    for (layer, head), colour in zip(chosen, (LIGHT.observed, LIGHT.flagged), strict=False):
        (row,) = np.flatnonzero((spectra.layer == layer) & (spectra.head == head))
        density = np.histogram(spectra.with_zeros(int(row)), edges, density=True)[0]
        right.stairs(np.where(density > 0, density, np.nan), edges, color=colour, lw=1.4)
    rank = int(np.isfinite(spectra.value).sum(axis=1).max())
    left.set_xlim(0, min(spectra.d_model, _BEYOND * rank))
    left.axvline(rank, color=LIGHT.muted, lw=0.8, ls=":", label=f"$d_h$ = {rank}")
    left.set_ylim(bottom=-0.02 * highest)
    _zoom(left, rank)
    right.set_yscale("log")
    zeros = spectra.d_model - rank
    right.annotate(f"peak of the {zeros} zeros", (edges[1], right.get_ylim()[1]), xytext=(8, -4), va="top",
                   textcoords="offset points", fontsize=8.5, color=LIGHT.muted)  # fmt: skip
    titled(left, f"as published: eigenvalues, of which {zeros} of {spectra.d_model} are zero", "index $k$",
           r"$\lambda_k$")  # fmt: skip
    titled(right, "as published: density of all", r"$\lambda$", r"$P(\lambda)$")
    titled(below, "corrected: with the null of each (band)", below.get_xlabel(), r"$\lambda_k$")
    titled(
        beside, "corrected: density of those not zero (filled), null (line)", beside.get_xlabel(), beside.get_ylabel()
    )
    for ax in (below, beside):
        ax.autoscale()
    legend_below(figure, [left])
    return figure


def _zoom(ax: Axes, rank: int) -> None:
    """Show the lines of the axes again near the rank, where the kink to zero is small beside the largest value."""
    inset = ax.inset_axes((0.42, 0.36, 0.56, 0.52))
    inset.tick_params(labelsize=7.5, labelcolor=LIGHT.muted)
    inset.set_title("near $d_h$", fontsize=8.5, color=LIGHT.muted)
    start, end = int(0.6 * rank), int(np.ceil(1.3 * rank))
    highest = 0.0
    for line in ax.lines:
        x, y = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
        if x.size == 2:  # the line at the rank
            inset.axvline(rank, color=line.get_color(), lw=0.8, ls=":")
            continue
        inset.plot(x, y, color=line.get_color(), marker=line.get_marker(), ms=2.5, lw=1.0)
        highest = max(highest, float(y[max(start - 1, 0)]))
    inset.set(xlim=(start, end), ylim=(-0.05 * highest, 1.1 * highest))


def ranks_of_all(tree: xr.DataTree) -> Figure:
    """Figure 3: every head's eigenvalues by index with the zeros, over the mean of all, and over the null."""
    spectra = spectra_of(tree)
    figure, (axes,) = canvas(1, 3, 16.0, map_height(spectra))
    rank = spectra.value.shape[1]
    shown = int(min(spectra.d_model, np.ceil(_BEYOND * rank)))
    cells = np.array([spectra.with_zeros(row)[:shown] for row in range(len(spectra.value))])
    _logarithmic_map(axes[0], np.arange(shown + 1) + 0.5, cells, r"$\lambda_k$", LogNorm(*_range(cells)), ZERO)
    _rows(axes[0], tree, spectra)
    titled(axes[0], f"as published; grey: the {spectra.d_model - rank} zeros", "index $k$", axes[0].get_ylabel())
    for ax, over, title in zip(
        axes[1:], ("mean", "null"), ("the mean of all", "the null's median at its rank"), strict=True
    ):
        eigenvalue_heatmap(tree, over, ax=ax)
        titled(ax, f"corrected: over {title}", ax.get_xlabel(), ax.get_ylabel())
    return figure


def densities_of_all(tree: xr.DataTree) -> Figure:
    """Figure 4: every head's density of eigenvalues with the zeros, and the density of ln λ of those not zero."""
    spectra = spectra_of(tree)
    figure, ((left, right),) = canvas(1, 2, 11.0, map_height(spectra))
    most = float(np.nanquantile(spectra.value, 0.99))
    edges = np.linspace(0.0, most, _BINS // 2 + 1)
    cells = np.array([
        np.histogram(np.fmin(spectra.with_zeros(row), most), edges)[0] / (spectra.d_model * edges[1])
        for row in range(len(spectra.value))
    ])  # fmt: skip
    norm = LogNorm(*_range(cells[:, 1:]))
    _logarithmic_map(left, edges, cells, r"$P(\lambda)$", norm, LIGHT.surface, extend="max")
    _rows(left, tree, spectra)
    titled(left, "as published; the colours leave out the peak at 0", r"$\lambda$", left.get_ylabel())
    eigenvalue_density_heatmap(tree, ax=right)
    titled(right, r"corrected: density of $\ln\lambda$, without zeros", right.get_xlabel(), right.get_ylabel())
    return figure


def average_of_layers(ax: Axes, value: Float[np.ndarray, "layer head"], logarithmic: bool = False) -> None:
    """Draw the mean over the heads of each layer as a dashed red line, as in the post; on request on a log scale."""
    mean = np.array([np.mean(one[np.isfinite(one)]) if np.isfinite(one).any() else np.nan for one in value])
    if logarithmic:
        log_axis(ax)
    ax.plot(np.arange(len(mean)), mean, color="#c00000", ls="--", lw=1.6, zorder=4, label="average of a layer")
    ax.legend(handles=ax.lines[-1:], loc="best", frameon=False, fontsize=8.5)


def map_height(spectra: Spectra) -> float:
    """Height of a map with a row for each head, in inches."""
    return float(np.clip(1.6 + _ROW * len(spectra.value), 3.4, 9.0))


def _range(cells: np.ndarray) -> tuple[float, float]:
    positive = cells[cells > 0]
    low, high = (float(positive.min()), float(positive.max())) if positive.size else (1.0, 10.0)
    return max(low, 1e-6 * high), high if high > low else 10.0 * low


def _logarithmic_map(
    ax: Axes, edges: np.ndarray, cells: np.ndarray, label: str, norm: LogNorm, zero: str, extend: str = "neither"
) -> None:
    """Colour cells on a logarithmic scale; what is above the scale is black, and zeros have a colour of their own."""
    colours = ListedColormap(LIGHT.sequential[1:]).with_extremes(bad=zero, over=LIGHT.text)
    drawn = ax.pcolormesh(
        edges, np.arange(len(cells) + 1) - 0.5, np.ma.masked_less_equal(cells, 0.0), cmap=colours, norm=norm,
        linewidth=0, rasterized=True,
    )  # fmt: skip
    bar = ax.get_figure().colorbar(drawn, ax=ax, extend=extend)  # type: ignore[union-attr]  # axes always lie in a figure
    bar.set_label(label, fontsize=9.5, color=LIGHT.text)
    log_ticks(bar.ax.yaxis)
    bar.ax.tick_params(which="both", labelsize=8.0, labelcolor=LIGHT.muted)


def _rows(ax: Axes, tree: xr.DataTree, spectra: Spectra) -> None:
    ax.grid(False)
    heads = tree["heads"].to_dataset().transpose("layer", "head", ...)
    rows_axis(ax, spectra.layer.tolist(), heads, LIGHT)
