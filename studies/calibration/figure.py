"""The two figures of the calibration study, from its results."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from rmtbase.statistics import MOMENT_STATISTICS

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#555555"  # Okabe and Ito's colours
LIMIT = 0.04  # of every panel's vertical axis
KOLMOGOROV_95 = 1.3581  # √n D exceeds it with probability 5 %


def draw_uniformity(record: dict[str, Any], path: Path) -> None:
    """Empirical distribution of the p-values minus the uniform one: a row per family, a line per statistic."""
    families = record["families"].values()
    fig, axes = plt.subplots(
        len(families), 3, figsize=(10.5, 2.6 * len(families)), sharex=True, sharey=True, layout="constrained"
    )
    for row, family in zip(axes, families, strict=True):
        tables = _groups(family)
        for ax, (title, table) in zip(row, tables.items(), strict=True):
            _deviations(ax, np.array(record["grid"]), table)
            count = next(iter(table.values()))["count"]
            ax.set_title(f"{title}, n = {count}", fontsize=9, loc="left")
        row[0].set_ylabel(f"{family['title']}\nECDF(p) − p", fontsize=9)
    for ax in axes[-1]:
        ax.set_xlabel("p")
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    fig.savefig(path, dpi=150, metadata={"Software": None})
    plt.close(fig)


def _groups(family: dict[str, Any]) -> dict[str, dict[str, Any]]:
    matrices = family["matrices"]
    return {
        "heads, one per key group": family["heads"],
        "matrices, elements": {name: matrices[name] for name in matrices if name in MOMENT_STATISTICS},
        "matrices, spectrum": {name: matrices[name] for name in matrices if name not in MOMENT_STATISTICS},
    }


def _deviations(ax: Axes, grid: np.ndarray, table: dict[str, Any]) -> None:
    count = next(iter(table.values()))["count"]
    band = KOLMOGOROV_95 / np.sqrt(count)
    ax.axhspan(-band, band, color="0.9", lw=0, label="95 % of uniform samples stay inside over all p")
    ax.axhline(0.0, color="0.6", lw=0.8)
    for name, entry in table.items():
        omnibus = name == "omnibus"
        ax.plot(
            grid,
            entry["ecdf_minus_uniform"],
            color=ORANGE if omnibus else BLUE,
            lw=1.8 if omnibus else 0.8,
            alpha=1.0 if omnibus else 0.7,
            zorder=3 if omnibus else 2,
        )
    ax.plot([], [], color=BLUE, lw=0.8, label="one statistic each")
    ax.plot([], [], color=ORANGE, lw=1.8, label="omnibus")
    ax.set(xlim=(0, 1), ylim=(-LIMIT, LIMIT))
    ax.spines[["top", "right"]].set_visible(False)


def draw_flagged(record: dict[str, Any], path: Path) -> None:
    """Share of null models with anything flagged at q < 0.05, per statistic, with 95 % intervals."""
    families = record["families"].values()
    first = next(iter(families))
    names = [*first["heads"], *first["matrices"]]
    labels = [name.replace("_", " ") for name in first["heads"]]
    labels += [f"matrices: {name.replace('_', ' ')}" for name in first["matrices"]]
    fig, axes = plt.subplots(
        1, len(families), figsize=(11, 0.235 * len(names) + 1.2), sharex=True, sharey=True, layout="constrained"
    )
    place = np.arange(len(names))
    split = len(first["heads"])
    for ax, family in zip(axes, families, strict=True):
        models = family["heads"]["omnibus"]["all_heads"]["models"]
        ax.axvline(record["false_discovery_rate"], color="0.5", lw=0.9, ls="--")
        ax.axhline(split - 0.5, color="0.8", lw=0.8)
        series = (
            ("one_head_per_key_group", "heads", BLUE, "o", -0.2, "one head per key group"),
            ("all_heads", "heads", ORANGE, "s", 0.2, "all heads"),
            ("all_matrices", "matrices", GREEN, "D", 0.0, "all matrices"),
        )
        for key, room, color, marker, shift, label in series:
            at = place[:split] if room == "heads" else place[split:]
            entries = [entry[key] for entry in family[room].values()]
            share = np.array([entry["share"] for entry in entries])
            low, high = np.array([entry["interval"] for entry in entries]).T
            ax.errorbar(
                share,
                at + shift,
                xerr=(share - low, high - share),
                fmt=marker,
                ms=3.2,
                lw=0.9,
                color=color,
                label=label,
            )
        ax.set_title(f"{family['title']}\n{models} models", fontsize=9, loc="left")
        ax.set_xlabel("share of models with any q < 0.05")
        ax.set_xticks([0, 0.05, 0.1, 0.15])
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_yticks(place, labels, fontsize=7.5)
    axes[0].set(xlim=(0, 0.2), ylim=(len(names) - 0.4, -0.6))
    # Two series of heads and one of matrices: the last panel has them all.
    fig.legend(*axes[-1].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    fig.savefig(path, dpi=150, metadata={"Software": None})
    plt.close(fig)
