"""Figure of the twins: the Weibull shape of every component along training, seeds as bands."""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

from rmtbase.laws import element_null

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#555555")  # Okabe and Ito's, and grey
STYLES = ("-", "--", "-.", (0, (1, 1)), "-")
TITLES = {
    "attention_query": r"queries, $W_Q$",
    "attention_key": r"keys, $W_K$",
    "attention_value": r"values, $W_V$",
    "attention_output": r"attention output, $W_O$",
    "mlp_in": "MLP, in",
    "mlp_out": "MLP, out",
}
ELEMENTS = {  # of the smallest matrix of any group, whose band is the widest
    "attention_query": 128 * 128, "attention_key": 64 * 128, "attention_value": 64 * 128,
    "attention_output": 128 * 128, "mlp_in": 320 * 128, "mlp_out": 128 * 320,
}  # fmt: skip
LAYERS = 4


def null_band(elements: int) -> tuple[float, float]:
    """Interval that holds 95 % of medians of k̂ over the layers of untrained matrices of this size: 40 000 draws."""
    null = element_null("weibull_shape", elements)
    draws = np.random.default_rng(0).normal(null.mean(), null.std(), (40_000, LAYERS))
    low, high = np.quantile(np.median(draws, axis=1), [0.025, 0.975])
    return float(low), float(high)


def draw(comparison: xr.DataTree, path: Path) -> None:
    """Draw a panel for each component, step against k̂: the mean of each group over seeds, and all seeds as a band."""
    members = comparison["along/members"].to_dataset()
    steps, group_of = members["step"].values, members["group_of"].values
    groups = list(dict.fromkeys(group_of.tolist()))
    fig, axes = plt.subplots(2, 3, figsize=(10.5, 6.0), sharex=True, sharey=True, layout="constrained")
    for ax, (component, title) in zip(axes.flat, TITLES.items(), strict=True):
        shapes = members["value"].sel(measure=f"{component} weibull_shape").transpose("model", "step").values
        ax.axhspan(*null_band(ELEMENTS[component]), color="0.88", lw=0, label="untrained, 95 %")
        for name, colour, style in zip(groups, COLOURS, STYLES, strict=True):
            own = shapes[group_of == name]
            ax.fill_between(steps, own.min(axis=0), own.max(axis=0), color=colour, alpha=0.18, lw=0)
            ax.plot(steps, own.mean(axis=0), color=colour, ls=style, lw=1.6, label=name)
        ax.set_title(title, fontsize=10, loc="left")
        ax.set_xscale("symlog", linthresh=10, linscale=0.6)
        ax.set_xlim(0, steps[-1])
        ax.set_xticks([0, 10, 100, 1000], ["0", "10", "100", "1000"])
        ax.minorticks_off()
    for ax in axes[:, 0]:
        ax.set_ylabel(r"median Weibull shape $\hat k$")
    for ax in axes[-1]:
        ax.set_xlabel("step")
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=6, frameon=False, fontsize=9)
    fig.savefig(path, dpi=150, metadata={"Software": None})
    plt.close(fig)
