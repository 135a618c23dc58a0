"""The loss curve beside the n-gram models."""

import csv
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#555555"  # Okabe and Ito's colours


def read_curve(path: Path) -> dict[str, list[float]]:
    """Columns of loss_curve.csv as numbers; an empty cell is NaN."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name] or "nan") for row in rows] for name in rows[0]}


def draw(curve: dict[str, list[float]], ngrams: dict[str, float], kept: dict[str, int], out: Path) -> None:
    """Draw bits per byte against the training step.

    Args:
        curve: columns of loss_curve.csv.
        ngrams: order -> held-out bits per byte of the n-gram models to show as lines.
        kept: revision name -> step of the shipped checkpoints.
        out: the PNG file.
    """
    fig, ax = plt.subplots(figsize=(7.2, 4.2), dpi=150, layout="constrained")
    step, held_out = curve["step"], curve["held_out_bits_per_byte"]
    for order, bits in ngrams.items():
        strong = order == "3"
        ax.axhline(bits, color="black" if strong else GREY, lw=1.4 if strong else 0.9, ls="--" if strong else ":")
        offset = (-24, -11) if bits == min(ngrams.values()) else (0, 3)  # the lowest: below, clear of its neighbour
        ax.annotate(f"byte {order}-gram, {bits:.2f}", (step[-1], bits), offset, textcoords="offset points", ha="right")
    ax.plot(step, curve["train_bits_per_byte"], color=ORANGE, lw=1.2, label="training batches, mean since last point")
    ax.plot(step, held_out, color=BLUE, lw=1.6, label="held-out files, fixed sample")
    for name, at in kept.items():
        bits = held_out[step.index(at)]
        ax.plot(at, bits, "o", color=BLUE, ms=5, clip_on=False)
        offset, side = ((-2, 5), "right") if at == step[-1] else ((6, 5), "left")
        ax.annotate(name, (at, bits), offset, textcoords="offset points", ha=side, color=BLUE)
    ax.set_yscale("log")
    ticks = [1.5, 2, 2.5, 3, 4, 5, 6, 8]
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.set(xlim=(0, step[-1]), ylim=(1.3, 8.6), xlabel="training step (4096 bytes each)", ylabel="bits per byte")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    fig.savefig(out, metadata={"Software": None})
    plt.close(fig)
