"""Figures, drawn from the results only."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy import special, stats

from rmtbase.drawing.theme import LIGHT
from tables import Record, RowDict, exact_scores

GAMMAS = (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64)
HEADS = (16, 32, 64, 128, 256)
LAWS = {
    "first order": ("first order: edge + scale TW₁", LIGHT.naive, "s", ":"),
    "first order, half-shift": ("first order, dimensions − ½", LIGHT.series[3], "^", "--"),
    "grid": ("second order: rmtbase", LIGHT.free_law, "o", "-"),
}
EDGES = {"largest_eigenvalue": "λ_max", "smallest_eigenvalue": "λ_min"}
MARKERS = ("o", "s", "^", "D", "v")


def draw_all(record: Record, folder: Path) -> None:
    """Draw every figure whose section is there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (section, draw) in FIGURES.items():
        if section in record["sections"]:
            figure = draw(record)
            figure.savefig(folder / f"{name}.png", dpi=130, facecolor=LIGHT.surface, metadata={"Software": None})
            plt.close(figure)


def _panels(rows: int, columns: int, width: float, height: float, **shared: Any) -> tuple[Figure, np.ndarray]:
    figure, axes = plt.subplots(rows, columns, figsize=(width, height), layout="constrained", squeeze=False, **shared)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(LIGHT.muted)
        ax.tick_params(which="both", colors=LIGHT.muted, labelsize=8.5)
        ax.grid(color=LIGHT.grid, linewidth=0.6)
        ax.set_axisbelow(True)
    return figure, axes


def _legend(figure: Figure, ax: Axes, columns: int) -> None:
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)


def _band(ax: Axes, low: float, high: float, label: str | None = None) -> None:
    ax.axhspan(low, high, color=LIGHT.null, alpha=0.18, lw=0, label=label)


def extreme_eigenvalues(record: Record) -> Figure:
    """Errors of mean and standard deviation of both extreme eigenvalues: three laws over the grid."""
    rows = record["sections"]["heads"]["rows"]
    figure, axes = _panels(4, len(GAMMAS), 12.5, 9.6, sharex=True, sharey="row")
    for which, (statistic, symbol) in enumerate(EDGES.items()):
        for part, (of, key, limit) in enumerate((("mean", "deviation", 0.05), ("std", "ratio", 0.03))):
            line = axes[2 * which + part]
            for ax, gamma in zip(line, GAMMAS, strict=True):
                centre = 1.0 if part else 0.0
                _band(ax, centre - limit, centre + limit, "asked for: 0.05 standard deviations, 3 %")
                for group, (label, colour, marker, dashes) in LAWS.items():
                    points = sorted(
                        (row["parameters"]["d_head"], row[key])
                        for row in rows
                        if (row["quantity"], row["of"], row.get("group")) == (statistic, of, group)
                        and row["parameters"]["d_head"] == gamma * row["parameters"]["d_model"]
                        and not row["parameters"]["self_normalized"]
                    )
                    if points:
                        ax.plot(*zip(*points, strict=True), marker=marker, ls=dashes, ms=4, color=colour, label=label)
                ax.set_xscale("log", base=2)
                ax.set_xlim(12, 340)
                ax.set_xticks(HEADS, [str(h) for h in HEADS])
                ax.minorticks_off()
                ax.set_ylim((0.83, 1.43) if part else (-0.33, 0.23))
            line[0].set_ylabel(
                f"{symbol}: sd ratio\nsimulation / law"
                if part
                else f"{symbol}: error of the mean\n(law − simulation) / sd",
                fontsize=9.5, color=LIGHT.text,
            )  # fmt: skip
    for ax, gamma in zip(axes[0], GAMMAS, strict=True):
        ax.set_title(f"d_head / d_model = 1/{round(1 / gamma)}", fontsize=10, color=LIGHT.text)
    for ax in axes[-1]:
        ax.set_xlabel("d_head", fontsize=9.5, color=LIGHT.text)
    _legend(figure, axes[0, 0], 4)
    return figure


