"""Figures of signal and noise: learned directions, and exponents of heavy tails if these were computed."""

from __future__ import annotations

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from rmtbase.drawing.axes import MARKERS, NOT_TESTABLE, Around, cross_at_foot, panel
from rmtbase.drawing.layout import FigureRecipe, Single
from rmtbase.drawing.texts import literal
from rmtbase.drawing.theme import Theme
from rmtbase.reasons import Reason
from rmtbase.results.signal.schema import VERDICTS
from rmtbase.tables import CIRCUITS

__all__ = ["figure_recipes"]

_MATRICES = "matrices"
_BAND = 0.6  # part of a layer's width that its spectra share


@panel
def learned_directions(ax: Axes, theme: Theme, tree: xr.DataTree, subject: str) -> Around:
    """Draw the strength of every learned direction with its limits, layer by layer, over the threshold."""
    group = _groups_of_signal(tree)[subject]
    unit = group["threshold"].values[..., None]
    height, low, high = (group[name].values / unit for name in ("strength", "strength_low", "strength_high"))
    floor = (group["noise_floor"].values != 0)[..., None] & np.isfinite(height)
    by_law = bool(group["noise_floor"].notnull().any())  # the null of sign flips does not test the floor
    x = _places_in_layers(group)
    at = x[..., None] + np.zeros(height.shape)
    for shown, colour, label in (
        (np.isfinite(height) & ~floor, theme.null, "the rest is not noise"),
        (floor, theme.observed, "the rest is noise" if by_law else "learned directions"),
    ):
        if shown.any():
            ax.vlines(at[shown], np.maximum(low[shown], 1e-3), high[shown], color=colour, linewidth=0.8, alpha=0.6)
            ax.plot(at[shown], height[shown], linestyle="none", marker="o", markersize=2.8, color=colour, label=label)
    ax.axhline(1.0, color=theme.muted, linewidth=0.8, linestyle="--", label="threshold")
    ax.set_yscale("log")
    ax.set_ylim(bottom=0.5)
    tested, reasons = group["first_p_value"].notnull().values, group["no_number"].values
    untested, unknown = group["sigma"].notnull().values & ~tested, reasons != ""
    cross_at_foot(ax, x[untested], theme)
    if unknown.any():
        ax.plot(
            x[unknown], np.full(int(unknown.sum()), 0.97), transform=ax.get_xaxis_transform(), linestyle="none",
            marker="^", markersize=3.5, markerfacecolor="none", color=theme.observed, label="no number",
        )  # fmt: skip
    if not np.isfinite(height).any():
        ax.set_ylim(top=max(ax.get_ylim()[1], 2.0))
    lines, noun, numbered = [], _spectra_of(subject), group["n_directions"].notnull().values
    if numbered.any():
        number, rest_is_noise = (group[name].values[numbered] for name in ("n_directions", "noise_floor"))
        testable, with_number = "testable " * bool(untested.any()), " with a number" * bool(unknown.any())
        lines.append(f"learned directions in {(number > 0).sum()} of {numbered.sum()} {testable}{noun}{with_number}")
        if not np.isnan(rest_is_noise).all():
            lines[0] += f"; in {(rest_is_noise == 0).sum()} the rest is not noise"
    if unknown.any():
        why = "; ".join(Reason(reason).words for reason in dict.fromkeys(reasons[unknown].tolist()))
        lines.append(f"{unknown.sum()} of {tested.sum()} {noun} have no number: {why}")
    if untested.any() and tested.any():
        lines.append(f"{untested.sum()} of {untested.sum() + tested.sum()} {noun} {NOT_TESTABLE}")
    elif untested.any():
        lines.append(f"none of {untested.sum()} {noun} can be tested")
    return Around(_title(group, subject, lines), y="strength of directions / threshold", layers=group)


def _groups_of_signal(tree: xr.DataTree) -> dict[str, xr.Dataset]:
    circuits = tree.children["circuits"].children if "circuits" in tree.children else {}
    groups = {name: circuits[name]["heads"].to_dataset() for name in CIRCUITS if name in circuits}
    return groups | ({_MATRICES: tree[_MATRICES].to_dataset()} if _MATRICES in tree.children else {})


def _places_in_layers(group: xr.Dataset) -> Float[np.ndarray, "layer spectrum"]:
    layers, count = group["sigma"].shape
    offset = np.linspace(-0.3, 0.3, count) if count > 1 else np.zeros(1)
    return np.arange(layers)[:, None] + offset


def _spectra_of(subject: str) -> str:
    return "matrices" if subject == _MATRICES else f"{CIRCUITS[subject].noun}s"


def _title(group: xr.Dataset, subject: str, lines: list[str]) -> str:
    if subject != _MATRICES:
        return "\n".join([f"${CIRCUITS[subject].latex}$", *(lines or [""])])
    names = ", ".join(map(literal, group["component"].values.tolist()))
    return "\n".join(["whole matrices", *(lines or [""]), f"of a layer from left to right {names}"])


@panel
def tail_exponents(ax: Axes, theme: Theme, tree: xr.DataTree, subject: str) -> Around:
    """Draw the exponent of the power law fitted to every spectrum with its verdict, over 95 % of those of noise."""
    group = _groups_of_signal(tree)[subject]
    x, verdict = _places_in_layers(group), group["tail_verdict"].values
    exponent, low, high = (
        group[name].values for name in ("power_law_exponent", "null_exponent_low", "null_exponent_high")
    )
    fitted = np.isfinite(exponent)
    half = 0.5 * _BAND / max(x.shape[1], 1)
    label = "95 % of noise"
    for place, *ends in zip(x[fitted], low[fitted], high[fitted], strict=True):
        ax.fill_between([place - half, place + half], *ends, color=theme.null, alpha=0.35, linewidth=0.0, label=label)
        label = ""
    colours = (theme.muted, *theme.series, theme.text)
    for k, name in enumerate(VERDICTS):
        marks: Bool[np.ndarray, "layer spectrum"] = fitted & (verdict == name)
        if marks.any():
            look = {"marker": (*MARKERS, "x")[k], "markersize": 4.2, "color": colours[k % len(colours)]}
            ax.plot(x[marks], exponent[marks], linestyle="none", label=VERDICTS[name], **look)
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_locator(NullLocator())
    untested = group["sigma"].notnull().values & ~fitted
    cross_at_foot(ax, x[untested], theme)
    heavier = int((group["exponent_p_value"].values[fitted] <= float(tree.attrs["level"])).sum())
    words = f"heavier tails than chance makes in {heavier} of {int(fitted.sum())} {_spectra_of(subject)}"
    if untested.any():
        few = f"{words}; {untested.sum()} {NOT_TESTABLE}"
        words = few if fitted.any() else f"none of {untested.sum()} can be tested"
    return Around(_title(group, subject, [words]), y="exponent of the power law fitted", layers=group)


def figure_recipes(tree: xr.DataTree) -> dict[str, FigureRecipe]:
    """Map the name of each figure of signal and noise to its recipe: each circuit, and whole matrices."""
    groups = _groups_of_signal(tree)
    tails = [subject for subject, group in groups.items() if "tail_verdict" in group]
    figures = [("directions", learned_directions, list(groups)), ("tails", tail_exponents, tails)]
    return {
        f"{name}-{subject}": Single(plot, tree, {"subject": subject})
        for name, plot, subjects in figures
        for subject in subjects
    }
