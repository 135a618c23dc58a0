"""Score heads that were not initialised from a normal law, and look how many of them each null flags.

    python studies/calibration/initialisations.py

writes initialisations.json beside this file (or where ``--out`` says). Everything is seeded; half an hour of one core.
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
from rmtbase.laws import null
from rmtbase.nulls import find_null

HERE = Path(__file__).parent
SEED = 16
HEADS = 2000
BATCH = 100
LEVEL = 0.05

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]


def truncated(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw normal entries, redrawing those beyond two standard deviations."""
    values = rng.standard_normal(shape)
    while (outside := np.abs(values) > 2.0).any():
        values[outside] = rng.standard_normal(np.count_nonzero(outside))
    return values


LAWS: dict[str, tuple[Draw, float]] = {
    "normal": (lambda rng, shape: rng.standard_normal(shape), 0.0),
    "uniform": (lambda rng, shape: rng.uniform(-1.0, 1.0, shape), -1.2),
    "normal truncated at 2 sigma": (truncated, float(stats.truncnorm(-2.0, 2.0).stats("k"))),
    "Laplace": (lambda rng, shape: rng.laplace(size=shape), 3.0),
    "logistic": (lambda rng, shape: rng.logistic(size=shape), 1.2),
}
SHAPES = ((64, 8), (96, 16), (128, 32), (256, 32), (256, 64), (320, 16), (512, 32), (768, 64))

# Entries, the spread of the gains of their rows and columns, and the null: against that of normal entries, which is
# wrong for others, and against those that claim to be right.
_GAUSSIAN, _KURTOSIS = {"null": "gaussian"}, {"null": "kurtosis"}
WRONG = (
    *(((name, 0.0), (256, 32), _GAUSSIAN) for name in LAWS),
    *(((name, 0.0), (768, 64), _GAUSSIAN) for name in ("normal", "uniform", "normal truncated at 2 sigma")),
    (("normal", 0.1), (256, 32), _GAUSSIAN),
)
_CLAIMS = (
    (("normal", 0.0), _GAUSSIAN),
    (("normal", 0.0), _KURTOSIS),
    (("uniform", 0.0), {"null": "gaussian", "initialization": "uniform"}),
    (("uniform", 0.0), {"null": "analytic", "initialization": "uniform"}),
    (("uniform", 0.0), _KURTOSIS),
    (("normal truncated at 2 sigma", 0.0), {"null": "gaussian", "initialization": "truncated_normal"}),
    (("normal truncated at 2 sigma", 0.0), _KURTOSIS),
    (("logistic", 0.0), _KURTOSIS),
)
CASES = (*WRONG, *((entries, shape, options) for shape in SHAPES for entries, options in _CLAIMS))


class Notes:
    """A progress reporter that keeps its notes, each once."""

    def __init__(self) -> None:
        self.notes: set[str] = set()

    def bar(self, label: str, total: int | None) -> Callable[[int], None]:
        """Show nothing."""
        return lambda count: None

    def note(self, line: str) -> None:
        """Keep the line that says where the null came from."""
        self.notes.add(line)

    detail = note


def scored(entries: tuple[str, float], shape: tuple[int, int], options: dict[str, str], heads: int) -> dict[str, Any]:
    """Score untrained heads of one law, with or without gains, against one null."""
    (name, spread_of_gains), (d_model, d_head) = entries, shape
    draw, excess_kurtosis = LAWS[name]
    rng = np.random.default_rng([SEED, d_model, d_head, list(LAWS).index(name), int(100 * spread_of_gains)])

    def gains(*of: int) -> Array:
        return np.exp(spread_of_gains * rng.standard_normal((2, BATCH, *of)))

    parts, told = [], Notes()
    for _ in range(heads // BATCH):
        w_q, w_k = draw(rng, (2, BATCH, d_head, d_model)) * gains(d_head, 1) * gains(1, d_model)
        tree = rmtbase.score_heads(w_q, w_k, find_null(**options), progress=told)  # type: ignore[arg-type]
        parts.append(tree["heads"].to_dataset().isel(layer=0, drop=True))
    z = {
        str(one): np.concatenate([part["z_score"].sel(statistic=one).values for part in parts])
        for one in parts[0]["statistic"].values
    }
    p = {one: np.concatenate([part["p_value"].sel(statistic=one).values for part in parts]) for one in z}
    p["omnibus"] = np.concatenate([part["omnibus_p_value"].values for part in parts])
    spread = null("log_determinant", (d_model, d_head, d_model), self_normalized=True, normalization="none").std()
    return {
        "law": name,
        "gains": spread_of_gains,
        "options": options,
        "excess_kurtosis": excess_kurtosis,
        "d_model": d_model,
        "d_head": d_head,
        "heads": heads,
        "null": sorted({note.partition(", seed")[0] for note in told.notes if note.startswith("null of")}),
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
        below = cases[-1][f"below_{LEVEL}"]
        print(f"{len(cases)} of {len(CASES)}: {case} {min(below.values())} to {max(below.values())}", flush=True)
    record = {"versions": {name: version(name) for name in ("numpy", "scipy")}, "level": LEVEL, "cases": cases}
    args.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
