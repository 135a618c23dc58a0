"""Recipe ``post1``: the elements of one model's heads, post 1's figures 5-11 and 14-20, and table 1."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator

from rmtbase.drawing.theme import LIGHT
from rmtbase.models import known_models
from rmtbase.results.figures import figures
from rmtbase.results.scores.figures._element_histograms import head_density_heatmap
from rmtbase.results.scores.figures._statistic_scatter import statistic_scatter
from studies.sources.corner import SAID, moment_corner
from studies.sources.drawing import MARKERS, canvas, legend_below, titled
from studies.sources.first_principles import known_name
from studies.sources.heads import Heads
from studies.sources.manifests import Needs, models_of
from studies.sources.post1_rows import BOTH, fitted_by_histogram, rows
from studies.sources.published import published_table
from studies.sources.recipe import Figure, Result, Run, Table
from studies.sources.statements import beside_random, by_place, entropy_of_product, measured, of_elements, scored

MODELS = {
    **dict.fromkeys((5, 6, 7, 8, 10, 11, 16, 17), "gpt2"),
    9: "gpt2-xl",
    **dict.fromkeys((14, 15, 18, 19), "all models: recipe cross"),
    20: "llama-3.1-8b",
}
"""The model that a figure of the post is of, by its number."""
OF_ALL = Needs(
    "cross", models_of("posts"), "the 14 models of post 1's table 1", "of the demo along its training", "set:post1"
)
OF_TWO = Needs("cross", ("meta-llama/Llama-3.1-8B", "mistralai/Mistral-7B-v0.3"), here="of the demo")
COVERS = {
    **{
        f"post 1, figure {number}": Needs("post1", (f"openai-community/{one}",), here="of the demo")
        for number, one in MODELS.items()
        if "gpt2" in one
    },
    **{f"post 1, figure {number}": OF_ALL for number, one in MODELS.items() if "all" in one},
    "post 1, figure 20": OF_TWO,
    "post 1, table 1": "done",
}
_PRINTED = published_table("post-1-table-1")
PUBLISHED_TABLE = {
    known_name(label): tuple(int(_PRINTED.number(label, size)) for size in ("d_model", "n_heads", "d_head", "layers"))
    for label in _PRINTED.labels
}
"""Table 1: d, n_h, d_h and layers as printed, by the name of the known model."""
NOTHING = (
    "Of no head of {} do the elements have all statistics of post 1: there are too few, or too few values of them."
)
_ROW = 0.05  # inches of a head's row in a map


def make(run: Run) -> Result:
    tree = scored(run)
    if not all(measured(tree, component)[1].any() for component in BOTH):
        return Result(tables=(table_1(),), summary=(NOTHING.format(run.label),))
    return Result(_figures(tree, run.label), by_place(rows(run, beside_random(run, tree))), (table_1(),))


def table_1() -> Table:
    """Compare the sizes printed in table 1 with those of rmtbase's known models."""
    known = {one.name: one for one in known_models()}
    lines = []
    for name, printed in PUBLISHED_TABLE.items():
        one = known.get(name)
        found = None if one is None else (one.d_model, one.n_heads, one.d_head, one.n_layers)
        said = "not among the known models" if found is None else "agrees" if found == printed else "differs"
        heads = None if one is None else one.n_key_heads
        lines.append((name, *printed, heads, said))
    return Table(
        "post1-table-1",
        ("model", "d", "n_h", "d_h", "layers", "key heads (ours)", "against ours"),
        tuple(lines),
        "Sizes as printed. Key heads are of the published configurations; the last column compares the four sizes.",
        "post 1, table 1",
    )


