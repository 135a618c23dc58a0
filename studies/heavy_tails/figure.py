"""Figure of the study: the verdicts on matrices of each kind."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

CALLED = ("noise", "spikes", "power law", "effective depth", "not told apart", "none of them")


def shares(rows: list[dict[str, Any]]) -> np.ndarray:
    """Share of each of :data:`CALLED` among the matrices of some rows."""
    counts = np.array([sum(row["verdicts"].get(name, 0) for row in rows) for name in CALLED], dtype=float)
    return counts / max(counts.sum(), 1.0)


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw a row for each kind of matrix, over all shapes; lines separate the true causes."""
    kinds = list(dict.fromkeys((row["truth"], row["of"]) for row in results["cases"]))
    table = np.array([shares([row for row in results["cases"] if row["of"] == of]) for _, of in kinds])
    fig, ax = plt.subplots(figsize=(8.2, 0.29 * len(kinds) + 1.2), layout="constrained")
    ax.imshow(table, cmap="Blues", vmin=0.0, vmax=1.15, aspect="auto")
    for (i, j), value in np.ndenumerate(table):
        if value > 0.0:
            ax.text(j, i, f"{100 * value:.0f}", ha="center", va="center", color="w" if value > 0.6 else "k", fontsize=8)
    edges = [i for i in range(1, len(kinds)) if kinds[i][0] != kinds[i - 1][0]]
    for edge in edges:
        ax.axhline(edge - 0.5, color="0.4", lw=0.8)
    ax.set_xticks(range(len(CALLED)), CALLED, fontsize=8)
    ax.set_yticks(
        range(len(kinds)), [of + (" (spikes)" if truth == "spikes" else "") for truth, of in kinds], fontsize=8
    )
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.set_title("What matrices are called, in per cent", fontsize=10, loc="left")
    fig.savefig(path, dpi=150, metadata={"Software": None})
