"""The figures of the study of residual depth, from its results."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rmtbase.drawing.theme import LIGHT
from rmtbase.laws import ResidualPath, ResidualUpdate, marchenko_pastur

RULE = "path wasserstein"
LAYER = 2  # the middle one of the bundled model's four, as in the sources: length // 2
MATRICES = ("attention_query", "attention_key", "attention_value", "attention_output", "mlp_in", "mlp_gate", "mlp_out")
DENSITY = (3e-3, 30.0)
WIDEST = 9.0  # of a singular value over the root mean square

Array = NDArray[np.float64]


def draw_edges(verification: dict[str, Any], path: Path) -> None:
    """Largest eigenvalue: what its mean has beyond Tracy-Widom's, against d^(-1/3)."""
    figure = Figure(figsize=(9.0, 3.9), layout="constrained", facecolor=LIGHT.surface)
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    sigmas = sorted({case["sigma"] for case in verification["cases"]}, reverse=True)
    for ax, sigma in zip(axes, sigmas, strict=True):
        ax.axhline(0.0, color=LIGHT.muted, linewidth=0.9)
        cases = [case for case in verification["cases"] if case["sigma"] == sigma]
        for number, (case, colour, marker) in enumerate(zip(cases, LIGHT.series, "os^D", strict=False)):
            x = np.array([one["width"] ** (-1 / 3) for one in case["widths"]])
            y = np.array([one["largest"]["shift"] for one in case["widths"]])
            error = np.array([one["largest"]["shift_error"] for one in case["widths"]])
            aside = 0.0012 * (number - 1.5)
            ax.errorbar(
                x + aside, y, error, color=colour, marker=marker, markersize=5, linestyle="none", elinewidth=1.2,
                label=f"depth {case['depth']}",
            )  # fmt: skip
            line = np.array([0.0, 0.265])
            ax.plot(line, case["limit"]["largest"]["slope_through_zero"] * line, color=colour, linewidth=1.0)
        ax.set(xlim=(0.0, 0.265), xlabel=r"$d^{-1/3}$")
        ax.set_title(rf"$\sigma = {sigma:g}$", fontsize=10.5)
        _quiet(ax)
    axes[0].set_ylabel(r"(mean $\lambda_{\max}$ − prediction) / Tracy–Widom scale")
    axes[0].legend(frameon=False, fontsize=8.5, loc="lower left")
    _save(figure, path)


def draw_toy(record: dict[str, Any], path: Path) -> None:
    """Draw the toy model at each depth, and one trained matrix, all on the same axes."""
    edges = np.linspace(0.0, WIDEST, len(record["toy"][0]["density"]) + 1)
    paths, updates = ([one for one in record["toy"] if one["part"] == part] for part in ("path", "update"))
    figure = Figure(figsize=(11.0, 5.6), layout="constrained", facecolor=LIGHT.surface)
    grid = figure.subplots(2, 4, sharex=True, sharey=True)
    for ax, one, update in zip(grid.flat, paths, updates, strict=False):
        ax.stairs(one["density"], edges, fill=True, color=LIGHT.null, alpha=0.4, label="simulated P")
        ax.stairs(update["density"], edges, color=LIGHT.naive, linewidth=1.1, label="simulated P − I")
        _law(ax, ResidualPath, one["depth"], LIGHT.text, "-", "law of P")
        if "law" in update:
            _law(ax, ResidualUpdate, one["depth"], LIGHT.naive, (0, (4, 2)), "law of P − I")
        _independent(ax, record, edges)
        ax.set_title(f"depth {one['depth']}", fontsize=10.5)
    last = grid.flat[-1]
    trained = _at(record["trained"]["final"], MATRICES[0])
    _spectrum(last, trained["singular_values"])
    _independent(last, record, edges)
    last.set_title("trained: attention query, layer 2", fontsize=10.5)
    _same_axes(grid, "singular value / root mean square")
    figure.legend(
        *_labels(grid[0, 0], last), loc="outside upper center", ncols=4, frameon=False, fontsize=8.5,
    )  # fmt: skip
    _save(figure, path)