def _figures(tree: xr.DataTree, label: str) -> tuple[Figure, ...]:
    there = of_elements(tree, "sigma", "W_Q").layer.min()  # the first layer whose heads are not all zeros
    layer = int(tree["heads"].to_dataset()["layer"].values[there])
    names = (
        f"head-densities-W_Q-{layer}-weights", f"head-densities-W_Q-{layer}", "width-and-entropy-W_Q",
        f"head-densities-W_QK-{layer}", "width-and-divergence-W_Q", "width-and-divergence-W_QK",
    )  # fmt: skip
    drawn = figures(tree, names=names)
    weights, query, entropy, product, *divergence = (drawn[name] for name in names)
    ends = [figure.axes[-1].get_ylim() for figure in divergence]
    for figure in divergence:
        figure.axes[-1].set_ylim(min(low for low, _ in ends), max(high for _, high in ends))
    whole = "Left: over the spread of all heads, so that widths show; right: over its own, so that shapes do."
    beside = (
        "σ of each head, of the normal law fitted to its core, and the divergence from the normal law of its σ, with "
        "95 % of random heads. The estimate has no bias, so may be below zero. One right axis in figures 16 and 17."
    )
    made = (
        (5, weights, "W_Q of every head of the first layer on the same axes; dashed: the normal law of each head's σ, "
         "and what holds 95 % of random heads of that σ in each bin."),
        (6, query, "The same in units of each head's σ, logarithmic: the normal law is one curve in all panels."),
        (7, _map(tree, "W_Q"), f"W_Q of all heads, a row for each, the null on top. {whole}"),
        (8, entropy, "σ and differential entropy of W_Q. The right axis is the entropy of a normal law of the σ to "
         "its left: where the marks lie on each other the elements are normal."),
        (9, _smooth(tree), "The same of every head, and averaged over each layer, with the standard deviation of its "
         "heads (bars): whether both rise again towards the output."),
        (10, product, "W_QK of every head of the first layer in units of its σ, with the exact law of an element of a "
         "random product, which is not normal."),
        (11, _map(tree, "W_QK"), f"W_QK of all heads, a row for each, the null on top. {whole}"),
        (14, _pair(tree, "entropy"), "Differential entropy against σ of every head, with the normal law's and, of "
         "W_QK, that of a random product at (768, 64), as the post has it: 1.7·10⁻⁴ nats below."),
        (15, _pair(tree, "entropy_residual"), "Entropy less the normal law's of the same σ, with 95 % of random heads. "
         "It is never positive but for the error of the estimate. Both panels have one axis."),
        (16, divergence[0], f"W_Q: {beside}"),
        (17, divergence[1], f"W_QK: {beside}"),
        (18, widths(tree), "Three fitted widths of each head. Maximum likelihood is σ itself; least squares on a "
         "histogram; the core, by the middle of the normal plot, with 95 % of random heads. Below: squares over σ², "
         "less 1, where the null is free of scale."),
        (19, _pair(tree, "kl_matched_normal"), "Divergence from the normal law of the same σ against σ, with 95 % of "
         "random heads."),
        (20, moment_corner([Heads(label, tree)]), f"First four moments of the elements of W_QK of every head. {SAID}"),
    )  # fmt: skip
    return tuple(
        Figure(f"post1-figure-{number:02}", figure, caption, f"post 1, figure {number}")
        for number, figure, caption in made
    )


def _map(tree: xr.DataTree, component: str) -> Drawing:
    """Draw the density of the elements of every head, in both units."""
    number = of_elements(tree, "sigma", component).value.size
    figure, ((left, right),) = canvas(1, 2, 10.0, float(np.clip(1.6 + _ROW * number, 3.4, 9.0)))
    head_density_heatmap(tree, component, "weight", ax=left, legend=False)
    head_density_heatmap(tree, component, "spread", ax=right)
    return figure


