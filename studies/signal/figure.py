"""Figure of the study: the number of directions, the coverage of their strengths, and the error of the signal."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#555555")  # Okabe and Ito's, and grey
STYLES = ("-", "--", "-.", (0, (1, 1)), "-")
WAYS = {
    "oracle": "oracle",
    "shrunken": "shrunken, number found",
    "true_rank": "cut at the true rank",
    "hard_threshold": r"cut at $4/\sqrt{3}\ \sqrt{d}\,\sigma$",
    "energy_90": "cut at 90 % of the energy",
}


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw results for (768, 64) against the strength in units of the threshold, and coverage of all cases."""
    fig, (number, cover, error) = plt.subplots(1, 3, figsize=(12.5, 3.9), layout="constrained")
    for k, colour, style in zip((1, 2, 4, 8), COLOURS, STYLES, strict=False):
        rows = [row for row in results["along"] if len(row["planted"]) == k]
        at = [row["planted"][0] for row in rows]
        number.plot(at, [row["exact"] for row in rows], color=colour, ls=style, label=f"{k} planted: as many found")
        number.plot(at, [row["too_many"] for row in rows], color=colour, ls=style, lw=0.9, alpha=0.6)
    number.axhline(results["level"], color="0.6", lw=0.8)
    number.annotate("more found than planted (thin lines)", (2.1, 0.075), fontsize=8, color="0.3")
    number.set(xlabel="strength / threshold", ylabel="share of heads", ylim=(0, 1.02))
    number.set_title("How many directions? (768, 64)", fontsize=10, loc="left")
    number.legend(frameon=False, fontsize=8, loc="center right")

    cases = [row for row in results["number_and_strength"] if row["intervals"] >= 400]
    shapes = list(dict.fromkeys(tuple(row["dims"]) for row in cases))
    names = list(dict.fromkeys(tuple(row["planted"]) for row in cases))
    cover.axhspan(0.95 - 2 * np.sqrt(0.0475 / results["trials"]), 0.95 + 2 * np.sqrt(0.0475 / results["trials"]),
                  color="0.88", lw=0)  # fmt: skip
    for place, (dims, colour, marker) in enumerate(zip(shapes, COLOURS, "osD^", strict=False)):
        rows = [row for row in cases if tuple(row["dims"]) == dims]
        x = np.array([names.index(tuple(row["planted"])) for row in rows]) + 0.12 * (place - 1.5)
        cover.plot(x, [row["covered"] for row in rows], marker, color=colour, ms=4, label=str(tuple(dims)))
    cover.set_xticks(range(len(names)), [_planted(name) for name in names], rotation=60, fontsize=8)
    cover.set(ylabel="share of strengths within 95 % limits", ylim=(0.85, 1.0))
    cover.set_title("How strong? Of directions found", fontsize=10, loc="left")
    cover.legend(frameon=False, fontsize=8, loc="lower left")

    rows = results["shrinkage_along"]
    at = [row["planted"][0] for row in rows]
    for (name, words), colour, style in zip(WAYS.items(), COLOURS[::-1], STYLES[::-1], strict=True):
        error.plot(at, [row[name] for row in rows], color=colour, ls=style, label=words)
    error.set(xlabel="strength / threshold", ylabel=r"$\|\hat S - S\|_F^2\ /\ \|S\|_F^2$", yscale="log")
    error.set_title("Which? The signal itself, four directions", fontsize=10, loc="left")
    error.legend(frameon=False, fontsize=8)
    fig.savefig(path, dpi=150, metadata={"Software": None})
    plt.close(fig)


def _planted(multiples: tuple[float, ...]) -> str:
    """``4 at 2`` or the strengths."""
    if len(set(multiples)) == 1:
        return f"{len(multiples)} at {multiples[0]:g}"
    return f"{len(multiples)}, {multiples[0]:g} to {multiples[-1]:g}"