def quantiles_and_tails(record: Record) -> Figure:
    """Quantile errors of every shape of the grid, and tail probabilities pooled over them."""
    rows = record["sections"]["heads"]["rows"]
    figure, axes = _panels(2, 2, 10.0, 7.6, sharey="row")
    for column, (statistic, symbol) in enumerate(EDGES.items()):
        _quantile_panel(axes[0, column], rows, statistic)
        axes[0, column].set_title(f"{symbol}, each shape of the grid", fontsize=10.5, color=LIGHT.text)
        _tail_panel(axes[1, column], rows, statistic)
        axes[1, column].set_title(
            f"{symbol}, upper tail, pooled over d_head / d_model", fontsize=10.5, color=LIGHT.text
        )
    axes[0, 0].set_ylabel("error of the quantile\n(law − simulation) / sd", fontsize=9.5)
    axes[1, 0].set_ylabel("tail probability\nsimulation / law, ± 1 standard error", fontsize=9.5)
    _legend(figure, axes[1, 0], 6)
    return figure


def _quantile_panel(ax: Axes, rows: list[RowDict], statistic: str) -> None:
    _band(ax, -0.1, 0.1)
    shapes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for row in rows:
        if row["quantity"] == statistic and row.get("group") == "grid" and row["of"].startswith("quantile"):
            parameters = row["parameters"]
            if not parameters["self_normalized"]:
                point = float(special.ndtri(float(row["of"].split()[1]))), row["deviation"]
                shapes.setdefault((parameters["d_model"], parameters["d_head"]), []).append(point)
    for (_, h), points in shapes.items():
        which = HEADS.index(h)
        ax.plot(
            *zip(*sorted(points), strict=True),
            color=LIGHT.series[which],
            marker=MARKERS[which],
            ms=3.5,
            lw=0.9,
            alpha=0.8,
        )
    probabilities = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)
    ax.set_xticks(special.ndtri(probabilities), ["1", "5", "25", "50", "75", "95", "99", "99.9"])
    ax.set_xlabel("quantile / %", fontsize=9.5)
    ax.set_ylim(-0.2, 0.2)


def _tail_panel(ax: Axes, rows: list[RowDict], statistic: str) -> None:
    _band(ax, 0.8, 1.2, "asked for")
    for which, h in enumerate(HEADS):
        found = [
            row for row in rows
            if row["quantity"] == statistic and row.get("group") == "pooled, grid" and row["of"].startswith("upper")
            and row["parameters"]["d_head"] == h and not row["parameters"]["self_normalized"]
        ]  # fmt: skip
        if found:
            x = [row["analytic"] * 10 ** (0.11 * (which - 2)) for row in found]
            errors = [row["standard_error"] / row["analytic"] for row in found]
            ax.errorbar(
                x, [row["ratio"] for row in found], errors, fmt=MARKERS[which], ms=5, capsize=2,
                color=LIGHT.series[which], label=f"d_head {h}",
            )  # fmt: skip
    ax.axhline(1.0, color=LIGHT.muted, lw=0.8)
    ax.set_xscale("log")
    ax.set_xlim(3e-2, 3e-5)
    ax.set_ylim(0.4, 1.6)
    ax.set_xlabel("tail probability of the law", fontsize=9.5)


def statistics_by_shape(record: Record) -> Figure:
    """Errors of mean and standard deviation of every statistic at every shape."""
    rows = [row for row in record["sections"]["heads"]["rows"] if row.get("group") in ("grid", "others")]
    shapes = sorted({(row["parameters"]["d_head"], row["parameters"]["d_model"]) for row in rows})
    names = dict.fromkeys((row["quantity"], row["parameters"]["self_normalized"]) for row in rows)
    labels = [name.replace("_", " ") + (", own scale" if own else "") for name, own in names]
    order = {key: index for index, key in enumerate(names)}
    figure, axes = _panels(2, 1, 12.5, 11.0, sharex=True)
    panels = (
        ("mean", "deviation", 0.0, (0.003, 0.01, 0.02, 0.05, 0.1), "error of the mean: (law − simulation) / sd"),
        ("std", "ratio", 1.0, (0.003, 0.005, 0.01, 0.02, 0.03), "standard deviation: simulation / law − 1"),
    )
    for ax, (of, key, centre, steps, title) in zip(axes[:, 0], panels, strict=True):
        grid = np.full((len(names), len(shapes)), np.nan)
        for row in rows:
            if row["of"] == of:
                parameters = row["parameters"]
                place = order[row["quantity"], parameters["self_normalized"]]
                grid[place, shapes.index((parameters["d_head"], parameters["d_model"]))] = row[key] - centre
        levels = [*(-step for step in reversed(steps)), *steps]
        middle, reach = len(LIGHT.diverging) // 2, len(steps)
        colours = [
            LIGHT.diverging[0], *LIGHT.diverging[middle - reach + 1 : middle + reach], LIGHT.diverging[-1]
        ]  # fmt: skip
        ends = 2.0 * levels[-1]
        norm = BoundaryNorm([-ends, *levels, ends], len(levels) + 1)
        mesh = ax.imshow(
            np.clip(grid, -0.99 * ends, 0.99 * ends), cmap=ListedColormap(colours), norm=norm, aspect="auto",
            interpolation="nearest",
        )  # fmt: skip
        ax.set_yticks(range(len(names)), labels, fontsize=8.5)
        ax.set_xticks(range(len(shapes)), [f"{d}, {h}" for h, d in shapes], rotation=90, fontsize=8.5)
        ax.grid(False)
        ax.set_facecolor("#c9ced4")
        ax.set_title(title, fontsize=10.5, color=LIGHT.text)
        bar = figure.colorbar(mesh, ax=ax, ticks=levels, spacing="uniform", pad=0.01, fraction=0.03)
        bar.ax.set_yticklabels([f"{level:+g}" for level in levels], fontsize=8.5)
    axes[-1, 0].set_xlabel("d_model, d_head (grey: a hard lower edge, for which no law is offered)", fontsize=9.5)
    return figure


