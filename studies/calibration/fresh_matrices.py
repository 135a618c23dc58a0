"""Measure how often "k of n matrices cannot have independent normal elements" is said of models of normal matrices.

    python studies/calibration/fresh_matrices.py

writes fresh_matrices.json beside this file (or where ``--out`` says). Everything is seeded; ten minutes of one core.
Each model has six matrices, of float32. For each the p-values of the 24 element statistics are made as
``rmtbase score`` makes them, and joined and adjusted as the summary does.
"""

import argparse
import json
import math
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmtbase.results.scores._element_scores import FIELDS, STATISTICS, against_null, element_law, elements_of
from rmtbase.results.scores._element_summary import joint_p_value
from rmtbase.statistics import benjamini_hochberg, cauchy_combination, element_sketch

HERE = Path(__file__).parent
SEED = 31
MODELS = 4000
RATE = 0.05
LEVELS = (0.05, 0.01, 0.05 / 6.0, 0.001)
SIZES: dict[str, tuple[tuple[int, int], ...]] = {
    "(64, 12)": ((12, 64),) * 6,
    "ragged": ((7, 13), (10, 10), (12, 12), (9, 33), (24, 20), (30, 31)),
    "(256, 32)": ((32, 256),) * 6,
}
"""(rows, columns) of the six matrices of a model; of the first of the ragged, 91 elements, only moments count."""


def models(name: str, count: int) -> NDArray[np.float64]:
    """Draw models and compute the p-values of all statistics, (model, matrix, statistic)."""
    rng = np.random.default_rng([SEED, list(SIZES).index(name)])
    observed = np.empty((count, len(SIZES[name]), len(STATISTICS)))
    for model in range(count):
        for k, shape in enumerate(SIZES[name]):
            weights = (0.02 * rng.standard_normal(shape)).astype(np.float32)
            observed[model, k] = elements_of(element_sketch([weights.ravel()])).statistics
    p_value = [
        against_null(observed[:, k], element_law("normal", math.prod(shape)))[..., FIELDS.index("p_value")]
        for k, shape in enumerate(SIZES[name])
    ]
    return np.stack(p_value, axis=1)


def uniform_ranks(p_value: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each statistic's p-values as their ranks, which are uniform: what is left is how they depend on each other."""
    rank = np.argsort(np.argsort(p_value, axis=0), axis=0)
    return np.where(np.isnan(p_value), np.nan, (rank + 0.5) / len(p_value))


def level(name: str, count: int) -> dict[str, Any]:
    """Share of models with a matrix that differs, and sizes of the joint test and of each statistic."""
    p_value = models(name, count)
    joint = joint_p_value(p_value)
    flagged = np.mean([(benjamini_hochberg(one) < RATE).any() for one in joint])
    ranks = np.stack([uniform_ranks(p_value[:, k]) for k in range(p_value.shape[1])], axis=1)
    found: dict[str, Any] = {
        "sizes": [list(shape) for shape in SIZES[name]],
        "models": count,
        "flagged": float(flagged),
        "standard_error": math.sqrt(RATE * (1.0 - RATE) / count),
    }
    for at in LEVELS:
        each = np.nanmean(np.where(np.isnan(p_value), np.nan, p_value < at), axis=(0, 1))
        found[f"at_{at:.4g}"] = {
            "joint": float((joint < at).mean()),
            "cauchy": float((cauchy_combination(p_value) < at).mean()),
            "cauchy_of_uniform_ranks": float((cauchy_combination(ranks) < at).mean()),
            "standard_error": math.sqrt(at * (1.0 - at) / joint.size),
            "statistics": {one: round(float(share), 5) for one, share in zip(STATISTICS, each, strict=True)},
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "fresh_matrices.json")
    parser.add_argument("--models", type=int, default=MODELS, help="of each kind, fewer for a quick look")
    args = parser.parse_args()
    record: dict[str, Any] = {"versions": {name: version(name) for name in ("numpy", "scipy")}, "rate": RATE}
    for name in SIZES:
        record[name] = level(name, args.models)
        at = record[name]["at_0.01"]
        print(name, record[name]["flagged"], record[name]["standard_error"], at["joint"], at["cauchy"], flush=True)
        args.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
