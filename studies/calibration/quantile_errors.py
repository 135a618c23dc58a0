"""Measure the standard errors of a table's quantiles: their size beside the spread of repeated tables, and coverage.

    python studies/calibration/quantile_errors.py

writes quantile_errors.json beside this file (or where ``--out`` says). Everything is seeded; some minutes of one core.
``--draws`` sets the draws of each shape, which are cut into as many tables of each size as they fill, up to 2 000.

A table's quantiles and errors are ``rmtbase.statistics.summarize`` of its draws, as ``rmtbase baseline`` takes them.
The true quantile is that of all draws of the shape together, two hundred times as many as the largest table has.
"""

import argparse
import json
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import rmtbase
from rmtbase.statistics import summarize

HERE = Path(__file__).parent
SEED = 57
SHAPES = [(16, 16), (64, 8), (128, 32)]
SIZES = (100, 1_000, 10_000)
STATISTICS = (
    *("largest_eigenvalue", "smallest_eigenvalue", "trace", "condition_number", "stable_rank"),
    *("normalized_participation_ratio", "effective_rank", "log_determinant"),
)
MOST = 2_000  # tables of a size
AT_A_TIME = 50_000
BEYOND = (10, 12, 40, 200, 1_000, 5_001)  # limits of the groups of the summary
NORMAL_95 = 1.959963984540054

Array = NDArray[np.float64]


def draws_of(shape: tuple[int, int], number: int) -> Array:
    """Draw the statistics of a shape, (draw, statistic)."""
    parts = []
    for k in range(number // AT_A_TIME):
        table = rmtbase.baseline(*shape, draws=AT_A_TIME, seed=SEED + k, normalization="none")
        parts.append(table["sample"].isel(case=0).sel(statistic=list(STATISTICS)).values.T)
    return np.concatenate(parts)


def measure(sample: Array, size: int) -> list[dict[str, Any]]:
    """Measure the errors of tables of a size, for each statistic and probability at which the draws tell one.

    ``ratio`` is the mean standard error over the standard deviation of the quantile, itself known to ``ratio_error``;
    ``covered`` the share of tables whose quantile lies within 1.96 of its own standard errors of the true one.
    """
    tables = min(len(sample) // size, MOST)
    levels = np.array(rmtbase.laws.PROBABILITIES)
    true = np.quantile(sample, levels, axis=0)
    cut = sample[: tables * size].reshape(tables, size, -1).transpose(1, 0, 2)
    summary = summarize(cut, levels)  # (table, statistic, probability)
    rows = []
    for place, statistic in enumerate(STATISTICS):
        for k, level in enumerate(levels.tolist()):
            quantile, error = summary.quantile[:, place, k], summary.quantile_standard_error[:, place, k]
            if np.isnan(error).all():
                continue
            spread = summarize(quantile, [])
            off = np.abs(quantile - true[k, place])
            rows.append(
                {
                    "statistic": statistic,
                    "probability": level,
                    "ratio": round(float(error.mean() / spread.std), 4),
                    "ratio_error": round(float(error.mean() / spread.std * spread.std_standard_error / spread.std), 4),
                    "covered": round(float(np.mean(off <= NORMAL_95 * error)), 4),
                }
            )
    return [{"draws": size, "tables": tables, **row} for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2_000_000, help="of each shape")
    parser.add_argument("--out", type=Path, default=HERE / "quantile_errors.json")
    arguments = parser.parse_args()
    rows = []
    for shape in SHAPES:
        print(shape, flush=True)
        sample = draws_of(shape, arguments.draws)
        rows += [{"shape": list(shape), **row} for size in SIZES for row in measure(sample, size)]
    head = {
        "study": "quantile_errors",
        "seed": SEED,
        "draws_of_a_shape": arguments.draws,
        "software": {name: version(name) for name in ("rmtbase", "numpy", "jax")},
        "summary": summary(rows),
    }
    write(arguments.out, head, rows)
    print(json.dumps(head["summary"], indent=1))


def write(path: Path, head: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Write a record with a line for each row."""
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    text = f'{json.dumps(head, indent=1)[:-2]},\n "rows": [\n  {lines}\n ]\n}}\n'
    path.write_text(text, encoding="utf-8", newline="\n")


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Average over the quantiles with about as many draws expected beyond them; the heaviest tail by itself.

    The condition number of a square W_QK has no mean: its tail probabilities fall as the root of 1/x.
    """
    found = []
    for heavy in (False, True):
        for low, high in pairwise(BEYOND):
            chosen = [row for row in rows if low <= beyond(row) < high and is_heavy(row) == heavy]
            ratios, covered = (np.array([row[name] for row in chosen]) for name in ("ratio", "covered"))
            if chosen:
                found.append(
                    {
                        "beyond": [low, high],
                        "heavy": heavy,
                        "quantiles": len(chosen),
                        "ratio": round(float(ratios.mean()), 3),
                        "largest_ratio": round(float(ratios.max()), 3),
                        "covered_percent": round(100 * float(covered.mean()), 1),
                    }
                )
    return found


def beyond(row: dict[str, Any]) -> float:
    """Return the number of draws that is expected beyond a quantile, on the nearer side."""
    return round(row["draws"] * min(row["probability"], 1 - row["probability"]), 6)


def is_heavy(row: dict[str, Any]) -> bool:
    """Return True for the condition number of a square W_QK."""
    return row["statistic"] == "condition_number" and len(set(row["shape"])) == 1


if __name__ == "__main__":
    main()