def exact_z(record: Record) -> Figure:
    """Z of every exact value beside the standard normal law."""
    z = exact_scores(record)
    figure, axes = _panels(1, 2, 10.0, 4.2)
    bins = np.arange(-5.0, 5.01, 0.25)
    ax = axes[0, 0]
    ax.hist(np.clip(z, -4.99, 4.99), bins, color=LIGHT.observed, alpha=0.55, label=f"{z.size} exact values")
    at = np.linspace(-5.0, 5.0, 300)
    ax.plot(at, z.size * 0.25 * stats.norm.pdf(at), color=LIGHT.text, lw=1.4, label="standard normal")
    ax.set_xlabel("z = (simulation − exact value) / standard error", fontsize=9.5)
    ax.set_ylabel("values per 0.25", fontsize=9.5)
    ax.legend(frameon=False, fontsize=9)
    ax = axes[0, 1]
    expected = special.ndtri((np.arange(z.size) + 0.5) / z.size)
    ax.plot([-4.5, 4.5], [-4.5, 4.5], color=LIGHT.text, lw=1.0, label="standard normal")
    ax.plot(expected, np.sort(z), ".", ms=4, color=LIGHT.observed, label="exact values")
    ax.set_xlim(-4.5, 4.5)
    ax.set_ylim(-4.5, 4.5)
    ax.set_aspect("equal")
    ax.set_xlabel("normal quantile", fontsize=9.5)
    ax.set_ylabel("ordered z", fontsize=9.5)
    ax.legend(frameon=False, fontsize=9)
    return figure


def chain_densities(record: Record) -> Figure:
    """Singular values of other chains, pooled, and their limiting laws."""
    curves = record["sections"]["chains"]["curves"]["densities"]
    columns = 3
    figure, axes = _panels(math.ceil(len(curves) / columns), columns, 11.0, 6.4, sharex=True, sharey=True)
    for ax, curve in zip(axes.flat, curves, strict=False):
        ax.stairs(curve["simulated"], curve["edges"], fill=True, color=LIGHT.null, alpha=0.45, label="simulated")
        ax.plot(curve["at"], curve["law"], color=LIGHT.free_law, lw=1.6, label="limiting law")
        ax.set_title(f"{curve['chain']} {tuple(curve['dims'])}", fontsize=9.5, color=LIGHT.text)
        ax.set_ylim(0.0, 3.2)
        ax.set_xlim(0.0, 1.25)
    for ax in axes[-1]:
        ax.set_xlabel("singular value / limiting upper edge", fontsize=9.5)
    for ax in axes[:, 0]:
        ax.set_ylabel("density", fontsize=9.5)
    _legend(figure, axes[0, 0], 2)
    return figure


