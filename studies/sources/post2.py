"""Recipe ``post2``: the spectra of one model's heads, post 2's figures 2-12, on eigenvalues and on singular values."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure as Drawing

from rmtbase.drawing.theme import LIGHT
from rmtbase.results.figures import figures
from rmtbase.results.scores.figures._eigenvalues import eigenvalue_density_heatmap, eigenvalue_heatmap
from rmtbase.results.scores.figures._head_spectra import head_spectra
from rmtbase.tables import heads_present
from studies.sources.drawing import canvas, titled
from studies.sources.manifests import Needs
from studies.sources.post2_rows import PUBLISHED_CONDITION, exponents, rows
from studies.sources.recipe import Figure, Result, Run
from studies.sources.statements import CONVENTIONS, beside_random, by_place, scored

GPT2 = Needs("post2", ("openai-community/gpt2",), here="of the demo")
COVERS = {f"post 2, figure {number}": GPT2 for number in range(2, 13)}
PUBLISHED_HEADS = ((7, 6), (1, 0))
"""Of GPT-2: the head that the caption of figure 2 calls MP-like, and the outlier."""
_ROW = 0.05  # inches of a head's row in a map


def make(run: Run) -> Result:
    tree = scored(run)
    return Result(_figures(run, tree), by_place(rows(run, beside_random(run, tree))))


def _figures(run: Run, tree: xr.DataTree) -> tuple[Figure, ...]:
    layer = int(tree["heads"].to_dataset()["layer"].values[0])
    names = (
        f"head-eigenvalues-{layer}", f"head-eigenvalue-densities-{layer}", "by-layer-largest-eigenvalue",
        "by-layer-normalized-participation-ratio", "by-layer-spectral-entropy", "by-layer-condition-number",
        "scatter-participation-entropy", "spectrum-and-width", "spectrum-and-width-singular",
    )  # fmt: skip
    drawn = figures(tree, names=names)
    ranks, densities, leading, ratio, entropy, condition, shapes, eigenvalues, singular = (drawn[one] for one in names)
    is_gpt2 = run.is_of("gpt2")
    if is_gpt2:
        for ax in condition.axes:
            ax.axhline(PUBLISHED_CONDITION, color=LIGHT.naive, ls="--")
    published = " Dashed: the published κ ~ 4." if is_gpt2 else ""
    which = "those of the caption" if is_gpt2 else "the nearest to the null and the farthest from it"
    both = "left of eigenvalues λ, right of singular values s, each with its own null."
    fits = {name: ", ".join(f"{of} {fit}" for of, fit, _ in exponents(tree, name)) for name, _ in CONVENTIONS}
    made = (
        ("02", head_spectra(tree, PUBLISHED_HEADS if is_gpt2 else None),
         f"Spectra of two heads, {which}: by rank, and the density of ln λ, each with its own null."),
        ("03", _ranks(tree), "Eigenvalues of every head by rank: left over the mean of all, the null on top; right "
         "over the null's median of that rank, at the head's σ."),
        ("04", _densities(tree), "Density of ln λ of every head, the null on top. Zeros of the rank are left out."),
        ("05", ranks, "Eigenvalues by rank of every head of the first layer, and what each rank is of random heads of "
         "its σ."),
        ("06", densities, "Density of ln λ of every head of the first layer, in bins that all share, with what the "
         "null expects of each bin."),
        ("07", leading, "Leading eigenvalue: left as it is, each head with its own null; right over that null's mean."),
        ("08", ratio, f"Normalized participation ratio: {both}"),
        ("09", entropy, f"Spectral entropy: {both}"),
        ("10", condition, f"Condition number: {both}{published}"),
        ("11", shapes, "Spectral entropy against normalized participation ratio, layers by colour: left of λ, right of "
         "s. The cross is the null."),
        ("12", eigenvalues, "Eigenvalues, as post 2 defines λ, against σ. Exponents of σ fitted: "
         f"{fits['λ']}; of random heads 2, 2, 4. The entropy has no scale."),
        ("12-singular", singular, "Singular values, which the caption's exponents are of. Fitted: "
         f"{fits['s']}; of random heads 1, 1, 2."),
    )  # fmt: skip
    return tuple(
        Figure(f"post2-figure-{number}", figure, caption, f"post 2, figure {int(number[:2])}")
        for number, figure, caption in made
    )


def _height(tree: xr.DataTree) -> float:
    """Height of a map with a row for each head, in inches."""
    return float(np.clip(1.6 + _ROW * heads_present(tree["heads"].to_dataset()).sum(), 3.4, 9.0))


def _ranks(tree: xr.DataTree) -> Drawing:
    """Every head's eigenvalues by rank, over the mean of all and over the null."""
    figure, (axes,) = canvas(1, 2, 11.0, _height(tree))
    for ax, over, title in zip(
        axes, ("mean", "null"), ("the mean of all", "the null's median at its rank"), strict=True
    ):
        eigenvalue_heatmap(tree, over, ax=ax)
        titled(ax, f"over {title}", ax.get_xlabel(), ax.get_ylabel())
    return figure


def _densities(tree: xr.DataTree) -> Drawing:
    """Draw the density of every head's eigenvalues."""
    figure, ((ax,),) = canvas(1, 1, 8.0, _height(tree))
    eigenvalue_density_heatmap(tree, ax=ax)
    return figure