def _pair(tree: xr.DataTree, statistic: str) -> Drawing:
    """Draw one statistic against σ, for W_Q and for W_QK."""
    figure, (axes,) = canvas(1, 2, 10.0, 3.8, sharey=statistic != "entropy")
    for ax, component in zip(axes, BOTH, strict=True):
        statistic_scatter(tree, "sigma", statistic, component, ax=ax, legend=False)
    if statistic != "entropy":
        axes[1].set_ylabel("")
    else:
        x = np.linspace(*axes[1].get_xlim(), 200)
        axes[1].plot(x, entropy_of_product(x), color=LIGHT.flagged, ls="--", lw=1.0, label="random product (768, 64)")
        axes[1].set_xlim(x[0], x[-1])
    legend_below(figure, list(axes))
    return figure


def _smooth(tree: xr.DataTree) -> Drawing:
    """σ and entropy of W_Q of each head, and averaged over each layer."""
    figure, (axes,) = canvas(1, 2, 10.0, 3.4)
    sigma = of_elements(tree, "sigma", "W_Q")
    entropy = of_elements(tree, "entropy", "W_Q")
    for ax, one, name, colour in (
        (axes[0], sigma, r"$\sigma$ of $W_Q$", LIGHT.observed),
        (axes[1], entropy, "entropy $S$ (nats)", LIGHT.flagged),
    ):
        layers = np.unique(one.layer)
        for layer in layers:
            own = one.value[one.layer == layer]
            x = layer + np.linspace(-0.35, 0.35, own.size + 2)[1:-1]
            words = "each head" if layer == layers[0] else ""
            ax.plot(x, own, "o", color=colour, ms=2.5, mfc="none", mew=0.7, alpha=0.7, label=words)
        spread = [one.value[one.layer == layer].std() for layer in layers]
        label = "mean and standard deviation of a layer's heads"
        ax.errorbar(layers, one.by_layer(), spread, color=colour, marker="o", ms=4, lw=1.2, elinewidth=0.8, label=label)
        if one is entropy:
            normal = 0.5 * np.log(2 * np.pi * np.e * sigma.by_layer() ** 2)
            ax.plot(layers, normal, color=LIGHT.null, ls="--", label="normal law of the mean σ")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        titled(ax, "", "layer", name)
    legend_below(figure, list(axes))
    return figure


def widths(tree: xr.DataTree) -> Drawing:
    """Draw the three fitted widths against σ, and their relative deviations."""
    figure, grid = canvas(2, 2, 10.0, 3.3, sharex="col", sharey="row")
    for column, component in enumerate(BOTH):
        sigma, core = (of_elements(tree, name, component) for name in ("sigma", "core_sigma"))
        kinds: tuple[tuple[str, np.ndarray, str], ...] = (
            ("maximum likelihood", np.ones_like(sigma.value), LIGHT.null),
            ("histogram", fitted_by_histogram(tree, component).value, LIGHT.series[1]),
            ("core", core.value, LIGHT.series[2]),
        )
        top, bottom = grid[0, column], grid[1, column]
        ends = np.array([sigma.value.min(), sigma.value.max()])
        top.plot(ends, ends, color=LIGHT.muted, lw=1.0, label=r"$\sigma_\mathrm{fit} = \sigma$")
        null = core.null()
        if null is not None and null.low is not None and null.high is not None:
            bottom.axhspan(null.low**2 - 1.0, null.high**2 - 1.0, color=LIGHT.null, alpha=0.28, lw=0,
                           label="null of the core, 95 %")  # fmt: skip
        for (name, ratio, colour), marker in zip(kinds, MARKERS, strict=False):
            style = {"ls": "none", "marker": marker, "ms": 4, "color": colour, "mfc": "none", "label": name}
            top.plot(sigma.value, ratio * sigma.value, **style)
            bottom.plot(sigma.value, ratio**2 - 1.0, **style)
        titled(top, f"${component[0]}_{{{component[2:]}}}$", "", r"$\sigma_\mathrm{fit}$" if not column else "")
        words = r"$\sigma_\mathrm{fit}^2/\sigma^2 - 1$" if not column else ""
        titled(bottom, "", r"$\sigma$ of the elements", words)
        bottom.xaxis.set_major_locator(MaxNLocator(5))
    legend_below(figure, list(grid.flat))
    return figure