def element_laws(record: Record) -> Figure:
    """Plot the density of one element, and the divergence estimated from one matrix."""
    curves = record["sections"]["elements"]["curves"]
    figure, axes = _panels(2, 4, 12.5, 6.6)
    for ax, curve in zip(axes[0], curves["densities"], strict=True):
        counts, edges = np.array(curve["counts"], dtype=float), np.array(curve["edges"])
        density = counts / curve["draws"] / np.diff(edges)
        seen = counts > 0
        ax.plot(
            (0.5 * (edges[1:] + edges[:-1]))[seen],
            density[seen],
            ".",
            ms=4,
            color=LIGHT.observed,
            label="simulated elements",
        )
        ax.plot(curve["x"], curve["law"], color=LIGHT.free_law, lw=1.5, label="law of one element")
        ax.plot(curve["x"], stats.norm.pdf(curve["x"]), color=LIGHT.naive, lw=1.2, ls="--", label="normal law")
        ax.set_yscale("log")
        ax.set_ylim(3e-8, 9.0)
        ax.set_xlim(-8.0, 8.0)
        ax.set_title(f"d_head = {curve['d_head']}", fontsize=10, color=LIGHT.text)
        ax.set_xlabel("element / standard deviation", fontsize=9.5)
    axes[0, 0].set_ylabel("density × standard deviation", fontsize=9.5)
    for ax, one in zip(axes[1], curves["divergences"], strict=False):
        edges = np.array(one["edges"])
        ax.stairs(np.array(one["counts"]) / one["draws"], edges, fill=True, color=LIGHT.observed, alpha=0.45,
                  label="simulated matrices")  # fmt: skip
        mass = np.diff(special.ndtr((edges - one["mean"]) / one["std"]))
        ax.stairs(mass, edges, color=LIGHT.free_law, lw=1.6, label="normal with the null's mean and sd")
        ax.axvline(one["kl_to_normal"], color=LIGHT.text, lw=1.2, ls=":", label="D_KL of the law itself")
        ax.axvline(one["kl_to_normal"] + one["bias"], color=LIGHT.naive, lw=1.2, ls="--", label="plus (bins − 1)/2N")
        ax.set_title(f"one matrix, d_model {one['d_model']}, d_head {one['d_head']}", fontsize=10, color=LIGHT.text)
        ax.set_xlabel("histogram D_KL to the normal law / nats", fontsize=9.5)
        ax.set_ylim(0.0, 0.2)
    axes[1, 0].set_ylabel("share of matrices", fontsize=9.5)
    for ax in axes[1, len(curves["divergences"]) :]:
        ax.remove()
    _legend(figure, axes[0, 0], 3)
    handles, labels = axes[1, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower right", bbox_to_anchor=(0.97, 0.22), frameon=False, fontsize=9)
    return figure


def residual_laws(record: Record) -> Figure:
    """Distribution functions of residual paths, and what a finite width adds."""
    curves = record["sections"]["residual paths"]["curves"]["paths"]
    figure, axes = _panels(2, len(curves), 12.0, 6.0, sharey="row")
    for column, curve in zip(axes.T, curves, strict=True):
        p, simulated = np.array(curve["probability"]), np.array(curve["simulated"])
        x = np.log10(curve["eigenvalue"])
        column[0].plot(x, simulated, color=LIGHT.observed, lw=3.5, alpha=0.45, label="simulated, pooled")
        column[0].plot(x, p, color=LIGHT.free_law, lw=1.3, label="limiting law")
        column[0].set_title(f"depth {curve['depth']}, σ = {curve['sigma']:g}", fontsize=10, color=LIGHT.text)
        column[1].plot(x, curve["d_model"] * (simulated - p), color=LIGHT.observed, lw=1.2)
        column[1].axhline(0.0, color=LIGHT.muted, lw=0.8)
        column[1].set_ylim(-1.0, 1.0)
        for ax in column:
            ax.xaxis.set_major_locator(MaxNLocator(5))
        column[1].set_xlabel("log₁₀ λ", fontsize=9.5)
    axes[0, 0].set_ylabel("P(eigenvalue of P Pᵀ ≤ λ)", fontsize=9.5)
    axes[1, 0].set_ylabel(f"d_model × (simulation − law)\nd_model = {curves[0]['d_model']}", fontsize=9.5)
    _legend(figure, axes[0, 0], 2)
    return figure


def weibull_noise(record: Record) -> Figure:
    """Plot the standard deviation of the fitted shape times √N, and the error of its mean."""
    rows = [row for row in record["sections"]["weibull"]["rows"] if row["quantity"] == "shape"]
    parents = list(dict.fromkeys(row["parameters"]["parent"] for row in rows))
    figure, axes = _panels(1, 2, 11.0, 4.6, sharex=True)
    for which, parent in enumerate(parents):
        style = {"color": LIGHT.series[which], "ms": 5, "capsize": 2, "fmt": MARKERS[which]}
        for ax, of in zip(axes[0], ("std", "mean"), strict=True):
            found = [row for row in rows if row["parameters"]["parent"] == parent and row["of"] == of]
            size = np.array([row["parameters"]["weights"] for row in found])
            x = size * 10 ** (0.04 * (which - 2))
            if of == "std":
                root = np.sqrt(size)
                values = np.array([row["simulated"] for row in found]) * root
                ax.errorbar(x, values, np.array([row["standard_error"] for row in found]) * root, label=parent, **style)
                ax.axhline(found[-1]["analytic"] * root[-1], color=LIGHT.series[which], lw=1.0)
            else:
                ax.errorbar(
                    x, [-row["deviation"] for row in found], [1 / math.sqrt(row["draws"]) for row in found], **style
                )
    axes[0, 1].axhline(0.0, color=LIGHT.muted, lw=0.8)
    _band(axes[0, 1], -0.1, 0.1)
    axes[0, 0].set_ylabel("sd of the fitted shape k × √N", fontsize=9.5)
    axes[0, 0].set_ylim(bottom=0.0)
    axes[0, 1].set_ylabel("error of its mean: (simulation − law) / sd", fontsize=9.5)
    axes[0, 1].set_ylim(-0.3, 0.3)
    for ax in axes[0]:
        ax.set_xscale("log")
        ax.set_xlabel("weights in a sample N", fontsize=9.5)
    axes[0, 0].set_title("points: simulated; lines: law", fontsize=10, color=LIGHT.text)
    _legend(figure, axes[0, 0], 5)
    return figure


def spike_power(record: Record) -> Figure:
    """Plot the position of the spike's eigenvalue, and how often the test finds it."""
    section = record["sections"]["spikes"]
    figure, axes = _panels(1, 2, 11.0, 4.6, sharex=True)
    for which, curve in enumerate(section["curves"]["spikes"]):
        on = "W_QK" if curve["factor"] is None else "W_Q"
        colour, marker = LIGHT.series[which], MARKERS[which]
        label = f"({curve['d_model']}, {curve['d_head']}), spike on {on}"
        rows = [
            row for row in section["rows"]
            if (row["parameters"]["d_model"], row["parameters"]["d_head"], row["parameters"]["on"])
            == (curve["d_model"], curve["d_head"], on)
        ]  # fmt: skip
        panels: tuple[tuple[Axes, str, str, float], ...] = (
            (axes[0, 0], "eigenvalue", "largest eigenvalue", curve["edge"]),
            (axes[0, 1], "power", "power at level 0.05", 1.0),
        )
        for ax, key, quantity, unit in panels:
            ax.plot(curve["strength"], curve[key], color=colour, lw=1.4)
            found = [row for row in rows if row["quantity"] == quantity and row["of"] in ("mean", "probability")]
            x = [row["parameters"]["strength/threshold"] for row in found]
            y = [row["simulated"] / unit for row in found]
            errors = [row["standard_error"] / unit for row in found]
            ax.errorbar(x, y, errors, fmt=marker, ms=5, capsize=2, color=colour, label=label)
    axes[0, 0].set_ylabel("mean of λ_max / limiting upper edge", fontsize=9.5)
    axes[0, 0].set_ylim(0.8, 6.5)
    axes[0, 1].set_ylabel("power of the λ_max test, level 0.05", fontsize=9.5)
    for ax in axes[0]:
        ax.set_xlabel("strength of the spike / threshold", fontsize=9.5)
    axes[0, 0].set_title("lines: limit; points: simulated", fontsize=10, color=LIGHT.text)
    axes[0, 1].set_title("lines: law; points: simulated", fontsize=10, color=LIGHT.text)
    _legend(figure, axes[0, 0], 3)
    return figure


FIGURES: dict[str, tuple[str, Callable[[Record], Figure]]] = {
    "extreme-eigenvalues": ("heads", extreme_eigenvalues),
    "quantiles-and-tails": ("heads", quantiles_and_tails),
    "statistics-by-shape": ("heads", statistics_by_shape),
    "exact-z": ("traces", exact_z),
    "chain-densities": ("chains", chain_densities),
    "elements": ("elements", element_laws),
    "residual-paths": ("residual paths", residual_laws),
    "weibull": ("weibull", weibull_noise),
    "spikes": ("spikes", spike_power),
}
