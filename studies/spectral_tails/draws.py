"""Quantiles of the scale-free statistics of Gaussian chains, by draws that share no code with the laws.

    python studies/spectral_tails/draws.py made      the chains that the corrections are fitted on
    python studies/spectral_tails/draws.py tried     others, that they are tried on

add what is missing to `draws.json` (12 and 6 minutes of one core; seeded).
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr

RECORD = Path(__file__).with_name("draws.json")
SEED = 77
SCORES = np.linspace(-3.4, 3.4, 35)
BYTES = 1 << 25  # of cores drawn at a time

Chains = dict[int, list[tuple[int, ...]]]
"""Dimensions by number of draws."""

MADE: Chains = {
    400_000: [
        *((40, 16), (16, 16), (64, 16, 64), (64, 12, 64), (30, 20, 25), (50, 20, 70, 30), (1000, 20, 50, 3000)),
        *((60, 16, 16, 60), (24, 24, 24, 24), (20, 8, 30, 25), (20, 30, 20, 25), (128, 16, 16, 128)),
        *((40, 40, 12, 60, 25), (30, 18, 30, 22, 60), (24, 16, 24, 16, 40), (60, 30, 40, 20, 50, 35, 45)),
    ],
    300_000: [
        *((96, 32), (768, 16), (34, 17), (32, 32), (21, 22), (8, 16)),
        *((64, 32, 64), (512, 32, 48), (20, 10, 20), (80, 24, 30), (20, 20, 20), (1024, 16, 1024), (32, 16, 32)),
        *((128, 16, 128), (60, 40, 50), (90, 10, 90), (256, 32, 256), (10, 14, 12), (8, 40, 60)),
        *((64, 24, 40, 96), (30, 12, 18, 50), (100, 30, 30, 100), (12, 24, 36, 48), (150, 15, 20, 150)),
        *((300, 24, 30, 300), (16, 20, 16, 24), (28, 20, 24, 32, 40), (40, 20, 20, 20, 40), (25, 25, 50, 50, 100)),
        *((18, 90, 18, 90, 18), (64, 32, 48, 32, 64), (30, 30, 30, 30, 30)),
        *((45, 15, 60, 20, 35, 25), (22, 33, 28, 22, 44, 37)),
    ],
    200_000: [(48, 48, 48), (40, 32, 36, 40)],
    100_000: [(1024, 64, 1024), (128, 64, 128), (512, 64), (96, 64, 80, 128)],
}
TRIED: Chains = {
    200_000: [
        *((20, 20), (48, 24, 48), (26, 26, 40), (2048, 16, 2048), (72, 18, 27, 90), (13, 26, 39, 18), (14, 14, 14, 14)),
        *((36, 28, 44, 30, 52), (55, 25, 35, 30, 65, 28), (56, 28)),
    ],
    100_000: [(768, 64, 768), (256, 64, 256), (32,) * 9],
}


def eigenvalues(dims: tuple[int, ...], draws: int) -> Iterator[np.ndarray]:
    """Yield eigenvalues of raw products at σ = 1 as (draw, r), from triangles of all but one smallest dimension.

    G_1 G_2 = L_1 (Q_1 G_2) has the law of L_1 G_2 for G_l = L_l Q_l, Q_l Haar and independent of L_l.
    """
    rng = np.random.default_rng([SEED, *dims])
    others, rank = list(dims), min(dims)
    others.remove(rank)
    index, size = np.arange(rank), max(1, BYTES // (8 * rank**2))
    for start in range(0, draws, size):
        count, core = min(size, draws - start), np.eye(rank)[None]
        for n in others:
            factor = np.triu(rng.standard_normal((count, rank, rank)), 1)
            factor[:, index, index] = np.sqrt(2.0 * rng.standard_gamma(0.5 * (n - index), (count, rank)))
            core = factor @ core
        yield np.maximum(np.linalg.eigvalsh(core @ core.mT), 1e-300)


def statistics(values: np.ndarray) -> dict[str, np.ndarray]:
    """Compute participation ratios, exponentials of entropies, and stable ranks of (draw, r) eigenvalues."""
    found = {}
    for convention, of in (("eigenvalue", values), ("singular", np.sqrt(values))):
        total = of.sum(axis=1)
        share = of / total[:, None]
        found[f"{convention} participation_ratio"] = total**2 / (of**2).sum(axis=1)
        found[f"{convention} entropy"] = np.exp(-(share * np.log(np.maximum(share, 1e-300))).sum(axis=1))
        found[f"{convention} stable_rank"] = total / of.max(axis=1)
    return found


def recorded(parts: list[dict[str, np.ndarray]]) -> dict[str, Any]:
    """Summarize the draws of one chain."""
    kept: dict[str, Any] = {"draws": sum(len(next(iter(part.values()))) for part in parts)}
    for name in parts[0]:
        values = np.concatenate([part[name] for part in parts])
        quantiles = [float(f"{x:.7g}") for x in np.quantile(values, ndtr(SCORES))]
        kept[name] = {"mean": float(values.mean()), "std": float(values.std()), "quantile": quantiles}
    return kept


def main() -> None:
    """Draw and record."""
    which = sys.argv[1]
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    for draws, chains in {"made": MADE, "tried": TRIED}[which].items():
        for dims in chains:
            name = ",".join(map(str, dims))
            if name not in record.setdefault(which, {}):
                record[which][name] = recorded([statistics(values) for values in eigenvalues(dims, draws)])
                RECORD.write_text(json.dumps(record).replace("}}, ", "}},\n") + "\n", encoding="utf-8")
                print(name, f"{os.times().user:.0f} s", flush=True)


if __name__ == "__main__":
    main()
