"""Recipe ``post2``: the spectra of one model's heads, post 2's figures 2-12, on eigenvalues and on singular values."""

from collections.abc import Mapping

import xarray as xr
from matplotlib.figure import Figure as Drawing

from rmtbase.drawing.theme import LIGHT
from rmtbase.results.figures import figures
from studies.sources.manifests import Needs
from studies.sources.post2_drawing import average_of_layers, densities_of_all, ranks_of_all, two_heads
from studies.sources.post2_rows import PUBLISHED_CONDITION, exponents, rows
from studies.sources.recipe import Figure, Result, Run
from studies.sources.statements import CONVENTIONS, beside_random, by_place, scored

GPT2 = Needs("post2", ("openai-community/gpt2",), here="of the demo")
COVERS = {f"post 2, figure {number}": GPT2 for number in range(2, 13)}
PUBLISHED_HEADS = ((7, 6), (1, 0))
"""Of GPT-2: the head that the caption of figure 2 calls MP-like, and the outlier."""
_AVERAGE = "Dashed red: the average of each layer, as in the post; black: its median."


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
    _averages(tree, {one: drawn[one] for one in names if one.startswith("by-layer-")})
    is_gpt2 = run.is_of("gpt2")
    if is_gpt2:
        for ax in condition.axes:
            ax.axhline(PUBLISHED_CONDITION, color=LIGHT.naive, ls="-.")
    published = " Dash-dotted: the published κ ~ 4." if is_gpt2 else ""
    which = "those of the caption" if is_gpt2 else "the nearest to the null and the farthest from it"
    both = "left of eigenvalues λ, right of singular values s, each with its own null."
    fits = {name: ", ".join(f"{of} {fit}" for of, fit, _ in exponents(tree, name)) for name, _ in CONVENTIONS}
    made = (
        ("02", two_heads(tree, PUBLISHED_HEADS if is_gpt2 else None),
         f"Spectra of two heads, {which}: the MP-like one blue, the outlier red, as in the post's caption. Above as "
         "published: all d eigenvalues, of which d − h are zero, behind a kink at h, on linear axes, and "
         "their density, logarithmic, with a peak at 0. Below: without zeros, by rank, and the density of ln λ, each "
         "with its null (1–99 %, and what is expected of each bin)."),
        ("03", ranks_of_all(tree), "Eigenvalues of every head by index: left as published, on a logarithmic colour "
         "scale, zeros grey behind h; middle over the mean of all, the null on top; right over the null's median of "
         "that rank, at the head's σ."),
        ("04", densities_of_all(tree), "Density of the eigenvalues of every head: left as published, on a linear axis "
         "with the d − h zeros, whose bin (black) is off the colour scale; the last bin has all beyond the 99 % "
         "quantile; right the density of ln λ without zeros, the null on top."),
        ("05", ranks, "Eigenvalues by rank of every head of the first layer, and what each rank is of random heads of "
         "its σ."),
        ("06", densities, "Density of ln λ of every head of the first layer, in bins that all share, with what the "
         "null expects of each bin."),
        ("07", leading, "Leading eigenvalue: left as it is, each head with its own null; right over that null's mean. "
         f"{_AVERAGE}"),
        ("08", ratio, f"Normalized participation ratio: {both} {_AVERAGE}"),
        ("09", entropy, f"Spectral entropy: {both} {_AVERAGE}"),
        ("10", condition, f"Condition number, on log scales: {both} {_AVERAGE}{published}"),
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


def _averages(tree: xr.DataTree, drawn: Mapping[str, Drawing]) -> None:
    """Draw the layer averages of figures 7 to 10, on both conventions; condition numbers are on a log scale, always."""
    heads = tree["heads"].to_dataset().transpose("layer", "head", ...)
    for name, figure in drawn.items():
        statistic = name.removeprefix("by-layer-").replace("-", "_")
        value, mean = (heads[one].sel(statistic=statistic).values for one in ("observed", "null_mean"))
        singular = f"{statistic}_singular"
        if singular in heads["statistic"].values:
            beside = heads["observed"].sel(statistic=singular).values
        else:
            beside = value / mean  # of the leading eigenvalue: over its null's mean
        for ax, own in zip(figure.axes, (value, beside), strict=True):
            average_of_layers(ax, own, statistic == "condition_number")
