"""Figures of signal and noise: learned directions, and exponents of heavy tails if these were computed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from rmtbase.drawing.axes import MARKERS, finished, layer_axis, literal, panel
from rmtbase.drawing.layout import FigureRecipe, FigureStyle, Single
from rmtbase.drawing.not_testable import NOT_TESTABLE, cross_at_foot
from rmtbase.drawing.theme import Theme
from rmtbase.errors import ParameterError
from rmtbase.reasons import Reason
from rmtbase.results.signal.schema import VERDICTS
from rmtbase.tables import CIRCUITS

_MATRICES = "matrices"
_BAND = 0.6  # part of a layer's width that its spectra share


@panel
def learned_directions(ax: Axes, theme: Theme, tree: xr.DataTree, what: str = "qk", *, legend: bool = True) -> Axes:
    """Draw the strength of every learned direction with its limits, layer by layer, over the threshold of visibility.

    The axes: layer against strength over threshold. Directions are grey where the rest is not noise. Spectra that
    cannot be tested have a cross at the foot; spectra with directions and no number of them a triangle at the top.
    The title counts only spectra with a number, and says how many have none and why.
    """
    held = _groups_of_signal(tree)
    if what not in held:
        raise ParameterError("what", what, f"one of {', '.join(held)}, of a tree of signal and noise")
    group = held[what]
    of = "component" if what == _MATRICES else "head"
    unit = group["threshold"].values[..., None]
    height, low, high = (group[name].values / unit for name in ("strength", "strength_low", "strength_high"))
    floor = (group["noise_floor"].values != 0)[..., None] & np.isfinite(height)
    by_law = bool(group["noise_floor"].notnull().any())  # the null of sign flips does not test the floor
    x = _places_in_layers(group, of)
    at = x[..., None] + np.zeros(height.shape)
    for there, colour, words in (
        (np.isfinite(height) & ~floor, theme.null, "the rest is not noise"),
        (floor, theme.observed, "the rest is noise" if by_law else "learned directions"),
    ):
        if there.any():
            ax.vlines(at[there], np.maximum(low[there], 1e-3), high[there], color=colour, linewidth=0.8, alpha=0.6)
            ax.plot(at[there], height[there], linestyle="none", marker="o", markersize=2.8, color=colour, label=words)
    ax.axhline(1.0, color=theme.muted, linewidth=0.8, linestyle="--", label="threshold")
    ax.set_yscale("log")
    ax.set_ylim(bottom=0.5)
    ax.set_ylabel("strength of directions / threshold")
    tested, lacking = group["first_p_value"].notnull().values, group["no_number"].values
    untested, unknown = group["sigma"].notnull().values & ~tested, lacking != ""
    cross_at_foot(ax, x[untested], theme)
    if unknown.any():
        ax.plot(
            x[unknown], np.full(int(unknown.sum()), 0.97), transform=ax.get_xaxis_transform(), linestyle="none",
            marker="^", markersize=3.5, markerfacecolor="none", color=theme.observed, label="no number",
        )  # fmt: skip
    if not np.isfinite(height).any():
        ax.set_ylim(top=max(ax.get_ylim()[1], 2.0))
    said = "\n".join(
        filter(
            None,
            (
                _directions_words(group, what, bool(untested.any())),
                _without_number(lacking[unknown].tolist(), tested, what),
                _untested_words(untested, tested, what),
            ),
        )
    )
    return _finished_by_layer(ax, group, what, said, theme, legend)


def _directions_words(group: xr.Dataset, what: str, some_untested: bool) -> str:
    """Say in how many of the spectra with a number there are directions, and in how many the rest is not noise."""
    known = group["n_directions"].notnull().values
    if not known.any():
        return ""
    number, floor = (group[name].values[known] for name in ("n_directions", "noise_floor"))
    with_number = " with a number" if (group["no_number"].values != "").any() else ""
    of = f"{known.sum()} {'testable ' if some_untested else ''}{_spectra_of(what)}{with_number}"
    rest = "" if np.isnan(floor).all() else f"; in {int((floor == 0).sum())} the rest is not noise"
    return f"learned directions in {int((number > 0).sum())} of {of}{rest}"


def _without_number(reasons: Sequence[str], tested: Bool[np.ndarray, "..."], what: str) -> str:
    """Say how many spectra have directions and no number of them, and why; "" if none."""
    if not reasons:
        return ""
    words = "; ".join(Reason(reason).words for reason in dict.fromkeys(reasons))
    return f"{len(reasons)} of {tested.sum()} {_spectra_of(what)} have no number: {words}"


def _untested_words(untested: Bool[np.ndarray, "..."], tested: Bool[np.ndarray, "..."], what: str) -> str:
    """Say how many spectra cannot be tested; "" if none."""
    if not untested.any():
        return ""
    of = f"{untested.sum()} of {untested.sum() + tested.sum()}" if tested.any() else f"none of {untested.sum()}"
    return f"{of} {_spectra_of(what)} {NOT_TESTABLE if tested.any() else 'can be tested'}"


def _groups_of_signal(tree: xr.DataTree) -> dict[str, xr.Dataset]:
    """Collect the groups of heads of a tree of signal and noise by circuit, and the matrices."""
    if not isinstance(tree, xr.DataTree) or tree.attrs.get("kind") != "signal":
        return {}
    circuits = tree.children["circuits"].children if "circuits" in tree.children else {}
    held = {name: circuits[name]["heads"].to_dataset() for name in CIRCUITS if name in circuits}
    return held | ({_MATRICES: tree[_MATRICES].to_dataset()} if _MATRICES in tree.children else {})


def _places_in_layers(group: xr.Dataset, of: str) -> Float[np.ndarray, "layer _"]:
    """Position of each spectrum on the axis: within its layer from left to right."""
    count = group.sizes[of]
    offset = np.linspace(-0.3, 0.3, count) if count > 1 else np.zeros(1)
    return np.arange(group.sizes["layer"])[:, None] + offset


def _spectra_of(what: str) -> str:
    """Name what the spectra of a group belong to, in the plural."""
    return "matrices" if what == _MATRICES else f"{CIRCUITS[what].noun}s"


def _finished_by_layer(ax: Axes, group: xr.Dataset, what: str, said: str, theme: Theme, legend: bool) -> Axes:
    """Finish axes of spectra that stand in their layers from left to right, with a title."""
    layer_axis(ax, "x", group, theme)
    ax.set_xlim(-0.5, group.sizes["layer"] - 0.5)
    ax.set_xlabel("layer")
    title = f"whole matrices\n{said}" if what == _MATRICES else f"${CIRCUITS[what].latex}$\n{said}"
    if what == _MATRICES:
        title += f"\nof a layer from left to right {', '.join(map(literal, group['component'].values.tolist()))}"
    return finished(ax, theme, title, legend)


@panel
def tail_exponents(ax: Axes, theme: Theme, tree: xr.DataTree, what: str = "qk", *, legend: bool = True) -> Axes:
    """Draw the exponent of the power law fitted to every spectrum, layer by layer, over the band of noise exponents.

    The axes: layer against exponent. The band holds 95 % of the exponents of matrices of the same shape that
    learned nothing. A mark's shape and colour show the verdict by the likelihood of the whole spectrum.
    """
    held = {name: group for name, group in _groups_of_signal(tree).items() if "tail_verdict" in group}
    if what not in held:
        raise ParameterError("what", what, f"one of {', '.join(held)}, of a tree of signal and noise with heavy tails")
    group = held[what]
    of = "component" if what == _MATRICES else "head"
    x, verdict = _places_in_layers(group, of), group["tail_verdict"].values
    exponent, low, high = (
        group[name].values for name in ("power_law_exponent", "null_exponent_low", "null_exponent_high")
    )
    there = np.isfinite(exponent)
    half = 0.5 * _BAND / max(group.sizes[of], 1)
    for k, at in enumerate(np.argwhere(there)):
        place, ends = x[tuple(at)], (low[tuple(at)], high[tuple(at)])
        ax.fill_between(
            [place - half, place + half], *ends, color=theme.null, alpha=0.35, linewidth=0.0,
            label="95 % of noise" if k == 0 else None,
        )  # fmt: skip
    colours = (theme.muted, *theme.series, theme.text)
    for k, name in enumerate(VERDICTS):
        own = there & (verdict == name)
        if own.any():
            ax.plot(
                x[own], exponent[own], linestyle="none", marker=(*MARKERS, "x")[k], markersize=4.2,
                label=VERDICTS[name],
                color=colours[k % len(colours)],
            )  # fmt: skip
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_ylabel("exponent of the power law fitted")
    untested = group["sigma"].notnull().values & ~there
    cross_at_foot(ax, x[untested], theme)
    heavier = int((group["exponent_p_value"].values[there] <= float(tree.attrs["level"])).sum())
    said = f"heavier tails than chance makes in {heavier} of {int(there.sum())} {_spectra_of(what)}"
    if untested.any():
        said = (
            f"{said}; {int(untested.sum())} {NOT_TESTABLE}"
            if there.any()
            else f"none of {untested.sum()} can be tested"
        )
    return _finished_by_layer(ax, group, what, said, theme, legend)


def figure_recipes(tree: xr.DataTree, style: FigureStyle) -> dict[str, FigureRecipe]:
    """Map the name of each figure of signal and noise to its recipe: each circuit, and whole matrices."""
    held = _groups_of_signal(tree)
    directions = {
        f"directions-{what}": FigureRecipe(Single(learned_directions, style, tree, what=what)) for what in held
    }
    tails = {
        f"tails-{what}": FigureRecipe(Single(tail_exponents, style, tree, what=what))
        for what, group in held.items()
        if "tail_verdict" in group
    }
    return directions | tails
