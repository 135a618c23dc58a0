"""Quantiles of ln λ_min and ln κ of Gaussian chains, by draws that share no code with the laws.

    python studies/hard_edge/draws.py made       the chains that the correction of `HardEdgeCoordinate` is made of
    python studies/hard_edge/draws.py tried      others, that it is tried on

add what is missing to `draws.json` (4 and 6 minutes of one core; seeded).
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
from scipy.special import ndtr

RECORD = Path(__file__).with_name("draws.json")
SEED = 20_261_123
SCORES = np.linspace(-3.5, 3.5, 29)
AT_A_TIME = 400_000  # elements of a factor's triangle

MADE = [(16, *(16 + gap,) * (1 + ties)) for gap in (0, 1, 2, 3, 4, 6, 8, 12) for ties in (1, 2, 3)]
TRIED: list[tuple[int, ...]] = [
    *((d, h, d) for h in (8, 32) for d in (h, h + 1, h + 2, h + 4, h + 7, h + 11, h + 15)),
    *((24 + gap, 24) for gap in (0, 1, 2, 5, 10, 15)),
    *((r, r) for r in (4, 8, 64)),
    *((23, 16, 40), (60, 16, 16, 60), (40, 40, 12, 60, 25), (12, 12, 12), (5, 5, 5), (64, 64, 64)),
    *((9, 8, 10), (20, 17, 19), (30, 24, 24, 27), (10, 10, 10, 10), (13, 12, 12, 13), (16, 14, 16, 15, 17)),
    *((20, 20, 20, 20, 20), (27, 20, 22, 25, 20, 80), (13, 12, 12, 13, 13), (18, 20, 18, 25), (10, 15, 30, 10)),
    *((7, 7, 7, 9), (40, 33, 36), (48, 44, 44, 52)),
]
DRAWS = {"made": 500_000, "tried": 200_000}


def log_extremes(dims: tuple[int, ...], draws: int) -> np.ndarray:
    """ln λ_min and ln λ_max of raw products at σ = 1, (draw, 2), from triangles of all dimensions but one smallest.

    G_1 G_2 = L_1 (Q_1 G_2) with the law of L_1 G_2 for G_l = L_l Q_l, Q_l Haar and independent of L_l.
    """
    rng = np.random.default_rng([SEED, *dims])
    rank, *others = sorted(dims)
    index, below = np.arange(rank), np.tril_indices(rank, -1)
    found, size = [], max(1, AT_A_TIME // rank**2)
    for start in range(0, draws, size):
        count = min(size, draws - start)
        product = None
        for n in others:
            factor = np.zeros((count, rank, rank))
            factor[:, below[0], below[1]] = rng.standard_normal((count, below[0].size))
            factor[:, index, index] = np.sqrt(rng.chisquare(n - index, size=(count, rank)))
            product = factor if product is None else product @ factor
        found.append(2.0 * np.log(np.linalg.svd(product, compute_uv=False)[:, [-1, 0]]))
    return np.concatenate(found)


def main() -> None:
    """Draw and record."""
    which = sys.argv[1]
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    for dims in {"made": MADE, "tried": TRIED}[which]:
        name = ",".join(map(str, dims))
        if name in record.get(which, {}):
            continue
        draws = DRAWS[which] if min(dims) < 60 else DRAWS[which] // 2
        smallest, largest = log_extremes(dims, draws).T
        record.setdefault(which, {})[name] = {"draws": draws} | {
            key: {
                "mean": value.mean(),
                "std": value.std(),
                "quantile": [float(f"{x:.7g}") for x in np.quantile(value, ndtr(SCORES))],
            }
            for key, value in (("smallest", smallest), ("condition", largest - smallest))
        }
        RECORD.write_text(json.dumps(record).replace("}}, ", "}},\n") + "\n", encoding="utf-8")
        print(name, f"{os.times().user:.0f} s", flush=True)


if __name__ == "__main__":
    main()
