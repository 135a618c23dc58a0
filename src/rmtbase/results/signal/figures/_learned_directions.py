"""Signal above noise: the learned directions of every head or matrix, layer by layer."""

from __future__ import annotations

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes

from rmtbase.drawing.axes import finished, layer_axis, literal, own_axes
from rmtbase.drawing.not_testable import NOT_TESTABLE, cross_at_foot
from rmtbase.drawing.theme import Theme, as_theme
from rmtbase.errors import ParameterError
from rmtbase.tables import CIRCUITS

MATRICES = "matrices"


def learned_directions(
    tree: xr.DataTree,
    what: str = "qk",
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    legend: bool = True,
) -> Axes:
    """Draw the strength of every learned direction with its limits, layer by layer, over the threshold of visibility.

    Args:
        tree: tree of signal and noise, as ``rmtbase.results.signal.signal`` makes it.
        what: name of a circuit, each of whose heads has its place within its layer, or ``"matrices"``.
        ax: where to draw; new axes if None.
        theme: colours, or their name.
        legend: whether to draw one.

    Returns:
        The axes: layer against strength over threshold. Directions are grey where the rest is not noise. Spectra that
        cannot be tested have a cross at the foot, and the title counts the spectra without a noise floor.

    Raises:
        ParameterError: the tree is not of signal and noise, or has no such circuit or matrices.
    """
    held = groups_of_signal(tree)
    if what not in held:
        raise ParameterError("what", what, f"one of {', '.join(held)}, of a tree of signal and noise")
    group, theme = held[what], as_theme(theme)
    ax = own_axes(ax, theme, tree)
    of = "component" if what == MATRICES else "head"
    unit = group["threshold"].values[..., None]
    height, low, high = (group[name].values / unit for name in ("strength", "strength_low", "strength_high"))
    floor = (group["noise_floor"].values != 0)[..., None] & np.isfinite(height)
    by_law = bool(group["noise_floor"].notnull().any())  # the null of sign flips does not test the floor
    x = places_in_layers(group, of)[..., None] + np.zeros(height.shape)
    for there, colour, words in (
        (np.isfinite(height) & ~floor, theme.null, "the rest is not noise"),
        (floor, theme.observed, "above a noise floor" if by_law else "learned directions"),
    ):
        if there.any():
            ax.vlines(x[there], np.maximum(low[there], 1e-3), high[there], color=colour, linewidth=0.8, alpha=0.6)
            ax.plot(x[there], height[there], linestyle="none", marker="o", markersize=2.8, color=colour, label=words)
    ax.axhline(1.0, color=theme.muted, linewidth=0.8, linestyle="--", label="threshold")
    ax.set_yscale("log")
    ax.set_ylim(bottom=0.5)
    ax.set_ylabel("strength of directions / threshold")
    tested, known = group["first_p_value"].notnull().values, group["n_directions"].notnull().values
    untested = group["sigma"].notnull().values & ~tested
    cross_at_foot(ax, x[..., 0][untested] if x.shape[-1] else places_in_layers(group, of)[untested], theme)
    found, floors = (int((group[name] > 0).sum()) for name in ("n_directions", "noise_floor"))
    found += int((tested & ~known).sum())  # at least one, whose strength is not known
    there = int(tested.sum())
    said = f"learned directions in {found} of {there} {'testable ' if untested.any() else ''}{spectra_of(what)}"
    said += f"; {there - floors} without a noise floor" if by_law else ""
    if untested.any():
        none = f"none of {untested.sum()} {spectra_of(what)} can be tested"
        said = f"{said}; {untested.sum()} {NOT_TESTABLE}" if there else none
        ax.set_ylim(top=max(ax.get_ylim()[1], 2.0))
    return finished_by_layer(ax, group, what, said, theme, legend)


def groups_of_signal(tree: xr.DataTree) -> dict[str, xr.Dataset]:
    """Collect the groups of heads of a tree of signal and noise by circuit, and the matrices."""
    if not isinstance(tree, xr.DataTree) or tree.attrs.get("kind") != "signal":
        return {}
    circuits = tree.children["circuits"].children if "circuits" in tree.children else {}
    held = {name: circuits[name]["heads"].to_dataset() for name in CIRCUITS if name in circuits}
    return held | ({MATRICES: tree[MATRICES].to_dataset()} if MATRICES in tree.children else {})


def places_in_layers(group: xr.Dataset, of: str) -> Float[np.ndarray, "layer _"]:
    """Position of each spectrum on the axis: within its layer from left to right."""
    count = group.sizes[of]
    offset = np.linspace(-0.3, 0.3, count) if count > 1 else np.zeros(1)
    return np.arange(group.sizes["layer"])[:, None] + offset


def spectra_of(what: str) -> str:
    """Name what the spectra of a group belong to, in the plural."""
    return "matrices" if what == MATRICES else f"{CIRCUITS[what].noun}s"


def finished_by_layer(ax: Axes, group: xr.Dataset, what: str, said: str, theme: Theme, legend: bool) -> Axes:
    """Finish axes of spectra that stand in their layers from left to right, with a title."""
    layer_axis(ax, "x", group, theme)
    ax.set_xlim(-0.5, group.sizes["layer"] - 0.5)
    ax.set_xlabel("layer")
    title = f"whole matrices\n{said}" if what == MATRICES else f"${CIRCUITS[what].latex}$\n{said}"
    if what == MATRICES:
        title += f"\nof a layer from left to right {', '.join(map(literal, group['component'].values.tolist()))}"
    return finished(ax, theme, title, legend)
