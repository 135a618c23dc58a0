"""Measure the level of ``--null kurtosis`` over laws of entries: which heads it admits, and how many it rejects.

    python studies/calibration/kurtosis.py

writes kurtosis.json beside this file (or where ``--out`` says). Everything is seeded; a minute of one core for
(64, 12), three for all of (256, 32), of which the results hold the first twelve laws.
"""

import argparse
import json
import math
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import rmtbase
from rmtbase.nulls import kurtosis_range

HERE = Path(__file__).parent
SEED = 31
HEADS = 4000
BATCH = 500
LEVELS = (0.05, 0.01)

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]


def mixture(share: float, scale: float) -> Draw:
    """Mixture of normal entries, a share of which are larger by a factor."""
    return lambda rng, shape: rng.standard_normal(shape) * np.where(rng.random(shape) < share, scale, 1.0)


def zeros(share: float) -> Draw:
    """Entries -1, 0 and 1, a share of which are 0."""
    return lambda rng, shape: rng.choice([-1.0, 1.0], shape) * (rng.random(shape) >= share)


LAWS: dict[str, tuple[Draw, float]] = {
    "Rademacher": (zeros(0.0), -2.0),
    "ternary, a third zeros": (zeros(1.0 / 3.0), -1.5),
    "arcsine": (lambda rng, shape: np.sin(2.0 * np.pi * rng.random(shape)), -1.5),
    "uniform": (lambda rng, shape: rng.uniform(-1.0, 1.0, shape), -1.2),
    "ternary, half zeros": (zeros(0.5), -1.0),
    "normal": (lambda rng, shape: rng.standard_normal(shape), 0.0),
    "t of 16": (lambda rng, shape: rng.standard_t(16, shape), 0.5),
    "t of 12": (lambda rng, shape: rng.standard_t(12, shape), 0.75),
    "mixture, a fifth of 1.6": (mixture(0.2, 1.6), 3.0 * (0.8 + 0.2 * 1.6**4) / (0.8 + 0.2 * 1.6**2) ** 2 - 3.0),
    "exponential power 1.5": (
        lambda rng, shape: rng.choice([-1.0, 1.0], shape) * rng.gamma(1.0 / 1.5, size=shape) ** (1.0 / 1.5),
        float(stats.gennorm(1.5).stats("k")),
    ),
    "t of 10": (lambda rng, shape: rng.standard_t(10, shape), 1.0),
    "logistic": (lambda rng, shape: rng.logistic(size=shape), 1.2),
    "mixture, a fiftieth of 2.5": (mixture(0.02, 2.5), 3.0 * (0.98 + 0.02 * 2.5**4) / (0.98 + 0.02 * 6.25) ** 2 - 3.0),
    "t of 8": (lambda rng, shape: rng.standard_t(8, shape), 1.5),
    "t of 6": (lambda rng, shape: rng.standard_t(6, shape), 3.0),
    "Laplace": (lambda rng, shape: rng.laplace(size=shape), 3.0),
}
SHAPES = ((64, 12), (256, 32))
"""(d_model, d_head)."""


def level(law: str, shape: tuple[int, int]) -> dict[str, Any]:
    """Shares of the admitted heads that are rejected, by the omnibus test and by the worst of the statistics."""
    draw, kurtosis = LAWS[law]
    d_model, d_head = shape
    rng = np.random.default_rng([SEED, d_model, d_head, list(LAWS).index(law)])
    each, together = [], []
    for _ in range(HEADS // BATCH):
        w_q, w_k = draw(rng, (2, BATCH, d_head, d_model))
        heads = rmtbase.score_heads(w_q, w_k, null="kurtosis")["heads"].to_dataset().isel(layer=0)
        each.append(heads["p_value"].values)
        together.append(heads["omnibus_p_value"].values)
        names = heads["statistic"].values.tolist()
    p_value, omnibus = np.concatenate(each), np.concatenate(together)
    admitted = ~np.isnan(omnibus)
    found: dict[str, Any] = {
        "entries": law,
        "excess_kurtosis": kurtosis,
        "dims": [d_model, d_head, d_model],
        "largest_admitted": kurtosis_range((d_model, d_head, d_model))[1],
        "heads": HEADS,
        "admitted": int(admitted.sum()),
    }
    for at in LEVELS if admitted.any() else ():
        share = (p_value[admitted] < at).mean(axis=0)
        worst = int(np.argmax(share))
        found[f"at_{at}"] = {
            "omnibus": float((omnibus[admitted] < at).mean()),
            "log_determinant": float(share[names.index("log_determinant")]),
            "worst": float(share[worst]),
            "worst_statistic": names[worst],
            "standard_error": math.sqrt(at * (1.0 - at) / admitted.sum()),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "kurtosis.json")
    args = parser.parse_args()
    cases: list[dict[str, Any]] = []
    record = {"versions": {name: version(name) for name in ("numpy", "scipy")}, "heads": HEADS, "cases": cases}
    for shape in SHAPES:
        for law in LAWS:
            cases.append(level(law, shape))
            at = cases[-1].get("at_0.01", {})
            print(shape, law, cases[-1]["admitted"], at.get("omnibus"), at.get("worst"), flush=True)
            args.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
