"""Score heads that were not initialised from a normal law, and look how many of them the Gaussian null flags.

    python studies/calibration/initialisations.py

writes initialisations.json beside this file (or where ``--out`` says). Everything is seeded; a minute of one core.
"""

from __future__ import annotations

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
from rmtbase.laws import null

HERE = Path(__file__).parent
SEED = 16
HEADS = 2000
BATCH = 100
LEVEL = 0.05

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]


def truncated(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Normal, what lies beyond two standard deviations drawn again."""
    values = rng.standard_normal(shape)
    while (outside := np.abs(values) > 2.0).any():
        values[outside] = rng.standard_normal(np.count_nonzero(outside))
    return values


LAWS: dict[str, tuple[Draw, float]] = {
    "normal": (lambda rng, shape: rng.standard_normal(shape), 0.0),
    "uniform": (lambda rng, shape: rng.uniform(-1.0, 1.0, shape), -1.2),
    "normal truncated at 2 sigma": (truncated, float(stats.truncnorm(-2.0, 2.0).stats("k"))),
    "Laplace": (lambda rng, shape: rng.laplace(size=shape), 3.0),
}
CASES = (
    *((name, 256, 32) for name in LAWS),
    ("normal", 768, 64),
    ("uniform", 768, 64),  # torch.nn.Linear's own initialisation
    ("normal truncated at 2 sigma", 768, 64),
)


class Notes:
    """A progress reporter that keeps its notes, each once."""

    def __init__(self) -> None:
        self.notes: set[str] = set()

    def bar(self, label: str, total: int | None) -> Callable[[int], None]:
        """Nothing is shown."""
        return lambda count: None

    def note(self, line: str) -> None:
        """Where the null came from."""
        self.notes.add(line)


def scored(name: str, d_model: int, d_head: int, heads: int) -> dict[str, Any]:
    """What the scores of untrained heads of one law say; the null is that of the shipped atlas."""
    draw, excess_kurtosis = LAWS[name]
    rng = np.random.default_rng([SEED, d_model, list(LAWS).index(name)])
    parts, told = [], Notes()
    for _ in range(heads // BATCH):
        w_q, w_k = draw(rng, (2, BATCH, d_head, d_model))
        parts.append(rmtbase.score_heads(w_q, w_k, progress=told)["heads"].to_dataset().isel(layer=0, drop=True))
    z = {
        str(one): np.concatenate([part["z_score"].sel(statistic=one).values for part in parts])
        for one in parts[0]["statistic"].values
    }
    p = {one: np.concatenate([part["p_value"].sel(statistic=one).values for part in parts]) for one in z}
    p["omnibus"] = np.concatenate([part["omnibus_p_value"].values for part in parts])
    spread = null("log_determinant", (d_model, d_head, d_model), self_normalized=True, normalization="none").std()
    return {
        "law": name,
        "excess_kurtosis": excess_kurtosis,
        "d_model": d_model,
        "d_head": d_head,
        "heads": heads,
        "null": sorted(told.notes),
        "log_determinant_shift": {
            "expected": -excess_kurtosis * d_head / d_model / spread,
            "measured": float(z["log_determinant"].mean()),
            "standard_error": float(z["log_determinant"].std() / math.sqrt(heads)),
        },
        "mean_z": {one: round(float(values.mean()), 4) for one, values in z.items()},
        f"below_{LEVEL}": {one: round(float((values < LEVEL).mean()), 4) for one, values in p.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "initialisations.json")
    parser.add_argument("--heads", type=int, default=HEADS, help="of each case, fewer for a quick look")
    args = parser.parse_args()
    cases = []
    for case in CASES:
        cases.append(scored(*case, args.heads))
        print(f"{len(cases)} of {len(CASES)}: {case}", flush=True)
    record = {"versions": {name: version(name) for name in ("numpy", "scipy")}, "level": LEVEL, "cases": cases}
    args.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