def draw_trained(trained: dict[str, Any], path: Path) -> None:
    """Draw the matrices of the middle layer beside the law of independent elements and the nearest residual path."""
    figure = Figure(figsize=(11.0, 5.8), layout="constrained", facecolor=LIGHT.surface)
    grid = figure.subplots(2, 4, sharex=True, sharey=True)
    for ax, name in zip(grid.flat, MATRICES, strict=False):
        matrix = _at(trained["final"], name)
        rows, columns = matrix["shape"]
        _spectrum(ax, matrix["singular_values"])
        x = np.linspace(1e-3, WIDEST, 1500)
        law = marchenko_pastur(min(rows, columns), max(rows, columns), max(rows, columns) ** -0.5)
        ax.plot(x, law.pdf_singular_values(x), color=LIGHT.free_law, lw=1.4, linestyle="--", label="Gaussian, logistic")
        fit = matrix["fits"][RULE]
        unit = fit["scale"] / matrix["root_mean_square"]
        density = ResidualPath(fit["depth"], 1.0).pdf_singular_values(x / unit) / unit
        ax.plot(x, density, color=LIGHT.text, linewidth=1.6, label="nearest residual path")
        deep = ResidualPath(16, 1.0)
        scale = np.sqrt(deep.mean())
        ax.plot(
            x, scale * deep.pdf_singular_values(scale * x), color=LIGHT.flagged, lw=1.2, linestyle=":",
            label="residual path of depth 16",
        )  # fmt: skip
        verdict = "fits" if fit["fits"] else "does not fit"
        ax.set_title(
            f"{name.replace('_', ' ')}, {rows} × {columns}\nnearest depth {fit['depth']} {verdict}, "
            f"p = {fit['p_value']:.2g}",
            fontsize=9.5,
        )
    grid.flat[-1].remove()
    _same_axes(grid, "singular value / root mean square")
    grid[0, -1].tick_params(labelbottom=True)
    figure.legend(*_labels(grid[0, 0]), loc="outside upper center", ncols=4, frameon=False, fontsize=8.5)
    _save(figure, path)


def _law(ax: Axes, law: type, depth: int, colour: str, style: Any, label: str) -> None:
    """Draw the law at unit root mean square."""
    x = np.geomspace(1e-3, WIDEST, 1500)
    one = law(depth, 1.0)
    unit = np.sqrt(one.mean())
    ax.plot(x, unit * one.pdf_singular_values(unit * x), color=colour, linestyle=style, linewidth=1.3, label=label)


def _independent(ax: Axes, record: dict[str, Any], edges: Array) -> None:
    """Draw the quarter circle, and a simulated matrix of logistic elements, which has the same limit."""
    x = np.linspace(0.0, 2.0, 400)
    ax.plot(x, np.sqrt(4.0 - x**2) / np.pi, color=LIGHT.free_law, linestyle="--", linewidth=1.3, label="Gaussian: law")
    ax.stairs(
        record["independent"]["logistic"]["density"], edges, color=LIGHT.observed, linewidth=0.9, linestyle=":",
        label="logistic: simulated",
    )  # fmt: skip


def _spectrum(ax: Axes, values: list[float]) -> None:
    edges = np.linspace(0.0, WIDEST, 31)
    density = np.histogram(values, edges)[0] / (len(values) * np.diff(edges))
    ax.stairs(density, edges, fill=True, color=LIGHT.observed, alpha=0.35, label="trained")


def _at(matrices: list[dict[str, Any]], component: str) -> dict[str, Any]:
    (found,) = [one for one in matrices if one["layer"] == LAYER and one["component"] == component]
    return found


def _same_axes(grid: NDArray[Any], label: str) -> None:
    for ax in grid.flat:
        ax.set(yscale="log", xlim=(0.0, 7.0), ylim=DENSITY)
        _quiet(ax)
    for ax in grid[-1]:
        ax.set_xlabel(label, fontsize=9.5)
    for ax in grid[:, 0]:
        ax.set_ylabel("density", fontsize=9.5)


def _labels(*axes: Axes) -> tuple[list[Any], list[str]]:
    """Collect handles and labels of several axes, each label once."""
    found = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    return list(found.values()), list(found)


def _quiet(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8.5)
    ax.grid(color=LIGHT.grid, linewidth=0.6)
    ax.set_axisbelow(True)


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=130, metadata={"Software": None})
